"""The terminal view of a run: a header, a line for each round, and a bar with the time left."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from statistics import fmean

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedtrain.aggregators.mean import Mean
from fedtrain.analysis.cost import NO_ENGINE_COST, EngineCost, estimate_round_seconds, estimate_seconds_left
from fedtrain.analysis.model_summary import EntrySummary, ModelSummary, summarise_experiment
from fedtrain.config.data import SETTINGS_OF_SKEW
from fedtrain.config.local import LocalSettings
from fedtrain.config.schema import Config
from fedtrain.federated.communication import CommunicationCost
from fedtrain.federated.messages import Scores
from fedtrain.report.formatting import format_percent
from fedtrain.report.records import FUSED
from fedtrain.runs.callbacks import Callback, RoundProgress, RunStart
from fedtrain.runs.experiment import Experiment
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.json_types import RunSummary
from fedtrain.runs.manifest import get_version
from fedtrain.utils.terminal import print_paragraph
from fedtrain.utils.text import format_bytes, format_count, format_duration

MAX_CLIENT_COLUMNS = 8
"""Up to so many clients are shown one by one."""
RECENT_ROUNDS = 20
"""Rounds from which the time left is estimated."""
TINY_BATCH = 3
"""Samples: the variance of so few says next to nothing."""
DIVERGED = 4.0
"""Times the loss of guessing: a test loss beyond is no sign of overfitting, but of a run that blew up."""


class ProgressView(Callback):
    """Prints what happens; on a terminal with a bar, elsewhere in plain lines.

    ``engine`` is what the place where clients train adds to the time that the run will take.
    """

    def __init__(self, screen: Console | None = None, engine: EngineCost = NO_ENGINE_COST) -> None:
        self.engine = engine
        self.screen = screen or Console(markup=False, highlight=False, emoji=False)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.screen,
            transient=True,
            disable=not self.screen.is_terminal,
        )
        self.first_loss: float | None = None
        self.guessing_loss = float("inf")
        self.seconds: list[float] = []

    def on_run_start(self, start: RunStart) -> None:
        """Show the header and start the bar."""
        experiment, self.rounds = start.experiment, start.experiment.config.server.rounds
        self.guessing_loss = log(len(experiment.federation.classes))
        summary = summarise_experiment(experiment)
        show_header(self.screen, experiment, summary)
        left = estimate_seconds_left(experiment.config, estimate_round_seconds(experiment), start.rounds_done)
        senders = experiment.config.server.participation * len(experiment.federation.clients)
        sent = senders * (summary.traffic.up.total + summary.traffic.down.total)
        left += self.engine.estimate_seconds(self.rounds - start.rounds_done, sent)
        self.print(f"this will take roughly {format_duration(max(left, 1))} (or half or twice that); Ctrl-C is safe")
        self.screen.print()
        self.task = self.bar.add_task("training", total=self.rounds, completed=start.rounds_done)
        self.bar.start()

    def on_round_end(self, progress: RoundProgress) -> None:
        """Print one line."""
        self.seconds.append(progress.seconds)
        left = (self.rounds - progress.round) * fmean(self.seconds[-RECENT_ROUNDS:])
        loss = fmean(progress.losses.values())
        line = f"round {progress.round:>{len(str(self.rounds))}}/{self.rounds}  loss {loss:.3f}"
        if progress.scores:
            line += f"  {format_scores(progress.scores)}"
        end = f"  {format_bytes(progress.communication.up.total)} up  {progress.seconds:.1f} s"
        if not self.screen.is_terminal and progress.round < self.rounds:
            end += f"  left {format_duration(max(left, 1))}"
        each = f"  {format_client_scores(progress.scores)}"
        fits = not self.screen.is_terminal or len(line + each + end) <= self.screen.width
        self.print(line + each.rstrip() * fits + end)
        for failure in progress.failures:
            self.print(f"  left out: {failure.reason}", style="bold yellow")
        self.first_loss = loss if self.first_loss is None else self.first_loss
        if progress.round == self.rounds and (sign := self._find_divergence(loss, progress.scores)):
            self.print(f"note: {sign}", style="bold yellow")
        self.bar.update(self.task, completed=progress.round)

    def _find_divergence(self, loss: float, scores: Mapping[str, Scores]) -> str | None:
        """Why this looks like a step too long: the loss rose, or predictions are far worse than guessing."""
        if self.first_loss is not None and loss > self.first_loss:
            return f"the training loss rose from {self.first_loss:.3g} to {loss:.3g}: local.lr may be too large"
        tested = [splits["test"][FUSED].loss for splits in scores.values() if "test" in splits]
        if tested and (mean := fmean(tested)) > DIVERGED * self.guessing_loss:
            return (
                f"the test loss is {mean:.3g}, and that of guessing {self.guessing_loss:.3g}: local.lr may be too "
                "large, or batch-norm statistics are not those of the client"
            )
        return None

    def on_note(self, text: str) -> None:
        """Print it."""
        self.print(f"note: {text}", style="yellow")

    def on_run_end(self, folder: RunFolder, summary: RunSummary) -> None:
        """Take the bar away."""
        self.bar.stop()

    def on_run_stop(self, error: BaseException) -> None:
        """Take the bar away."""
        self.bar.stop()

    def print(self, text: str, style: str = "") -> None:
        """A paragraph."""
        print_paragraph(self.screen, text, style)


def show_header(screen: Console, experiment: Experiment, parts: ModelSummary) -> None:
    """What is about to be trained, and on what."""
    config, data = experiment.config, experiment.federation
    screen.print(f"{config.method.title} on {data.title}", style="bold")
    for note in data.notes:
        loud = data.standin and "stand-in" in note
        print_paragraph(screen, f"{'STAND-IN DATA' if loud else 'note'}: {note}", "bold yellow" * loud)
    if parts.shared.in_norm + parts.personal.in_norm and (found := describe_tiny_batches(experiment)):
        print_paragraph(screen, f"note: {found}", "yellow")
    has_alpha = "alpha" in SETTINGS_OF_SKEW[config.data.skew]
    skew = config.data.skew + (f" (alpha {config.data.alpha:g})" if has_alpha else "")
    sizes = [len(client.train) for client in data.clients]
    lines = {"clients": f"{len(sizes)}, skew {skew}, {format_range(sizes)} training samples each"}
    if len(sizes) <= MAX_CLIENT_COLUMNS:
        width = max(len(client.name) for client in data.clients)
        for client in data.clients:
            val = f" + {len(client.val)} val" if client.val else ""
            lines["clients"] += f"\n{client.name:<{width}}  {len(client.train)} train{val}, {len(client.test)} test"
    lines["network"] = f"{config.model.name}: {format_parameter_split(parts)}"
    lines["a round"] = f"{format_traffic(parts.traffic)} for each client"
    lines["training"] = (
        f"{format_count(config.server.rounds, 'round')} of {format_count(config.local.epochs, 'local epoch')}, "
        f"batch {config.local.batch_size}, {describe_optimizer(config.local)}, "
        f"{describe_aggregation(config)}, {100 * config.server.participation:g} % of the clients a round"
    )
    lines["seeds"] = (
        f"{config.seed}, data {config.data.seed}; device {config.machine.resolve_device()}, "
        f"{format_count(config.machine.threads or 1, 'thread')}; fedco2 {get_version()}"
    )
    show_fields(screen, lines)
    screen.print()


def describe_tiny_batches(experiment: Experiment) -> str | None:
    """Whose last batches are so small that the statistics of batch norm jump; None if nobody's, or if all are small."""
    local, clients = experiment.config.local, experiment.federation.clients
    names = [client.name for client in clients if 1 < local.count_last_batch(len(client.train)) <= TINY_BATCH]
    if not names or local.batch_size <= 2 * TINY_BATCH:
        return None
    few = ", ".join(names[:3]) + f" and {len(names) - 3} more" * (len(names) > 3)
    return (
        f"a last batch of {TINY_BATCH} samples or fewer at {few}: batch norm takes its statistics from them, and "
        "accuracies can jump from round to round; leave such batches out with local.last_batch=drop"
    )


def describe_optimizer(local: LocalSettings) -> str:
    """With which steps clients train."""
    name = "" if local.uses_sgd else f"{local.optimizer}, "
    schedule = "" if local.lr_schedule == "constant" else f" ({local.lr_schedule})"
    momentum = f", momentum {local.momentum:g}" if local.uses_sgd or local.momentum else ""
    return f"{name}lr {local.lr:g}{schedule}{momentum}"


def describe_aggregation(config: Config) -> str:
    """How the server makes one model of many."""
    weights = f"{config.server.weights} weights"
    return weights if config.aggregator == Mean() else f"{config.aggregator.title}, {weights}"


def show_fields(screen: Console, lines: Mapping[str, str]) -> None:
    """Names on the left, what they mean on the right, broken between words and kept in its column."""
    from rich.table import Table

    if not screen.is_terminal:
        for name, text in lines.items():
            screen.print(f"{name:<10}" + text.replace("\n", f"\n{'':<10}"), soft_wrap=True)
        return
    table = Table.grid(padding=(0, 0))
    table.add_column(width=10)
    table.add_column()
    for name, text in lines.items():
        table.add_row(name, text)
    screen.print(table)


def format_range(sizes: list[int]) -> str:
    """One number if all are equal."""
    return f"{sizes[0]}" if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)}"


def format_parameter_split(parts: ModelSummary) -> str:
    """Shared, personal and published numbers."""

    def one(name: str, part: EntrySummary) -> str:
        norm = f" ({part.in_norm:,} of them batch norm)" if part.in_norm else ""
        return f"{part.numbers:,} numbers {name}{norm}"

    lines = [one("shared", parts.shared), one("personal", parts.personal)]
    return ", ".join(lines + ([one("published", parts.published)] if parts.published.numbers else []))


def format_traffic(cost: CommunicationCost) -> str:
    """Up and down."""
    return f"{format_bytes(cost.up.total)} up, {format_bytes(cost.down.total)} down"


def format_scores(scores: Mapping[str, Scores]) -> str:
    """Mean and worst test accuracy, and the mean on validation data."""
    test = [splits["test"]["fused"].accuracy for splits in scores.values() if "test" in splits]
    val = [splits["val"]["fused"].accuracy for splits in scores.values() if "val" in splits]
    parts = [f"val {format_percent(fmean(val))}"] if val else []
    if test:
        parts.append(f"test {format_percent(fmean(test))} (worst {format_percent(min(test))})")
    return "  ".join(parts)


def format_client_scores(scores: Mapping[str, Scores]) -> str:
    """Each client's test accuracy, if they are few."""
    test = {name: splits["test"]["fused"].accuracy for name, splits in scores.items() if "test" in splits}
    if len(test) > MAX_CLIENT_COLUMNS:
        return ""
    return " ".join(f"{name} {format_percent(value)}" for name, value in test.items())
