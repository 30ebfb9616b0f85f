"""``fedco2 data clients``: who would hold what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli.options import add_partition_options
from fedtrain.registry import DATASET_NAMES


@click.command(
    "clients",
    short_help="Who holds how much of which class.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--dataset", required=True, metavar="NAME|PATH", help=f"{', '.join(DATASET_NAMES)}, or your own (a folder, a name)."
)
@add_partition_options("published class counts or the stand-in")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.png", help="Draw the training images.")
def clients_command(**options: Any) -> None:
    """Show how a skew spreads a data set over clients: images of each class, client by client.

    No image is needed for CIFAR-10 and CIFAR-100, whose class sizes are known.

    \b
    Examples:
      fedco2 data clients --dataset cifar10 --skew dirichlet --alpha 0.3
      fedco2 data clients --dataset cifar100 --plot pachinko.png
      fedco2 data clients --dataset office --skew label+feature --json
    """
    from cli.data.clients.run import run_clients

    run_clients(options)
