"""``fedtrain.train``: from options to a run folder, the story of a run on one page.

options and settings -> configuration -> clients' data -> experiment -> rounds -> run folder
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn, Unpack

import torch

from fedtrain.aggregators import Aggregator, get_aggregator_name
from fedtrain.analysis.cost import estimate_round_seconds, estimate_seconds_left
from fedtrain.analysis.model_summary import ModelSummary, summarise_experiment
from fedtrain.backends.distributed.launch import launch_ranks
from fedtrain.backends.distributed.process_group import Rank, exit_process
from fedtrain.config.data import SETTINGS_OF_SKEW
from fedtrain.config.method_tables import serialize_method
from fedtrain.config.old_names import upgrade_tables
from fedtrain.config.optimizers import get_optimizer_name
from fedtrain.config.options import TrainOptions, nest_options, nest_settings
from fedtrain.config.presets import FOUND_PRESET, OWN_PRESET, load_preset_chain, resolve_preset
from fedtrain.config.references import load_references
from fedtrain.config.schema import Config, load_toml
from fedtrain.config.toml import TomlTable, merge_tables, serialize_section
from fedtrain.data.client_data import ClientData, Federation
from fedtrain.data.datasets import DATASETS
from fedtrain.data.own_clients import OWN_DATASET, build_own_federation
from fedtrain.data.source import LoadedDataset, load_dataset
from fedtrain.errors import TrainingError
from fedtrain.federated.server import sample_cohort
from fedtrain.inference.adapt import ReportHeldOut
from fedtrain.inference.evaluate import SavePredictions
from fedtrain.methods.base import AnyMethod
from fedtrain.methods.own import name_method
from fedtrain.models.own import ModelBuilder
from fedtrain.report.progress_view import ProgressView
from fedtrain.report.run_figures import DrawFigures
from fedtrain.run import Run
from fedtrain.runs.callbacks import Callback, build_callbacks
from fedtrain.runs.distributed import check_rank_count, open_distributed_backend, serve_rank
from fedtrain.runs.experiment import Experiment, build_experiment, plan_experiment
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.loop import run_experiment
from fedtrain.runs.manifest import build_manifest, describe_data
from fedtrain.runs.resume import resolve_original_data, resume_config
from fedtrain.trackers import build_trackers
from fedtrain.utils.malloc import keep_freed_memory
from fedtrain.utils.new_folder import choose_new_folder
from fedtrain.utils.text import format_count
from theory.errors import InputError


def train(
    *,
    clients: int | Sequence[ClientData] | None = None,
    model: str | ModelBuilder | None = None,
    method: str | AnyMethod | type[AnyMethod] | None = None,
    aggregator: str | Aggregator | type[Aggregator] | None = None,
    callbacks: Sequence[str | Callback | type[Callback]] = (),
    track: str | Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    preset: str | None = None,
    config: Path | str | None = None,
    classes: Sequence[str] | None = None,
    data_dir: Path | str | None = None,
    out: Path | str | None = None,
    resume: Path | str | None = None,
    nproc: int | None = None,
    quiet: bool = False,
    **options: Unpack[TrainOptions],
) -> Run:
    """Train a federation and write a run folder, as ``fedco2 train`` does.

    Args:
        clients: How many clients a label skew makes, or the clients themselves, with data of your own.
        model: The name of a network, a reference to one (``nets:make``), or a module class or function that builds
            your own. It is called with ``classes`` and ``shape`` if it has parameters of these names.
        method: The name of a method, a reference to one (``lg:LGFedAvg``, ``./lg.py:LGFedAvg``), or an instance
            such as ``fedtrain.FedProx(mu=0.1)`` or of a class of your own.
        aggregator: How the server makes one model of many: the name of an aggregator, or an instance such as
            ``fedtrain.FedAdam(lr=0.03)``; by default the mean.
        callbacks: Watch the run, see `fedtrain.Callback`: instances, classes, or references to them.
        track: Trackers that copy the run's numbers: tensorboard, wandb or mlflow, yours, or several of them.
        settings: Any setting by its path, such as ``{"method.mu": 0.5}``.
        preset: A protocol by name; without it that of the data set.
        config: A TOML file of settings.
        classes: Names of the classes of your own clients' data.
        data_dir: The folder of the data sets, if not the usual one.
        out: The folder to write; without it a new one in ``runs/``.
        resume: The folder of a run to go on with.
        nproc: Divide the clients among so many processes, which are started for it.
        quiet: Print nothing.
        options: The settings that ``fedco2 train`` has options for, such as ``rounds=10``.

    Returns:
        The run: its accuracies, rows, figures and models.
    """
    keywords: dict[str, Any] = {
        "clients": clients, "model": model, "method": method, "aggregator": aggregator,
        "settings": settings, "preset": preset, "config": config,
        "classes": classes, "data_dir": data_dir, "out": out, "resume": resume, **options,
    }  # fmt: skip
    given = {name: value for name, value in keywords.items() if value is not None}
    if nproc is not None:
        return _train_on_processes({**given, "quiet": quiet, "track": track}, nproc, callbacks)
    shown = [] if quiet else [ProgressView()]
    watchers = [*build_trackers(track), *build_callbacks(callbacks)]
    return run_plan(plan(**given), [*shown, *watchers], command=_format_call(given))


@dataclass(frozen=True, repr=False)
class TrainingPlan:
    """What a call of `train` would do; nothing has been trained or written."""

    experiment: Experiment
    """The configuration with its clients' data: ``experiment.federation.clients``."""
    folder: RunFolder
    """Where the run would be written."""
    data_dir: Path | None = None
    """The folder of the data sets, if not the usual one."""

    @property
    def config(self) -> Config:
        """Every setting of the run."""
        return self.experiment.config

    @property
    def model_summary(self) -> ModelSummary:
        """What of the model is shared, personal and published, and the bytes of a client's round."""
        return summarise_experiment(self.experiment)

    @property
    def client_turns(self) -> int:
        """How often a client trains in a round, over all rounds: each turn sends the bytes of ``model_summary``."""
        server, names = self.config.server, [client.name for client in self.experiment.federation.clients]
        return server.rounds * len(sample_cohort(names, server.participation, self.config.seed, 0))

    @property
    def seconds(self) -> float:
        """Roughly how long the run would take."""
        return estimate_seconds_left(self.config, estimate_round_seconds(self.experiment))

    def __repr__(self) -> str:
        data = self.experiment.federation
        what = f"{self.config.method.title} on {data.title}, {format_count(len(data.clients), 'client')}"
        return f"<TrainingPlan {self.folder.path}: {what}, {format_count(self.config.server.rounds, 'round')}>"


def plan(
    *,
    clients: int | Sequence[ClientData] | None = None,
    model: str | ModelBuilder | None = None,
    method: str | AnyMethod | type[AnyMethod] | None = None,
    aggregator: str | Aggregator | type[Aggregator] | None = None,
    settings: Mapping[str, Any] | None = None,
    preset: str | None = None,
    config: Path | str | None = None,
    classes: Sequence[str] | None = None,
    data_dir: Path | str | None = None,
    out: Path | str | None = None,
    resume: Path | str | None = None,
    load_images: bool = True,
    **options: Unpack[TrainOptions],
) -> TrainingPlan:
    """Decide all that `train` would do with these arguments, and train and write nothing.

    The arguments are those of `train`. With ``load_images=False`` no image is read or drawn.
    """
    own_clients = None if clients is None or isinstance(clients, int) else clients
    if isinstance(optimizer := options.get("optimizer"), type):
        options["optimizer"] = get_optimizer_name(optimizer)
    tables = merge_tables(
        nest_options({**options, "clients": clients if isinstance(clients, int) else None}),
        _nest_method(method),
        _nest_aggregator(aggregator),
        {} if model is None else {"model": {"name": model if isinstance(model, str) else "own"}},
        nest_settings(settings or {}),
    )
    root = None if data_dir is None else Path(data_dir)
    build_model = None if model is None or isinstance(model, str) else model
    if resume is not None:
        if clash := next(
            (name for name, value in (("preset", preset), ("config", config), ("out", out)) if value), None
        ):
            raise InputError(f"{clash} contradicts resume: the run says what it is; leave it out")
        folder = RunFolder(Path(resume))
        if not folder.has_run:
            raise InputError(f"{folder.path}: no run is here to go on with; name the folder that a run has written")
        chosen = resume_config(folder, load_references(tables))
        data = _load_resumed_data(folder, chosen, own_clients, classes, root, load_images)
    else:
        own = load_references(merge_tables(upgrade_tables(load_toml(Path(config))) if config else {}, tables))
        chosen, data = _plan_new_run(own, preset, own_clients, classes, root, load_images)
        check_alpha_is_used(chosen, tables)
        folder = RunFolder(Path(out) if out else choose_new_folder(f"{chosen.data.short_name}-{chosen.method_name}"))
    threads = chosen.machine.threads or torch.get_num_threads()  # written down, so that the run can be repeated
    chosen = replace(chosen, machine=replace(chosen.machine, threads=threads))
    return TrainingPlan(build_experiment(chosen, data, build_model), folder, root)


def run_plan(
    training: TrainingPlan,
    callbacks: Sequence[Callback] = (),
    *,
    command: str,
) -> Run:
    """Begin the run or go on with it, make its rounds, write its summary.

    Of several processes, rank 0 leads; on the others this serves it.
    """
    experiment, folder = training.experiment, training.folder
    rank = find_own_rank(experiment.config)
    open_backend = partial(open_distributed_backend, experiment, rank, folder) if rank else None
    keep_freed_memory()
    with use_threads(experiment.config.machine.threads):
        if rank is not None and rank.rank:
            return Run(serve_rank(experiment, rank).path)
        manifest = build_manifest(
            experiment.config, describe_data(experiment.federation), command, experiment.build_model, callbacks
        )
        keep: list[Callback] = [SavePredictions()] if experiment.config.evaluation.save_predictions else []
        if experiment.config.data.hold_out is not None:
            keep.append(ReportHeldOut())
        run_experiment(experiment, folder, manifest, [*callbacks, DrawFigures(), *keep], open_backend)
    return Run(folder.path, build_model=experiment.build_model)


def find_own_rank(config: Config) -> Rank | None:
    """Which of several processes this is; None if clients run in one process."""
    if config.machine.backend != "distributed":
        return None
    rank = Rank.from_environment()
    if rank is None:
        raise InputError("backend distributed needs its processes: start this with torchrun, or set nproc to 2 or more")
    return rank


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _nest_method(method: str | AnyMethod | type[AnyMethod] | None) -> TomlTable:
    if method is None or isinstance(method, str):
        return {} if method is None else {"method": {"name": method}}
    name = name_method(method)
    return {"method": {"name": name} if isinstance(method, type) else {"name": name, **serialize_method(method)}}


def _nest_aggregator(aggregator: str | Aggregator | type[Aggregator] | None) -> TomlTable:
    if aggregator is None or isinstance(aggregator, str):
        return {} if aggregator is None else {"aggregator": {"name": aggregator}}
    kind = aggregator if isinstance(aggregator, type) else type(aggregator)
    options = {} if isinstance(aggregator, type) else serialize_section(aggregator)
    return {"aggregator": {"name": get_aggregator_name(kind), **options}}


def _plan_new_run(
    own: TomlTable,
    preset: str | None,
    clients: Sequence[ClientData] | None,
    classes: Sequence[str] | None,
    root: Path | None,
    load_images: bool,
) -> tuple[Config, LoadedDataset | Federation]:
    """The configuration of a new run, from preset, file and options, and its data."""
    if clients is not None:
        if own.get("data", {}).get("dataset", OWN_DATASET) != OWN_DATASET:
            raise InputError("dataset contradicts clients that bring their own data; leave one of them out")
        config = resolve_preset(preset or OWN_PRESET, own)
        if config.data.validation_share:
            raise InputError(
                "data.validation_share is for data that are found; give your own clients their validation samples: "
                "ClientData.from_arrays(..., val=...)"
            )
        return config, build_own_federation(clients, classes)
    config, found = plan_experiment(choose_preset(own, preset), own, root)
    return config, found if load_images else found.without_inputs()


def choose_preset(own: TomlTable, preset: str | None) -> str:
    """The preset of a new run: the one that is asked for, or that of the data set."""
    data = own.get("data")
    wanted = str(data["dataset"]) if isinstance(data, Mapping) and "dataset" in data else None
    if wanted is not None and wanted not in DATASETS and preset in (None, FOUND_PRESET):
        return FOUND_PRESET
    chosen = preset or wanted or "digits"
    meant = merge_tables(*load_preset_chain(chosen))["data"]["dataset"]
    if wanted not in (None, meant):
        raise InputError(f"preset {chosen!r} is for {meant}, not for {wanted}; leave one of them out")
    return chosen


def check_alpha_is_used(config: Config, given: TomlTable) -> None:
    """Refuse a concentration for a skew that has none."""
    if "alpha" in given.get("data", {}) and "alpha" not in SETTINGS_OF_SKEW[config.data.skew]:
        raise InputError(f"alpha means nothing to skew {config.data.skew!r}; leave it out or choose another skew")


def _load_resumed_data(
    folder: RunFolder,
    config: Config,
    clients: Sequence[ClientData] | None,
    classes: Sequence[str] | None,
    root: Path | None,
    load_images: bool,
) -> LoadedDataset | Federation:
    """The data that a run was begun with."""
    if config.data.dataset == OWN_DATASET:
        if clients is None:
            raise InputError(
                f"{folder.path} was trained on clients given in Python; there, give them again: clients=[...]"
            )
        return build_own_federation(clients, classes)
    found = load_dataset(resolve_original_data(folder, config), root)
    return found if load_images else found.without_inputs()


def _train_on_processes(given: dict[str, Any], nproc: int, callbacks: Sequence[str | Callback | type[Callback]]) -> Run:
    """Start so many processes that run this module; what they are told must fit into a JSON file."""
    objects = ("clients", "model", "method", "aggregator", "optimizer")
    here = [name for name in objects if not isinstance(given.get(name, ""), str | int)]
    if here or not all(isinstance(one, str) for one in callbacks):
        what = here[0] if here else "callbacks"
        raise InputError(
            f"{what} cannot be handed to other processes; start your own script with torchrun --nproc-per-node "
            f"{nproc}, and leave nproc out"
        )
    if given.get("backend") not in (None, "distributed"):
        raise InputError(f"nproc is for backend distributed, not for {given['backend']}; leave one of them out")
    given = {**given, "backend": "distributed"}
    planned = plan(
        **{name: value for name, value in given.items() if name not in ("quiet", "track")}, load_images=False
    )
    check_rank_count(planned.experiment, nproc)
    given |= {"callbacks": list(callbacks)} | ({} if "resume" in given else {"out": str(planned.folder.path)})
    with TemporaryDirectory(prefix="fedco2-") as place:
        request = Path(place) / "request.json"
        request.write_text(json.dumps(given, default=str), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "fedtrain.training", str(request)]
        if code := launch_ranks(command, nproc, given.get("threads")):
            raise TrainingError(f"a process ended with code {code}; what it said is above")
    return Run(planned.folder.path)


def _format_call(given: Mapping[str, Any]) -> str:
    """The call as a manifest records it; objects by their class, data by their number."""

    def show(value: Any) -> str:
        if isinstance(value, Sequence) and not isinstance(value, str):
            return f"[{len(value)} of {type(value[0]).__name__}]" if value else "[]"
        return repr(str(value)) if isinstance(value, Path) else getattr(value, "__name__", repr(value))

    return f"fedtrain.train({', '.join(f'{name}={show(value)}' for name, value in given.items())})"


def train_as_rank(request: Path) -> NoReturn:
    """Be one of the processes that ``train(nproc=...)`` has started; rank 0 speaks for all."""
    rank = Rank.from_environment()
    if rank is not None and rank.rank:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - to the end of the process
    code = 0
    try:
        train(**json.loads(request.read_text(encoding="utf-8")))
    except (InputError, TrainingError) as error:
        print(f"error: {error}", file=sys.stderr)
        code = 1
    exit_process(code)


if __name__ == "__main__":
    train_as_rank(Path(sys.argv[1]))
