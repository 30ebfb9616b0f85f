"""What ``fedco2 predict`` does once its options are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NotRequired, TypedDict, cast

import click
from rich.cells import cell_len
from rich.console import Console
from torch import Tensor

from cli.console import make_console
from cli.evaluate.run import RunDescription, describe_run, show_heading
from cli.word_table import Column, print_word_table
from fedtrain.inference.personal_file import add_newcomer
from fedtrain.inference.trained_run import TrainedRun, load_trained_run
from fedtrain.inference.unseen_client import ENOUGH_IMAGES, POLICY, UNSEEN_CLIENT, build_unseen_client, choose_branch
from fedtrain.utils.terminal import get_table_width
from theory.errors import InputError
from theory.text import suggest_name

CLASS_COLUMNS = 30
"""Room for a class and its probability; what is left of a line is the image's."""


Guess = TypedDict("Guess", {"class": str, "probability": float})


class InputPrediction(TypedDict):
    """What is said of an image or a row: the likeliest classes first."""

    image: str
    top: list[Guess]


class PredictionReport(RunDescription):
    """What ``fedco2 predict`` found."""

    client: str | None
    policy: NotRequired[str]
    """For a client that was never seen."""
    branch: str
    predictions: list[InputPrediction]


def run_predict(
    folder: Path,
    paths: Sequence[Path],
    client: str | None,
    newcomer: Path | None,
    branch: str | None,
    top: int,
    device: str | None,
    as_json: bool,
) -> None:
    """Open, read, predict, show."""
    run = load_trained_run(folder, device)
    if newcomer is not None:
        run, client, its_branch = add_newcomer(run, newcomer)
        branch = branch or its_branch
    if client is None:
        choose_branch(run)  # refused before files are read
    else:
        run.get_client(client)
    given = run.read_inputs(paths, client)
    if client is None:
        used, logits, notes = predict_unseen_client(run, given.inputs)
    else:
        used, logits, notes = predict_known_client(run, client, branch or "fused", given.inputs)
    ranked = rank_classes(logits, given.names, run.federation.classes, top)
    told = {**describe_run(run), "client": client, "branch": used, "predictions": ranked}
    report = cast(PredictionReport, told)
    report["notes"] += notes
    if client is None:
        report["policy"] = POLICY
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        show_predictions(make_console(), report)


def predict_known_client(run: TrainedRun, name: str, branch: str, inputs: Tensor) -> tuple[str, Tensor, list[str]]:
    """The branch used, its logits, and what to note."""
    noise = run.get_client(name).noise
    notes = [f"{name} was trained with noise of {noise:g} on its images; none is added here"] if noise else []
    logits = run.compute_logits(name, inputs)
    if branch not in logits:
        raise InputError(f"{run.config.method.title} has no branch {branch!r}; {suggest_name(branch, logits)}")
    return branch, logits[branch], notes


def predict_unseen_client(run: TrainedRun, inputs: Tensor) -> tuple[str, Tensor, list[str]]:
    """The same by the policy for a client that was never seen."""
    new = build_unseen_client(run, inputs)
    logits = run.compute_logits_with(new.data, new.personal, inputs)[new.branch]
    notes = []
    if new.has_estimated_statistics:
        what = "images" if inputs.ndim == 4 else "rows"
        rough = f"; rough with fewer than {ENOUGH_IMAGES}: give more" if len(inputs) < ENOUGH_IMAGES else ""
        notes = [f"batch-norm statistics are those of these {len(inputs)} {what}{rough}"]
    return new.branch, logits, notes


def rank_classes(logits: Tensor, names: Sequence[str], classes: Sequence[str], top: int) -> list[InputPrediction]:
    """The likeliest classes of each image or row."""
    chances, places = logits.double().softmax(-1).cpu().topk(min(top, len(classes)))
    return [
        {
            "image": name,
            "top": [{"class": classes[k], "probability": p} for p, k in zip(mine, ours, strict=True)],
        }
        for name, mine, ours in zip(names, chances.tolist(), places.tolist(), strict=True)
    ]


def show_predictions(screen: Console, report: PredictionReport) -> None:
    """A row an image."""
    whose = f"model of {report['client']}" if report["client"] else f"for {UNSEEN_CLIENT} ({POLICY})"
    show_heading(screen, report, f"{whose}, branch {report['branch']}")
    screen.print()
    width, longest = get_table_width(screen), max(cell_len(one["image"]) for one in report["predictions"])
    if width is not None and longest > width - CLASS_COLUMNS:
        show_blocks(screen, report["predictions"])
        return
    rows = [
        ("" if place else one["image"], guess["class"], f"{100 * guess['probability']:.1f}")
        for one in report["predictions"]
        for place, guess in enumerate(one["top"])
    ]
    print_word_table(
        screen, [Column("image", whole=True), Column("class", whole=True), Column("%", numeric=True)], rows
    )


def show_blocks(screen: Console, predictions: Sequence[InputPrediction]) -> None:
    """The same where names of files are too long to stand beside anything."""
    for one in predictions:
        screen.print(one["image"], soft_wrap=True)
        for guess in one["top"]:
            screen.print(f"  {100 * guess['probability']:5.1f} %  {guess['class']}", soft_wrap=True)
