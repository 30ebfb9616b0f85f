"""``fedco2 forecast``: which method will win, before anything is trained."""

from __future__ import annotations

from typing import Any

import click

from cli.options import Choice, add_partition_options, is_given
from fedtrain.registry import DATASET_NAMES, METHOD_CLASSES, MODEL_NAMES


def split_methods(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """The names between the commas, each of them a method."""
    if value is None:
        return None
    names = tuple(name.strip() for name in value.split(","))
    for name in names:
        if name not in METHOD_CLASSES:
            raise click.BadParameter(f"{name!r} is no method; choose from {', '.join(METHOD_CLASSES)}")
    return names


@click.command(
    short_help="Which method will win, and whom federation hurts, before training.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--dataset",
    required=True,
    metavar="NAME|PATH",
    help=f"{', '.join(DATASET_NAMES)}; a folder of images, a data set that you added; "
    "or arrays X (n, d), y (n), owner (n), as in `fedco2 theory`.",
)
@add_partition_options("the stand-in")
@click.option(
    "--samples",
    type=click.IntRange(min=4),
    help="Training samples of each client.  [default: 4,000 of all together; with --network 500]",
)
@click.option(
    "--network",
    type=Choice(MODEL_NAMES),
    help="The kernel of this network, as training would begin.  [default: the paper's two-layer network]",
)
@click.option(
    "--methods",
    metavar="A,B,..",
    callback=split_methods,
    help="With --network: of which methods.  [default: singleset,fedavg,fedper,fedbn,fedco2]",
)
@click.option(
    "--shared",
    metavar="NAME=ENTRY,..",
    multiple=True,
    help="With --network: also a method that averages these entries of the network, * being any; can be repeated.",
)
@click.option(
    "--target",
    type=Choice(["auto", "classes", "numbers"]),
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
    predicted from each other, in four folds, with the kernel of a two-layer batch-norm network under each method, or
    with --network that of the network that would be trained, at its initial weights; nothing is trained, and test data
    are not looked at. It says which method is ahead and which clients lose by federation, of such networks, trained
    long enough. How good a deep network will be it does not say; and Fed-CO2 is here without its knowledge transfer
    between models and clients.

    \b
    Examples:
      fedco2 forecast --dataset digits
      fedco2 forecast --dataset digits --network digits --samples 40
      fedco2 forecast --dataset digits --network digits --shared "last=head.*"
      fedco2 forecast --dataset cifar10 --skew dirichlet --alpha 0.3 --clients 20
      fedco2 forecast --dataset clients.npz --json
    """
    from cli.forecast.run import run_forecast

    given = {name: value for name, value in options.items() if is_given(ctx, name)}
    run_forecast({name: value for name, value in given.items() if name != "as_json"}, options["as_json"])
