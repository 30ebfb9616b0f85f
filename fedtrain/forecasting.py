"""``fedtrain.forecast``: from clients' data to a forecast of which method will win; nothing is trained.

data set or file -> kernel problem -> kernels of each method -> kernel regression over folds -> report
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Unpack, cast

import torch
from rich.console import Console
from torch import Tensor

from fedtrain.analysis.forecast_report import ForecastReport, ForecastSubject, build_forecast_report
from fedtrain.analysis.kernel_problem import build_kernel_problem, count_used_samples
from fedtrain.config.partition_options import PartitionOptions, resolve_data_settings
from fedtrain.config.presets import get_dataset_preset, resolve_preset
from fedtrain.config.schema import Config
from fedtrain.data.build import build_federation
from fedtrain.data.partition.describe import describe_partition
from fedtrain.inference.network_forecast import NamedSharing, count_network_samples, forecast_run
from theory.cost import refuse_if_too_large
from theory.errors import InputError
from theory.forecast import FEDBN, FEDCO2, FOLDS, MATRICES_IN_MEMORY, SINGLESET, forecast_methods
from theory.memory import get_available_memory
from theory.problem import Problem
from theory.user_data import DEFAULT_RIDGE, load_user_data

DEFAULT_METHODS = ("singleset", "fedavg", "fedper", "fedbn", "fedco2")
"""Whose forecast is made with a real network, unless it is said whose."""
DEFAULT_WIDTH = 2048
ALPHA = 0.5
"""The scale of the initial weights: how much v weighs against γ. As in `theory.verify`."""
ONE_CLIENT_ERROR = "one client alone has nobody to learn with; give two or more"
Target = Literal["auto", "classes", "numbers"]


def forecast(
    dataset: str | Path,
    *,
    network: str | None = None,
    methods: Sequence[str] | None = None,
    shared: Mapping[str, Sequence[str]] | None = None,
    samples: int | None = None,
    target: Target | None = None,
    width: int | None = None,
    network_seed: int = 0,
    data_dir: Path | str | None = None,
    quiet: bool = False,
    **options: Unpack[PartitionOptions],
) -> ForecastReport:
    """Foretell from the clients' data which method generalises best, and on whom; nothing is trained.

    Args:
        dataset: A data set by name, a folder of images or another data set of your own that training reads, or a .npz
            file of X (n, d), y (n) and owner (n).
        network: Use the kernel of this network (digits, alexnet, cifar ...), as training would begin; without it that
            of the paper's two-layer network.
        methods: With ``network``: of which methods.
        shared: With ``network``: more methods, each by a name and the entries that it averages, ``*`` being any:
            ``{"last layer": ["head.*"]}``.
        samples: Training samples of each client that are looked at.
        target: What y are in a file of your own: auto, classes or numbers.
        width: Hidden units of the two-layer network (default 2048).
        network_seed: Of the network, the drawn samples and the folds.
        data_dir: The folder of the data sets, if not the usual one.
        quiet: Show nothing meanwhile.
        options: Which clients the data set makes, see `fedtrain.config.partition_options.PartitionOptions`.
    """
    root = None if data_dir is None else Path(data_dir)
    given = cast("PartitionOptions", {name: value for name, value in options.items() if value is not None})
    named = {"network": network, "methods": methods, "shared": shared, "samples": samples, "data_dir": root, **given}
    if str(dataset).endswith(".npz"):
        if idle := next((name for name, value in named.items() if value), None):
            raise InputError(f"{idle} is for a named data set; the file says who holds what", [idle])
        data = _read_file(Path(dataset), target or "auto")
        return _forecast_two_layers(data, width or DEFAULT_WIDTH, network_seed, quiet)
    if target is not None:
        raise InputError("target is for a file of your own; the named data sets have classes", ["target"])
    if network is None:
        if idle := next((name for name in ("methods", "shared") if named[name]), None):
            raise InputError(f"{idle} is for a network that would be trained; name it with network", [idle, "network"])
        data = _draw_images(str(dataset), given, samples, network_seed, root, quiet)
        return _forecast_two_layers(data, width or DEFAULT_WIDTH, network_seed, quiet)
    if width is not None:
        raise InputError("width is for the paper's two-layer network; with network leave it out", ["width"])
    configs = _build_configs(str(dataset), given, network, methods or DEFAULT_METHODS, shared or {}, network_seed)
    return _forecast_network(configs, network, samples, network_seed, root, quiet)


@dataclass(frozen=True)
class _ForecastData:
    """Whose data are looked at, and what must be said of them."""

    subject: ForecastSubject
    problem: Problem
    labels: Tensor | None


def _forecast_two_layers(data: _ForecastData, width: int, seed: int, quiet: bool) -> ForecastReport:
    """By the paper's network, whose kernels have a closed form."""
    subject, problem = data.subject, data.problem
    if len(subject.names) < 2:
        raise InputError(ONE_CLIENT_ERROR)
    with _show_status(f"kernels of {len(problem.x):,} samples in {problem.dim:,} dimensions", quiet):
        found = forecast_methods(problem, data.labels, width=width, alpha=ALPHA, seed=seed, names=subject.names)
    setting: dict[str, float | int | str] = {"width": width, "alpha": ALPHA, "seed": seed, "folds": FOLDS}
    return build_forecast_report(subject, found, [SINGLESET, FEDBN, FEDCO2], setting)


def _forecast_network(
    configs: Mapping[str, Config], network: str, samples: int | None, seed: int, root: Path | None, quiet: bool
) -> ForecastReport:
    """By the network that would be trained, as each method shares it."""
    settings = next(iter(configs.values())).data
    data = build_federation(settings, root)
    names = [client.name for client in data.clients]
    if len(names) < 2:
        raise InputError(ONE_CLIENT_ERROR)
    counts, held = count_network_samples(data, samples), [len(client.train) for client in data.clients]
    with _show_status(f"kernels of {sum(counts):,} samples for {', '.join(configs)}", quiet):
        found = forecast_run(configs, data, samples, seed)
    notes = [*data.notes, "batch norm has seen the samples; nothing else of the network has"]
    title = f"{data.title}: {describe_partition(settings)}"
    subject = ForecastSubject(title, names, counts, True, data.standin, notes + _describe_drawn(counts, held))
    return build_forecast_report(subject, found, list(configs), {"network": network, "seed": seed, "folds": FOLDS})


def _build_configs(
    dataset: str,
    options: PartitionOptions,
    network: str,
    methods: Sequence[str],
    shared: Mapping[str, Sequence[str]],
    seed: int,
) -> dict[str, Config]:
    """For each title the settings of the run that would be trained."""
    settings = resolve_data_settings(dataset, **options)

    def build(method: str) -> Config:
        given = {"method": {"name": method}, "model": {"name": network}, "machine": {"device": "cpu"}}
        return replace(resolve_preset(get_dataset_preset(dataset), given), seed=seed, data=settings)

    configs = {config.method.title: config for config in map(build, methods)}
    for title, patterns in shared.items():
        if title in configs:
            raise InputError(f"shared {title}: a method is called so already; choose another name", ["shared"])
        configs[title] = replace(build("fedavg"), method=NamedSharing(tuple(patterns)))
    return configs


def _draw_images(
    dataset: str, options: PartitionOptions, samples: int | None, seed: int, root: Path | None, quiet: bool
) -> _ForecastData:
    """The training samples of the clients that the options describe."""
    settings = resolve_data_settings(dataset, **options)
    data = build_federation(settings, root)
    counts, held = count_used_samples(data, samples), [len(client.train) for client in data.clients]
    _refuse_if_too_many(sum(counts), "lower samples", ["samples"])
    with _show_status("covariances of the clients", quiet):
        images = build_kernel_problem(data, samples, seed)
    pixels = f", as images of {images.side} x {images.side} pixels" if images.side else ""
    notes = [*data.notes, f"seen by a two-layer network{pixels}"]
    title, names = f"{data.title}: {describe_partition(settings)}", [client.name for client in data.clients]
    notes += _describe_drawn(counts, held)
    subject = ForecastSubject(title, names, images.problem.sizes, True, data.standin, notes)
    return _ForecastData(subject, images.problem, images.labels)


def _read_file(path: Path, target: Target) -> _ForecastData:
    """The user's own data."""
    data = load_user_data(path, DEFAULT_RIDGE)
    _refuse_if_too_many(len(data.file_rows), "give fewer rows")
    values, labels = data.problem.y.unique(return_inverse=True)
    whole = torch.equal(values, values.round()) and 2 <= len(values) <= len(labels) / FOLDS
    classes = whole if target == "auto" else target == "classes"
    notes = [f"y are taken as {f'{len(values)} classes' if classes else 'numbers'}"]
    notes += [*([data.centring] if data.centring else []), *data.violated_assumptions]
    subject = ForecastSubject(path.name, data.client_names, data.problem.sizes, classes, False, notes)
    return _ForecastData(subject, data.problem, labels if classes else None)


def _refuse_if_too_many(samples: int, remedy: str, options: Sequence[str] = ()) -> None:
    """Of whom no kernels fit in memory."""
    refuse_if_too_large(MATRICES_IN_MEMORY * 8 * samples**2, get_available_memory(), remedy, options)


def _describe_drawn(counts: list[int], held: list[int]) -> list[str]:
    if counts == held:
        return []
    return [f"of {sum(held):,} training samples {sum(counts):,} were drawn; samples says how many of each client"]


def _show_status(message: str, quiet: bool) -> AbstractContextManager[Any]:
    """Show on a terminal that something is being done; elsewhere nothing."""
    screen = Console(stderr=True, markup=False, highlight=False, emoji=False)
    return screen.status(message) if screen.is_terminal and not quiet else nullcontext()
