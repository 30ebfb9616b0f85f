"""How ``fedco2 train`` shows a plan and the results of a run."""

from __future__ import annotations

import json
import shlex
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from cli.options import CODE_NAMES
from cli.score_table import show_metrics
from fedtrain.analysis.cost import estimate_round_seconds
from fedtrain.analysis.model_summary import foretell_run
from fedtrain.config.references import find_extensions
from fedtrain.config.schema import format_config, serialize_config
from fedtrain.extensions.references import is_reference
from fedtrain.inference.adapt import load_held_out
from fedtrain.report.formatting import format_percent
from fedtrain.report.progress_view import MAX_CLIENT_COLUMNS, show_header
from fedtrain.run import Run
from fedtrain.runs.json_types import RuleResult, RunSummary
from fedtrain.runs.selection import RULE_DESCRIPTIONS
from fedtrain.training import TrainingPlan
from fedtrain.utils.terminal import print_paragraph
from fedtrain.utils.text import format_bytes, format_count, format_duration

FEW_ROUNDS = 30
"""With fewer, a comparison of methods says little; the paper trains for 300 and more."""
NEAR_CHANCE = 2.0
"""Accuracies up to so many times that of guessing are close to it."""


def show_plan(screen: Console, training: TrainingPlan, as_json: bool, show_config: bool) -> None:
    """First time and bytes, then what is trained on what, and every setting if wanted; nothing is trained."""
    experiment, parts, config = training.experiment, training.model_summary, training.config
    if as_json:
        traffic = {"up": parts.traffic.up.total, "down": parts.traffic.down.total}
        numbers = {name: getattr(parts, name).numbers for name in ("shared", "personal", "published")}
        result: dict[str, Any] = {"config": serialize_config(config), "title": experiment.federation.title}
        result |= {"standin": experiment.federation.standin, "numbers": numbers, "bytes": traffic}
        screen.file.write(json.dumps({**result, "seconds": training.seconds}) + "\n")
        return
    seconds, evaluation = estimate_round_seconds(experiment)
    cost = foretell_run(parts.traffic, config.server, training.client_turns // config.server.rounds)
    up, down = cost.up.total, cost.down.total
    print_paragraph(
        screen,
        f"roughly {format_duration(training.seconds)} in all: {format_duration(seconds)} a round, "
        f"{format_duration(evaluation)} an evaluation; {format_bytes(up)} up, {format_bytes(down)} down",
        "bold",
    )
    way = "" if show_config else "; --show-config lists every setting"
    print_paragraph(screen, f"dry run: nothing is trained, nothing is written{way}")
    screen.print()
    show_header(screen, experiment, parts)
    if show_config:
        screen.print()
        screen.print(format_config(config), soft_wrap=True)


def show_summary(screen: Console, run: Run) -> None:
    """The table of results under the rule that is reported, the other rules in a line each, and what to do next."""
    summary, folder = run.summary, run.path
    if not summary["rules"]:
        screen.print("No evaluation was complete: in none did all clients answer, so there is no result.", style="bold")
        print_paragraph(screen, f"Written to {folder}: summary.json says who was left out of which round")
        return
    rule = summary["report"]
    best = summary["rules"][rule]
    screen.print()
    print_paragraph(screen, f"Test accuracy in %, {summary['title']}, {describe_rule(rule, summary)}", "bold")
    screen.print(build_result_table(best))
    if "metrics" in best:
        show_metrics(screen, best["metrics"])
    for other, results in summary["rules"].items():
        if other != rule:
            mean = format_percent(results["mean"]["fused"])
            print_paragraph(screen, f"{describe_rule(other, summary)}: mean {mean}")
    if held_out := load_held_out(folder):
        before, after = (format_percent(held_out[when]["accuracy"]) for when in ("before", "after"))
        print_paragraph(
            screen,
            f"{held_out['client']}, held out: {before} as it is, {after} with batch-norm statistics of its own inputs "
            f"({held_out['test_samples']} test samples)",
            "bold",
        )
    up, down = summary["bytes"]["up"]["total"], summary["bytes"]["down"]["total"]
    screen.print(
        f"{format_count(summary['rounds'], 'round')} in {format_duration(summary['seconds'])}; "
        f"{format_bytes(up)} up, {format_bytes(down)} down"
    )
    if summary["skipped"]:
        clients = ", ".join(sorted({one["client"] for one in summary["skipped"]}))
        count = len(summary["skipped"])
        print_paragraph(screen, f"left out of a round {count} times: {clients} (why: summary.json)", "bold yellow")
    for note in summary["notes"]:
        print_paragraph(screen, f"note: {note}", "bold yellow" if summary["standin"] else "yellow")
    for note in list_cautions(best, summary["rounds"], len(run.manifest["data"]["classes"])):
        print_paragraph(screen, f"note: {note}", "yellow")
    print_paragraph(screen, f"Written to {folder}: summary.json, metrics.jsonl, figures/accuracy.png, ...")
    place, client = shlex.quote(str(folder)), shlex.quote(run.clients[0])
    print_paragraph(screen, f"next: fedco2 report {place}")
    code = name_code_again(run)
    if what := name_predicted(run):
        print_paragraph(screen, f"      fedco2 predict {place} --client {client}{code} {what}")
    if held_out:
        print_paragraph(screen, f"      fedco2 adapt {place} --shots 20{code}")


def name_predicted(run: Run) -> str | None:
    """What files ``fedco2 predict`` takes for this run; arrays that are no images are in no file that it reads."""
    data = run.manifest["data"]
    if "table" in data:
        return "TABLE.csv"
    shape, kind = data.get("input_shape", [3, 28, 28]), data.get("input_type", "torch.uint8")  # said of own data alone
    return "IMAGE" if len(shape) == 3 and kind == "torch.uint8" else None


def name_code_again(run: Run) -> str:
    """The options that name code of the user's own, for what opens the run: its folder makes nobody load code."""
    mine = [one for one in find_extensions(run.config) if one.kind in CODE_NAMES and is_reference(one.name)]
    return "".join(f" --{one.kind} {shlex.quote(one.reference)}" for one in mine)


def describe_rule(rule: str, summary: RunSummary) -> str:
    """When the accuracies of a rule were measured, in words."""
    result, rounds = summary["rules"][rule], summary["rounds"]
    if rule == "last" and result["round"] < rounds:  # of a later one somebody's scores did not come
        return f"after round {result['round']} of {rounds}, the last in which all clients were evaluated"
    if rule == "window":
        covered = result["rounds"]
        return f"mean over {format_count(len(covered), 'evaluation')} of rounds {covered[0]} to {covered[-1]}"
    return RULE_DESCRIPTIONS[rule]


def build_result_table(result: RuleResult) -> Table:
    """A row for each client, if they are not too many, and the statistics over clients."""
    branches, clients = list(result["mean"]), result["clients"]
    heads = ["accuracy"] if branches == ["fused"] else branches  # a method with one model has nothing to fuse
    table = Table("client", *heads, box=box.SIMPLE_HEAD)
    if len(clients) <= 2 * MAX_CLIENT_COLUMNS:
        for name, values in clients.items():
            table.add_row(name, *(format_percent(values[branch]) for branch in branches))
        table.add_section()
    statistics = {
        "mean": result["mean"],
        "worst": result["worst"],
        "std over clients (ddof 0)": result["std"],
        "over all test samples": result["micro"],
    }
    for label, values in statistics.items():
        table.add_row(label, *(format_percent(values[branch]) for branch in branches), style="bold" * (label == "mean"))
    return table


def list_cautions(result: RuleResult, rounds: int, classes: int) -> list[str]:
    """What to think of before believing the table."""
    mean, notes = result["mean"], []
    rival = max((branch for branch in mean if branch != "fused"), key=mean.__getitem__, default="fused")
    if mean["fused"] < mean[rival]:
        notes.append(
            f"the {rival} model alone ({format_percent(mean[rival])}) is ahead of the fused prediction "
            f"({format_percent(mean['fused'])}): a sum can lose to the better model while the other is young; train "
            "longer, or let each client choose on validation data: method.fusion = weighted"
        )
    if mean["fused"] < NEAR_CHANCE / classes:
        notes.append(
            f"this is close to guessing ({format_percent(1 / classes)}): lower --lr if the loss rose, or train longer"
        )
    elif rounds < FEW_ROUNDS:
        notes.append(f"{format_count(rounds, 'round')} decide little: methods still change places after so few")
    return notes
