"""``fedco2 forecast``: which method will win, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli.options import add_partition_options, is_given
from fedtrain.registry import DATASET_NAMES

FILE_OPTIONS = {"dataset", "target", "width", "network_seed", "as_json"}
"""Options that mean something to a file of your own."""


@click.command(
    short_help="Which method will win, and whom federation hurts, before training.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--dataset",
    required=True,
    metavar="NAME|FILE.npz",
    help=f"{', '.join(DATASET_NAMES)}; or your own file: arrays X (n, d), y (n), owner (n), as in `fedco2 theory`.",
)
@add_partition_options("the stand-in")
@click.option(
    "--samples", type=click.IntRange(min=4), help="Training samples of each client.  [default: 4,000 of all together]"
)
@click.option(
    "--target",
    type=click.Choice(["auto", "classes", "numbers"]),
    default="auto",
    show_default=True,
    help="Of a file: what y are; auto: classes if they are whole numbers, each there four times on average.",
)
@click.option("--width", type=click.IntRange(min=1), default=2048, show_default=True, help="Hidden units.")
@click.option(
    "--network-seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Of the network, the drawn samples and the folds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.pass_context
def forecast(ctx: click.Context, /, **options: Any) -> None:
    """Foretell from the clients' data which of SingleSet, FedBN and Fed-CO2 generalises best, and on whom.

    What a wide network learns is what kernel regression with its tangent kernel learns. So training samples are
    predicted from each other, in four folds, with the kernel of a two-layer batch-norm network under each method;
    nothing is trained, and test data are not looked at. It says which method is ahead and which clients lose by
    federation, of such networks, trained long enough. How good a deep network will be it does not say, nor whether
    depth changes the order; and Fed-CO2 is here without its knowledge transfer between models and clients.

    \b
    Examples:
      fedco2 forecast --dataset digits
      fedco2 forecast --dataset cifar10 --skew dirichlet --alpha 0.3 --clients 20
      fedco2 forecast --dataset clients.npz --json
    """
    name = options["dataset"]
    is_file = name.endswith(".npz")
    if not is_file and name not in DATASET_NAMES:
        raise click.UsageError(
            f"--dataset {name}: choose one of {', '.join(DATASET_NAMES)}, or name a file that ends in .npz"
        )
    given = {option.name: option.opts[0] for option in ctx.command.params if is_given(ctx, str(option.name))}
    if is_file and (idle := [given[name] for name in given if name not in FILE_OPTIONS]):
        raise click.UsageError(f"{idle[0]} is for a named data set; the file says who holds what")
    if not is_file and "target" in given:
        raise click.UsageError("--target is for a file of your own; the named data sets have classes")
    from cli.forecast.run import run

    run(options | {"path": Path(name) if is_file else None})
