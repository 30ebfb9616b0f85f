"""How ``fedco2 train`` shows what it does: a header, a line a round, a table at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from cli.theory.view import format_duration
from fedtrain.analysis.cost import estimate_round_seconds, estimate_seconds_left
from fedtrain.analysis.model_summary import EntrySummary, ModelSummary, summarise_model
from fedtrain.config.data import SETTINGS_OF_SKEW
from fedtrain.config.schema import format_config, serialize_config
from fedtrain.federated.communication import CommunicationCost
from fedtrain.federated.server import Scores
from fedtrain.report.formatting import format_percent
from fedtrain.runs.experiment import DTYPES, Experiment
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.loop import RoundProgress as RoundProgress
from fedtrain.runs.manifest import get_version
from fedtrain.runs.selection import RULE_DESCRIPTIONS

MAX_CLIENT_COLUMNS = 8
"""Up to so many clients have a column each."""


def format_bytes(count: float) -> str:
    """Bytes as people say them."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def show_header(screen: Console, work: Experiment, parts: ModelSummary) -> None:
    """What is about to happen, and on what."""
    config, data = work.config, work.federation
    screen.print(f"{config.method.title} on {data.title}", style="bold")
    for note in data.notes:
        loud = data.standin and "stand-in" in note
        screen.print(f"{'STAND-IN DATA' if loud else 'note'}: {note}", style="bold yellow" * loud, soft_wrap=True)
    skew = config.data.skew + (
        f" (alpha {config.data.alpha:g})" if "alpha" in SETTINGS_OF_SKEW[config.data.skew] else ""
    )
    sizes = [len(client.train) for client in data.clients]
    screen.print(f"clients   {len(sizes)}, skew {skew}, {format_range(sizes)} training images each")
    if len(sizes) <= MAX_CLIENT_COLUMNS:
        for client in data.clients:
            val = f" + {len(client.val)} val" if client.val else ""
            screen.print(f"          {client.name:<12} {len(client.train)} train{val}, {len(client.test)} test")
    screen.print(f"network   {config.model.name}: {format_parameter_split(parts)}", soft_wrap=True)
    screen.print(f"a round   {format_traffic(parts.traffic)} for each client", soft_wrap=True)
    screen.print(
        f"training  {format_count(config.server.rounds, 'round')} of "
        f"{format_count(config.local.epochs, 'local epoch')}, batch {config.local.batch_size}, "
        f"lr {config.local.lr:g}, momentum {config.local.momentum:g}, "
        f"{config.server.weights} weights, {100 * config.server.participation:g} % of the clients a round",
        soft_wrap=True,
    )
    screen.print(
        f"seeds     {config.seed}, data {config.data.seed}; device {config.machine.resolve_device()}, "
        f"{format_count(config.machine.threads or 1, 'thread')}; fedco2 {get_version()}",
        soft_wrap=True,
    )
    screen.print()


def format_count(number: int, what: str) -> str:
    """1 round, 2 rounds."""
    return f"{number} {what}{'s' * (number != 1)}"


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


def format_traffic(ledger: CommunicationCost) -> str:
    """Up and down."""
    return f"{format_bytes(ledger.up.total)} up, {format_bytes(ledger.down.total)} down"


class TrainingView:
    """Looks on while rounds are made."""

    def __init__(self, screen: Console, work: Experiment, folder: RunFolder, quiet: bool) -> None:
        self.screen, self.work, self.folder, self.quiet = screen, work, folder, quiet
        self.live = screen.is_terminal and not quiet
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=screen,
            transient=True,
            disable=not self.live,
        )
        rounds = work.config.server.rounds
        self.rounds_done = folder.read_last_saved_round()
        self.task = self.bar.add_task("training", total=rounds, completed=self.rounds_done)
        self.first_loss: float | None = None
        self.times: list[float] = []

    def __enter__(self) -> TrainingView:
        if not self.quiet:
            show_header(self.screen, self.work, summarise_experiment(self.work))
            seconds = estimate_seconds_left(self.work.config, estimate_round_seconds(self.work), self.rounds_done)
            self.screen.print(
                f"this will take roughly {format_duration(seconds)} (or half or twice that); Ctrl-C is safe"
            )
            self.screen.print()
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def __call__(self, progress: RoundProgress) -> None:
        """One line a round."""
        if self.quiet:
            return
        rounds = self.work.config.server.rounds
        self.times.append(progress.seconds)
        left = (rounds - progress.round) * fmean(self.times[-20:])
        loss = fmean(progress.losses.values())
        line = f"round {progress.round:>{len(str(rounds))}}/{rounds}  loss {loss:.3f}"
        if progress.scores:
            line += "  " + format_scores(progress.scores)
        line += f"  {format_bytes(progress.communication.up.total)} up  {progress.seconds:.1f} s"
        line += "" if self.live or progress.round == rounds else f"  left {format_duration(left)}"
        self.screen.print(line, soft_wrap=True)
        for failure in progress.failures:
            self.screen.print(f"  left out: {failure.reason}", style="bold yellow", soft_wrap=True)
        self.first_loss = loss if self.first_loss is None else self.first_loss
        if progress.round == rounds and loss > self.first_loss:
            warning = f"the training loss rose from {self.first_loss:.3g} to {loss:.3g}: local.lr may be too large"
            self.screen.print(f"note: {warning}", style="bold yellow", soft_wrap=True)
        self.bar.update(self.task, completed=progress.round)


def format_scores(scores: Mapping[str, Scores]) -> str:
    """Mean and worst test accuracy, validation, and each client's if they are few."""
    test = {name: splits["test"]["fused"].accuracy for name, splits in scores.items() if "test" in splits}
    val = [splits["val"]["fused"].accuracy for splits in scores.values() if "val" in splits]
    line = f"val {format_percent(fmean(val))}" if val else ""
    if not test:
        return line
    line += (
        "  " * bool(val) + f"test {format_percent(fmean(test.values()))} (worst {format_percent(min(test.values()))})"
    )
    if len(test) <= MAX_CLIENT_COLUMNS:
        line += "  " + " ".join(f"{name} {format_percent(value)}" for name, value in test.items())
    return line


def summarise_experiment(work: Experiment) -> ModelSummary:
    """Of the module that this experiment trains."""
    dtype = DTYPES[work.config.machine.dtype]
    clients, peers = len(work.federation.clients), work.config.server.peers
    return summarise_model(work.config.method, work.get_model_builder(), clients, dtype, peers)


def show_plan(screen: Console, work: Experiment, as_json: bool) -> None:
    """All that is decided, the split, the bytes and the time, without training."""
    parts = summarise_experiment(work)
    config, (training, evaluation) = work.config, estimate_round_seconds(work)
    seconds = estimate_seconds_left(config, (training, evaluation))
    if as_json:
        traffic = {"up": parts.traffic.up.total, "down": parts.traffic.down.total}
        numbers = {name: getattr(parts, name).numbers for name in ("shared", "personal", "published")}
        plan = {"config": serialize_config(config), "title": work.federation.title, "standin": work.federation.standin}
        screen.file.write(json.dumps({**plan, "numbers": numbers, "bytes": traffic, "seconds": seconds}) + "\n")
        return
    show_header(screen, work, parts)
    screen.print(format_config(config), soft_wrap=True)
    screen.print(
        f"roughly {format_duration(training)} a round and {format_duration(evaluation)} an evaluation, "
        f"{format_duration(seconds)} in all"
    )
    screen.print("dry run: nothing was trained, nothing was written")


def show_summary(screen: Console, summary: dict[str, Any], folder: Path) -> None:
    """The table of results under the rule that is reported, and the other rules in a line each."""
    if not summary["rules"]:
        screen.print("No evaluation was complete: in none did all clients answer, so there is no result.", style="bold")
        screen.print(f"Written to {folder}: summary.json says who was left out of which round", soft_wrap=True)
        return
    rule = summary["report"]
    best = summary["rules"][rule]
    branches = list(best["mean"])
    screen.print()
    when = RULE_DESCRIPTIONS[rule]
    if rule == "last" and best["round"] < summary["rounds"]:  # of a later one somebody's scores did not come
        when = f"after round {best['round']} of {summary['rounds']}, the last in which all clients were evaluated"
    screen.print(f"Test accuracy in %, {summary['title']}, {when}", style="bold", soft_wrap=True)
    table = Table("client", *branches, box=box.SIMPLE_HEAD)
    clients = best["clients"]
    if len(clients) <= 2 * MAX_CLIENT_COLUMNS:
        for name, values in clients.items():
            table.add_row(name, *(format_percent(values[branch]) for branch in branches))
        table.add_section()
    for kind, label in STATISTIC_LABELS.items():
        table.add_row(
            label, *(format_percent(best[kind][branch]) for branch in branches), style="bold" * (kind == "mean")
        )
    screen.print(table)
    for other, results in summary["rules"].items():
        if other != rule:
            screen.print(f"{RULE_DESCRIPTIONS[other]}: mean {format_percent(results['mean']['fused'])}")
    up, down = summary["bytes"]["up"]["total"], summary["bytes"]["down"]["total"]
    screen.print(
        f"{format_count(summary['rounds'], 'round')} in {format_duration(summary['seconds'])}; "
        f"{format_bytes(up)} up, {format_bytes(down)} down"
    )
    if summary["skipped"]:
        clients = ", ".join(sorted({one["client"] for one in summary["skipped"]}))
        count = len(summary["skipped"])
        screen.print(f"left out of a round {count} times: {clients} (why: summary.json)", style="bold yellow")
    for note in summary["notes"]:
        screen.print(f"note: {note}", style="bold yellow" if summary["standin"] else "yellow", soft_wrap=True)
    screen.print(f"Written to {folder}: summary.json, metrics.jsonl, figures/accuracy.png, ...", soft_wrap=True)


STATISTIC_LABELS = {
    "mean": "mean",
    "worst": "worst",
    "std": "std over clients (ddof 0)",
    "micro": "over all test images",
}
