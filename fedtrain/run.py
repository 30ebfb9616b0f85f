"""``fedtrain.load_run``: a run folder as an object, with its accuracies, figures, models and predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

from fedtrain.aggregators import Aggregator, get_aggregator_name
from fedtrain.config.optimizers import get_optimizer_name
from fedtrain.config.references import load_named
from fedtrain.config.schema import Config, parse_metrics
from fedtrain.data.client_data import ClientData, Federation
from fedtrain.data.own_clients import build_own_federation
from fedtrain.federated.messages import Split
from fedtrain.inference.adapt import PASSES, AdaptedClient, adapt_client
from fedtrain.inference.evaluate import (
    change_fusion,
    check_run_data,
    evaluate_clients,
    load_held_out_data,
    load_run_data,
)
from fedtrain.inference.newcomer_data import read_newcomer
from fedtrain.inference.personal_file import save_personal
from fedtrain.inference.trained_run import TrainedRun, load_trained_run
from fedtrain.methods.base import AnyMethod
from fedtrain.methods.own import name_method
from fedtrain.models.own import ModelBuilder
from fedtrain.report import tables
from fedtrain.report.png import render_png
from fedtrain.report.records import RunRecord, read_record
from fedtrain.report.run_figures import draw_accuracy_figure
from fedtrain.runs import selection
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.json_types import ByBranch, Manifest, MetricRow, MetricStatistics, RuleResult, RunSummary
from fedtrain.runs.predictions import PREDICTIONS_FILE, SavedPredictions, load_predictions
from fedtrain.runs.selection import measure_gap
from fedtrain.utils.atomic_files import check_new_file
from theory.errors import InputError
from theory.text import suggest_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.optim import Optimizer

    from theory.networks.network_study import NetworkStudy


class AccuracyTable(Mapping[str, ByBranch]):
    """Test accuracy by client and branch, with the mean over clients; a table in a notebook."""

    def __init__(self, title: str, clients: Mapping[str, ByBranch], mean: ByBranch) -> None:
        self.title, self.clients, self.mean = title, dict(clients), dict(mean)

    def __getitem__(self, client: str) -> ByBranch:
        return self.clients[client]

    def __iter__(self) -> Any:
        return iter(self.clients)

    def __len__(self) -> int:
        return len(self.clients)

    def __repr__(self) -> str:
        heads, rows = self._list_cells()
        width = max(len(row[0]) for row in [heads, *rows])
        lines = [f"{row[0]:<{width}}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in [heads, *rows]]
        return "\n".join([self.title, *lines])

    def _repr_html_(self) -> str:
        heads, rows = self._list_cells()
        head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><caption>{escape(self.title)}</caption><tr>{head}</tr>{body}</table>"

    @property
    def gap(self) -> dict[str, float]:
        """How far the prediction is above the better branch of each client, below it if negative; empty without
        branches. For ``mean``, which branch is better is decided for all clients alike."""
        return {name: gap for name, each in self._rows.items() if (gap := measure_gap(each)) is not None}

    @property
    def _rows(self) -> dict[str, ByBranch]:
        return {**self.clients, "mean": self.mean}

    def _list_cells(self) -> tuple[list[str], list[list[str]]]:
        branches, gap = list(self.mean), self.gap
        heads = ["accuracy"] if branches == ["fused"] else [*branches, *(["gap"] if gap else [])]
        return ["client", *heads], [
            [
                name,
                *(f"{100 * values[branch]:.1f}" for branch in branches),
                *([f"{100 * gap[name]:+.1f}"] if gap else []),
            ]
            for name, values in self._rows.items()
        ]


class ClientModel(nn.Module):
    """A client's own model: inputs as the client holds them, logits of the prediction."""

    def __init__(self, run: TrainedRun, client: str) -> None:
        super().__init__()
        run.get_client(client)  # refused with the nearest name
        self._run, self.client = run, client

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of the prediction, the branch ``fused``."""
        return self.compute_branches(inputs)["fused"]

    def compute_branches(self, inputs: Tensor) -> dict[str, Tensor]:
        """Logits of every branch."""
        shape = self._run.federation.clients[0].train.inputs.shape[1:]
        if not isinstance(inputs, Tensor) or inputs.shape[1:] != shape:
            given = tuple(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
            raise InputError(f"inputs are {given}; give a tensor of shape (n, {', '.join(map(str, shape))})")
        return self._run.compute_logits(self.client, inputs)


class Predictions(Sequence[dict[str, float]]):
    """The likeliest classes of each input, and their probabilities."""

    def __init__(self, probabilities: Tensor, classes: Sequence[str]) -> None:
        self.probabilities, self.class_names = probabilities, tuple(classes)

    @property
    def classes(self) -> list[str]:
        """The likeliest class of each input."""
        return [self.class_names[number] for number in self.probabilities.argmax(-1).tolist()]

    def __len__(self) -> int:
        return len(self.probabilities)

    def __getitem__(self, place: Any) -> Any:
        """The probability of each class, the likeliest first."""
        values, order = self.probabilities[place].sort(descending=True)
        return {self.class_names[k]: float(v) for v, k in zip(values, order.tolist(), strict=True)}

    def __repr__(self) -> str:
        best = self.probabilities.max(-1).values.tolist() if len(self) else []
        return "\n".join(f"{name} {100 * p:.1f} %" for name, p in zip(self.classes, best, strict=True)) or "no inputs"


class Run:
    """A run, finished or not, as its folder tells it; made by `train` and `load_run`."""

    def __init__(self, path: Path | str, *, device: str | None = None, build_model: ModelBuilder | None = None) -> None:
        self.path, self._device, self._build_model = Path(path), device, build_model
        self.folder = RunFolder(self.path)
        if not self.folder.has_run:
            raise InputError(f"{self.path}: no run is here; name the folder that a run has written")

    @property
    def config(self) -> Config:
        """Every setting."""
        return self.folder.load_config()

    @property
    def rows(self) -> list[MetricRow]:
        """Every evaluation: one row for each round, client, split and branch."""
        return self.folder.load_rows()

    @property
    def summary(self) -> RunSummary:
        """Results under every rule, bytes and seconds; written when the run is finished."""
        return self.folder.read_summary()

    @property
    def manifest(self) -> Manifest:
        """Versions, machine and data."""
        return self.folder.read_manifest()

    @property
    def clients(self) -> list[str]:
        """Names of the clients."""
        return [client["name"] for client in self.manifest["data"]["clients"]]

    @property
    def record(self) -> RunRecord:
        """All but the weights, for reports; refused while nothing has been evaluated."""
        return read_record(self.path)

    def accuracy(self, rule: str | None = None) -> AccuracyTable:
        """Test accuracy by client and branch.

        Args:
            rule: last, best-by-validation or window; without it the rule that the run reports by.
        """
        record = self.record
        chosen, result = self._get_result(rule)
        words = selection.RULE_DESCRIPTIONS if self.folder.is_finished else tables.RULE_DESCRIPTIONS
        title = f"{record.title} on {record.data['title']}: test accuracy in %, {words[chosen]}"
        return AccuracyTable(title, result["clients"], result["mean"])

    def scores(self, rule: str | None = None) -> dict[str, MetricStatistics]:
        """Further test scores by name (``evaluation.metrics``), by client and branch and as means over clients.

        Args:
            rule: last, best-by-validation or window; without it the rule that the run reports by.
        """
        return self._get_result(rule)[1].get("metrics", {})

    @property
    def predictions(self) -> SavedPredictions:
        """What the last weights say of every test sample, if the run saved it; refused if not."""
        return load_predictions(self.path / PREDICTIONS_FILE)

    def plot(self) -> Figure:
        """Test accuracy over rounds, of every client and branch; a notebook shows it."""
        figure = draw_accuracy_figure(self.folder)
        figure._repr_png_ = partial(render_png, figure)  # type: ignore[attr-defined]  # without %matplotlib inline
        return figure

    def report(self, path: Path | str) -> Path:
        """Write the run as one HTML page that needs no other file; an existing file is refused."""
        from fedtrain.report.page import write_page  # not before it is needed: most runs are not made pages of

        write_page(tables.build_result_tables([self.record]), Path(path))
        return Path(path)

    @cached_property
    def trained(self) -> TrainedRun:
        """The clients' models as the last checkpoint has them."""
        return load_trained_run(self.path, self._device, self._build_model)

    def model(self, client: str) -> ClientModel:
        """A client's own model; call it with a batch of inputs, bytes (n, 3, H, W) of images, to get logits."""
        return ClientModel(self.trained, client)

    def predict(self, client: str, inputs: Tensor | Sequence[Path | str]) -> Predictions:
        """What a client's model says.

        Args:
            client: The name of the client.
            inputs: A batch as the client holds it, for images bytes (n, C, H, W); or files of images, which are
                resized, or of tables, whose rows are standardised as the client's were.
        """
        if not isinstance(inputs, Tensor):
            inputs = self.trained.read_inputs([Path(path) for path in inputs], client).inputs
        logits = self.model(client)(inputs)
        return Predictions(logits.double().softmax(-1).cpu(), self.trained.federation.classes)

    def evaluate(
        self,
        split: Split = "test",
        *,
        client: str | None = None,
        data_dir: Path | str | None = None,
        clients: Sequence[ClientData] | None = None,
        metrics: str | None = None,
        fusion: str | None = None,
    ) -> list[MetricRow]:
        """Evaluate the last checkpoint again, each client's own model on the client's own data.

        Args:
            split: train, val or test.
            client: Only this client.
            data_dir: The folder of the data sets, if not the usual one.
            clients: The clients of a run on data of your own, which its folder does not hold.
            metrics: Further scores: none, all, or names separated by commas; without it those of the run.
            fusion: Another fusion of the branches: own, logits, probabilities, weighted or best. For the last two
                every client chooses anew, on its validation data.

        Returns:
            Rows like those of ``metrics.jsonl``.
        """
        wanted = None if metrics is None else parse_metrics(metrics, len(self.trained.federation.classes))
        data = self._load_data(data_dir, clients)
        trained = self.trained if fusion is None else change_fusion(self.trained, data, fusion)
        return evaluate_clients(trained, data, split, client, wanted)

    def adapt(
        self,
        data: Path | str | ClientData | None = None,
        *,
        shots: int = 20,
        client: str | None = None,
        passes: int = PASSES,
        lr: float | None = None,
        seed: int = 0,
        metrics: str | None = None,
        data_dir: Path | str | None = None,
        out: Path | str | None = None,
    ) -> AdaptedClient:
        """Give a client that was never seen a personal part, and measure it before and after; the run does not change.

        Args:
            data: The newcomer, or a path to its files; without it the client that was held out of training.
            shots: Labelled samples to train on, drawn in proportion to their classes.
            client: Which, if the files hold several.
            passes: How often it goes over the shots.
            lr: Learning rate; without it the run's.
            seed: Of the choice of shots.
            metrics: Further scores: none, all, or names separated by commas; without it those of the run.
            data_dir: The folder of the data sets, if not the usual one.
            out: A file for the personal part, which ``fedco2 predict --newcomer`` reads.
        """
        if out is not None:
            check_new_file(Path(out), ".safetensors", "a personal part is a file of tensors")
        run = self.trained
        if data is None:
            newcomer = load_held_out_data(run, None if data_dir is None else Path(data_dir))
        elif isinstance(data, ClientData):
            [newcomer] = build_own_federation([data], run.federation.classes).clients
        else:
            newcomer = read_newcomer(run, Path(data), client)
        wanted = None if metrics is None else parse_metrics(metrics, len(run.federation.classes))
        found = adapt_client(run, newcomer, shots, passes=passes, lr=lr, seed=seed, metrics=wanted)
        if out is not None:
            save_personal(Path(out), run, found, newcomer)
        return found

    def theory(
        self,
        *,
        samples: int | None = None,
        dtype: Literal["float64", "float32"] = "float64",
        seed: int = 0,
        next_round: bool = True,
        real_round: bool = False,
        memory: int | None = None,
        out: Path | str | None = None,
        data_dir: Path | str | None = None,
        clients: Sequence[ClientData] | None = None,
    ) -> NetworkStudy:
        """The tangent kernels of this run's own networks, at the start and at every kept checkpoint.

        Eigenvalues, effective rank and alignment with the labels of each model and client, verdicts on the orderings
        O1-O4, and how far the kernel predicts a round. Batch norm is in evaluation mode throughout.

        Args:
            samples: Training samples of each client, drawn at random; without it as many as are quick.
            dtype: float64 or float32; in float32 small eigenvalues are rounding.
            seed: Of the choice of samples.
            next_round: Whether to make a round with the networks, beside the one that the kernel predicts.
            real_round: Whether to make the run's own next round from every checkpoint too, on all its data, beside the
                one that the kernel predicts for its batches. It takes as long as a few rounds of training each.
            memory: Bytes for the kernels; without it most of what is free. What does not fit is refused.
            out: Write report.html, report.json and figures into this folder.
            data_dir: The folder of the data sets, if not the usual one.
            clients: The clients of a run on data of your own, which its folder does not hold.
        """
        from fedtrain.inference.kernel_study import KernelStudyOptions, find_checkpoints, study_run

        options = KernelStudyOptions(samples, dtype, seed, next_round, memory, real_round)
        find_checkpoints(self.folder)  # refused before the data are read
        data = self._load_data(data_dir, clients)
        if out is None:
            return study_run(self.folder, data, options, self._device, self._build_model)
        from theory.report.folder import reserve_folder
        from theory.report.network_page import write_network_report

        with reserve_folder(Path(out)) as folder:  # refused before the work
            study = study_run(self.folder, data, options, self._device, self._build_model)
            write_network_report(folder, study)
        return study

    def _get_result(self, rule: str | None) -> tuple[str, RuleResult]:
        """By the rule, or by the one that the run reports by."""
        record = self.record
        chosen = record.reporting_rule if rule is None else rule
        if chosen not in record.rules:
            raise InputError(f"this run has no result by rule {chosen!r}; {suggest_name(chosen, record.rules)}")
        return chosen, record.rules[chosen]

    def _load_data(self, data_dir: Path | str | None, clients: Sequence[ClientData] | None) -> Federation:
        """The data that this run was trained with; others are refused."""
        if clients is None:
            return load_run_data(self.trained, None if data_dir is None else Path(data_dir))
        data = build_own_federation(clients, self.manifest["data"]["classes"])
        check_run_data(self.trained, data)
        return data

    def __repr__(self) -> str:
        state = "finished" if self.folder.is_finished else f"{self.folder.read_last_saved_round()} rounds saved"
        return f"<Run {self.path}: {self.config.method.title} on {self.manifest['data']['title']}, {state}>"

    def _repr_html_(self) -> str:
        try:
            return self.accuracy()._repr_html_()
        except InputError:
            return f"<p>{escape(repr(self))}</p>"


def load_run(
    path: Path | str,
    *,
    device: str | None = None,
    model: str | ModelBuilder | None = None,
    method: str | AnyMethod | type[AnyMethod] | None = None,
    aggregator: str | type[Aggregator] | None = None,
    optimizer: str | type[Optimizer] | None = None,
    dataset: str | None = None,
) -> Run:
    """Open a run folder. A folder never makes fedtrain load code: give again what was your own when it was trained.

    Args:
        path: The folder.
        device: Where to load the models, if not where the run had them.
        model: The class or function that builds the network, or a reference to it, if it was one of your own.
        method: The method, its class or a reference to it, if it was one of your own.
        aggregator: The class of the aggregator or a reference to it, if it was one of your own.
        optimizer: The class of the optimiser or a reference to it, if it was one of your own.
        dataset: A reference to the function that gave the data, if they came from one of your own.
    """
    given = {"model": model, "method": method, "aggregator": aggregator, "optimizer": optimizer, "dataset": dataset}
    load_named(**{kind: name for kind, name in given.items() if isinstance(name, str)})
    if method is not None and not isinstance(method, str):
        name_method(method)
    if isinstance(aggregator, type):
        get_aggregator_name(aggregator)
    if isinstance(optimizer, type):
        get_optimizer_name(optimizer)
    return Run(path, device=device, build_model=None if isinstance(model, str) else model)


def evaluate(run: Run | Path | str, split: Split = "test", **how: Any) -> list[MetricRow]:
    """Evaluate a run's last checkpoint again.

    Args:
        run: A run, or its folder.
        split: train, val or test.
        how: As for `Run.evaluate`.
    """
    return as_run(run).evaluate(split, **how)


def as_run(run: Run | Path | str) -> Run:
    """A run, from its folder if need be."""
    return run if isinstance(run, Run) else Run(run)
