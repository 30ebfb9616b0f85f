"""``theory.verify``: from options to a report, the story of a verification on one page.

setting -> study of every draw -> findings -> results -> terminal, JSON, page and figures, which only read
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from theory.claims import Claim, select_claims
from theory.collect_results import collect_results
from theory.config import TheoryConfig
from theory.errors import InputError
from theory.kernels.closed_form import Projection
from theory.problem import Covariance
from theory.progress import make_stderr_screen, show_progress
from theory.report.figures import plot_figures
from theory.report.folder import reserve_folder, write_report
from theory.report.verdict_table import format_html_table, format_text_table
from theory.resources import allot_resources
from theory.results import VerificationResults
from theory.text import suggest_name
from theory.user_data import UserData, build_user_data

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

Dataset = str | Path | UserData | Mapping[str, Any]
"""An .npz file, or arrays: a mapping with X, y and owner, or what `theory.build_user_data` gives."""
OTHER_OPTIONS = ("claims", "certify", "dataset", "allow_parallel", "threads", "out", "quiet")
"""Keywords of `verify` that are no settings."""
SYNTHETIC_OPTIONS = ("clients", "samples", "dim", "covariance", "heterogeneity")
"""What the user's own data say themselves."""


class VerifyOptions(TypedDict, total=False):
    """The settings that ``fedco2 theory --help`` lists, as keywords of `theory.verify`."""

    samples: int
    """M, samples of each client (default 20)."""
    dim: int
    """d, the dimension of the inputs (default 10)."""
    width: int
    """m, hidden units (default 4096)."""
    alpha: float
    """The scale of the initial weights, in (0, 1] (default 0.5)."""
    covariance: Covariance
    """S_i of the clients: isotropic (all I), scaled (s_i I), or anisotropic (each with its own axes; default)."""
    heterogeneity: float
    """How much covariances differ: the spread of log variances (default 1)."""
    seed: int
    """Of the data and the networks (default 0)."""
    draws: int
    """Repeat with other data and networks (default 1)."""
    steps: int
    """Steps of real descent (default 200)."""
    projection: Projection
    """Derivative of the normalised unit: exact (default), or as the paper prints it."""
    dtype: str
    """float64 (default) or float32."""
    device: str
    """cpu (default) or cuda."""
    chunk: int | None
    """Hidden units at a time, memory against speed (default: fitted)."""
    ridge: float
    """Added to covariances of the user's own data, as a share of the mean variance (default 0.001)."""


@dataclass(frozen=True, repr=False)
class VerificationReport(VerificationResults):
    """What `theory.verify` found; shown as a table in a notebook."""

    @classmethod
    def from_results(cls, results: VerificationResults) -> VerificationReport:
        """The same results, with figures and a folder to save them in."""
        return cls(**{field.name: getattr(results, field.name) for field in fields(results)})

    def figures(self) -> dict[str, Figure]:
        """The figures of the page as matplotlib figures, by name."""
        return {name: body.figure for name, body in plot_figures(self).items()}

    def save(self, folder: Path | str) -> Path:
        """Write the folder that ``fedco2 theory`` writes: page, JSON, matrices and figures; nothing is overwritten."""
        with reserve_folder(Path(folder)) as path:
            write_report(path, self)
        return path

    def __repr__(self) -> str:
        return format_text_table(self)

    def _repr_html_(self) -> str:
        return format_html_table(self)


def verify(
    clients: int | None = None,
    *,
    claims: str | Iterable[str] | None = None,
    certify: bool = False,
    dataset: Dataset | None = None,
    allow_parallel: bool = False,
    threads: int | None = None,
    out: Path | str | None = None,
    quiet: bool = False,
    **options: Unpack[VerifyOptions],
) -> VerificationReport:
    """Verify the theory of Fed-CO2: check every claim on two-layer batch-norm networks, as ``fedco2 theory`` does.

    Args:
        clients: N, how many synthetic clients (default 5).
        claims: only these, ``"O1,O2"`` or ``["O1", "O2"]``; without it all.
        certify: prove O2, O3 and O5 for these data and weights, rounding errors included.
        dataset: your own data instead of synthetic clients: an .npz file with X (n, d), y (n) and owner (n), a mapping
            of such arrays, or what `theory.build_user_data` gives.
        allow_parallel: go on although two samples are parallel.
        threads: the number of threads; without it fitted to the problem.
        out: a folder to write the report to; without it nothing is written.
        quiet: print nothing; otherwise the cost and a progress bar are shown on stderr.
        options: the settings of ``fedco2 theory``, see `theory.verification.VerifyOptions`.

    Returns:
        The report: a finding for each claim, eigenvalues, curves, certificates, figures.
    """
    given = {name: value for name, value in {"clients": clients, **options}.items() if value is not None}
    keywords = given | {"claims": claims, "certify": certify, "dataset": dataset, "out": out}
    return run_verification(
        build_config(given, dataset),
        select_claims(claims),
        certify=certify,
        allow_parallel=allow_parallel,
        threads=threads,
        out=out,
        screen=None if quiet else make_stderr_screen(),
        command=_format_call(keywords),
    )


def run_verification(
    setting: TheoryConfig,
    claims: Sequence[Claim],
    *,
    certify: bool = False,
    allow_parallel: bool = False,
    threads: int | None = None,
    out: Path | str | None = None,
    screen: Console | None = None,
    command: str | None = None,
) -> VerificationReport:
    """Check the setting, collect results, write the folder if one is named; the ``screen`` shows cost and progress."""
    with (
        allot_resources([setting], claims, allow_parallel=allow_parallel, threads=threads, screen=screen),
        nullcontext() if out is None else reserve_folder(Path(out)) as folder,
        show_progress(screen) as progress,
    ):
        results = collect_results(setting, claims, certify=certify, progress=progress)
        report = VerificationReport.from_results(replace(results, command=command))
        if folder is not None:
            progress("figures and page", 0, 1)
            write_report(folder, report)
    return report


def build_config(options: Mapping[str, Any], dataset: Dataset | None = None) -> TheoryConfig:
    """The setting of these options; unknown ones, and those that the data contradict, are refused."""
    known = [name for name in TheoryConfig.__dataclass_fields__ if name != "dataset"]
    for name in options:
        if name not in known:
            raise InputError(f"unknown option {name!r}; {suggest_name(name, [*known, *OTHER_OPTIONS])}")
    if dataset is None:
        if "ridge" in options:
            raise InputError("ridge is for a dataset of your own; synthetic clients have known covariances", ["ridge"])
        return TheoryConfig(**options)
    if clash := next((name for name in SYNTHETIC_OPTIONS if name in options), None):
        raise InputError(f"{clash} contradicts dataset: the data say what it is; leave {clash} out", [clash])
    if isinstance(dataset, str | Path):
        return TheoryConfig(**options, dataset=str(dataset))
    if isinstance(dataset, UserData):
        if "ridge" in options:
            raise InputError("ridge contradicts dataset, which has been built with one; leave it out", ["ridge"])
        return TheoryConfig(**options, dataset=dataset, ridge=dataset.ridge)
    if set(dataset) != {"X", "y", "owner"}:
        raise InputError(
            f"dataset has {', '.join(map(str, dataset)) or 'nothing'}; it needs X (n, d), y (n), owner (n)"
        )
    ridge = {"ridge": options["ridge"]} if "ridge" in options else {}
    return TheoryConfig(**options, dataset=build_user_data(**dataset, **ridge))


def _format_call(keywords: Mapping[str, Any]) -> str:
    """The call as a report records it; data that come from no file by their kind."""

    def show(value: Any) -> str:
        if isinstance(value, Path):
            return repr(str(value))
        return repr(value) if isinstance(value, str | int | float | list | tuple) else f"<{type(value).__name__}>"

    given = {name: value for name, value in keywords.items() if value is not None and value is not False}
    return f"theory.verify({', '.join(f'{name}={show(value)}' for name, value in given.items())})"
