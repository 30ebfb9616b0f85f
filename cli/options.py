"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from fedtrain.extensions.references import ExtensionKind


Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_names(kind: ExtensionKind) -> Completer:
    """Let a shell complete the names of ours and of installed plug-ins, and files for what begins like one."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith((".", "/", "~")):
            return [CompletionItem(incomplete, type="file")]
        from fedtrain.extensions.references import BUILT_IN, list_installed

        names = [*BUILT_IN.get(kind, ()), *list_installed(kind)]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    return complete


CODE_OPTIONS = (
    click.option("--method", shell_complete=complete_names("method"), help="The run's method, if it is code of yours."),
    click.option("--model", shell_complete=complete_names("model"), help="The run's network, if it is code of yours."),
    click.option("--aggregator", shell_complete=complete_names("aggregator"), help="Its aggregator, if it is yours."),
    click.option("--optimizer", shell_complete=complete_names("optimizer"), help="Its optimiser, if it is yours."),
)
CODE_NAMES = ("method", "model", "aggregator", "optimizer")


def add_code_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Code of the user's own that a run needs, for its folder never makes us load any."""
    for option in reversed(CODE_OPTIONS):
        command = option(command)
    return command


def load_code(**names: str | None) -> None:
    """Load what these options name, by kind."""
    from fedtrain.config.references import load_named

    load_named(**names)


if TYPE_CHECKING:
    StringChoice = click.Choice[str]
else:
    StringChoice = click.Choice  # before click 8.2 it takes no subscript


class Choice(StringChoice):
    """One of several words; of another one the nearest is said."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word, or an error that names the way out."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            from theory.text import suggest_name

            self.fail(f"unknown {value!r}; {suggest_name(str(value), self.choices)}", param, ctx)


SKEWS = ("domain", "label+feature", "iid", "pathological", "dirichlet", "pachinko")
FOUND_OPTIONS = (
    click.option("--client-column", metavar="COLUMN", help="Table: the column that says whose a row is."),
    click.option("--target", metavar="COLUMN", help="Table: the column to be predicted."),
    click.option("--split-column", metavar="COLUMN", help="Table: the column that says train or test."),
    click.option("--categories", metavar="COLUMN,...", help="Table: categories although they hold numbers."),
    click.option("--ignore", metavar="COLUMN,...", help="Table: columns to leave out."),
    click.option("--missing", help="Table, missing values: mean, drop or refuse.  [default: mean]"),
    click.option("--image-size", type=int, help="Folder: pixels a side.  [default: the size most have]"),
)
"""How data of one's own are read."""
STANDARDISE_OPTION = click.option(
    "--standardise", help="Numbers, by whose mean: client, pooled or none.  [default: client for tables]"
)


def add_found_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options for data of one's own."""
    for option in reversed((*FOUND_OPTIONS, STANDARDISE_OPTION)):
        command = option(command)
    return command


PARTITION_OPTIONS = (
    click.option("--skew", type=Choice(SKEWS), help="How clients differ.  [default: the data set's]"),
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
    click.option("--data-seed", type=int, help="Of the partition.  [default: the preset's]"),
)


def add_partition_options(source: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Which clients a data set makes; ``source`` says what stands for real data that are not there."""
    data = click.option(
        "--data",
        type=Choice(["auto", "real", "standin"]),
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
