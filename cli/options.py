"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

SKEWS = ("domain", "label+feature", "iid", "pathological", "dirichlet", "pachinko")
PARTITION_OPTIONS = (
    click.option("--skew", type=click.Choice(SKEWS), help="How clients differ.  [default: the data set's]"),
    click.option("--clients", type=int, help="How many.  [default: 100, or one a domain]"),
    click.option(
        "--alpha", type=float, help="Dirichlet concentration; smaller is more skewed.  [default: the paper's]"
    ),
    click.option("--beta", type=float, help="Pachinko: concentration of the fine classes.  [default: 10]"),
    click.option("--classes-per-client", type=int, help="Pathological.  [default: 2 of 10, 10 of 100]"),
    click.option("--divide", type=int, help="Label + feature: parts of a domain, one is kept.  [default: the paper's]"),
    click.option("--percent", type=float, help="Domain: the share of the training images, 0.1 being ten per cent."),
    click.option("--train-size", type=int, help="Domain: training images of a client.  [default: the paper's]"),
    click.option(
        "--least", type=int, help="Dirichlet: the fewest training and test images a client gets.  [default: 10]"
    ),
    click.option("--data-seed", "seed", type=int, help="Of the partition.  [default: the preset's]"),
)


def add_partition_options(source: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Which clients a data set makes; ``source`` says what stands for real data that are not there."""
    data = click.option(
        "--data",
        "source",
        type=click.Choice(["auto", "real", "standin"]),
        default="auto",
        show_default=True,
        help=f"Real data if there, else {source}; only real ones; only the stand-in.",
    )
    folder = click.option(
        "--data-dir", type=click.Path(path_type=Path), help="Folder of the data.  [default: $FEDCO2_DATA]"
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed((*PARTITION_OPTIONS, data, folder)):
            command = option(command)
        return command

    return decorate


def is_given(ctx: click.Context, name: str) -> bool:
    """Whether the command line says it, and not the default."""
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
