"""``fedco2 data clients``: who would hold what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

DATASETS = ("digits", "office", "domainnet", "cifar10", "cifar100")
SKEWS = ("domain", "label+feature", "iid", "pathological", "dirichlet", "pachinko")


@click.command(
    short_help="Who holds how much of which class.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--dataset", type=click.Choice(DATASETS), required=True, help="Which data.")
@click.option("--skew", type=click.Choice(SKEWS), help="How clients differ.  [default: the data set's]")
@click.option("--clients", type=int, help="How many.  [default: 100, or one a domain]")
@click.option("--alpha", type=float, help="Dirichlet concentration; smaller is more skewed.  [default: the paper's]")
@click.option("--beta", type=float, help="Pachinko: concentration of the fine classes.  [default: 10]")
@click.option("--classes-per-client", type=int, help="Pathological.  [default: 2 of 10, 10 of 100]")
@click.option("--divide", type=int, help="Label + feature: parts of a domain, one is kept.  [default: the paper's]")
@click.option("--percent", type=float, help="Domain: the share of the training images, 0.1 being ten per cent.")
@click.option("--train-size", type=int, help="Domain: training images of a client.  [default: the paper's]")
@click.option("--least", type=int, help="Dirichlet: the fewest training and test images a client gets.  [default: 10]")
@click.option("--data-seed", "seed", type=int, help="Of the partition.  [default: the preset's]")
@click.option(
    "--data",
    "source",
    type=click.Choice(["auto", "real", "standin"]),
    default="auto",
    show_default=True,
    help="Real data if there, else published class counts or the stand-in; only real ones; only the stand-in.",
)
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of the data.  [default: $FEDCO2_DATA]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.png", help="Draw the training images.")
def clients(**options: Any) -> None:
    """Show how a skew spreads a data set over clients: images of each class, client by client.

    No image is needed for CIFAR-10 and CIFAR-100, whose class sizes are known.

    \b
    Examples:
      fedco2 data clients --dataset cifar10 --skew dirichlet --alpha 0.3 --clients 20
      fedco2 data clients --dataset cifar100 --plot pachinko.png
      fedco2 data clients --dataset office --skew label+feature --data-seed 1 --json
    """
    from cli.data_clients_run import run

    run(options)
