"""``fedco2 forecast``: which method will win, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli.partition import DATASETS, partition_options


@click.command(
    short_help="Which method will win, and whom federation hurts, before training.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--dataset", type=click.Choice(DATASETS), default=None, help="Which data.")
@partition_options
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of the data.  [default: $FEDCO2_DATA]")
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Your own data instead: arrays X (n, d), y (n), owner (n), as for `fedco2 theory --data`.",
)
@click.option(
    "--samples", type=click.IntRange(min=4), help="Training samples of each client.  [default: 4,000 of all together]"
)
@click.option("--width", type=click.IntRange(min=1), default=2048, show_default=True, help="Hidden units.")
@click.option("--network-seed", type=int, default=0, show_default=True, help="Of the network and the drawn samples.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.pass_context
def forecast(ctx: click.Context, /, **options: Any) -> None:
    """Foretell from the clients' data which of SingleSet, FedBN and Fed-CO2 generalises best, and on whom.

    A wide two-layer batch-norm network that is trained to its end predicts what kernel regression with its tangent
    kernel predicts. So training samples are predicted from each other, in four folds, with the kernel of each method;
    nothing is trained, and test data are not looked at. It says which method is ahead and which clients lose by
    federation. How good a deep network will be it does not say, nor whether depth changes the order; and Fed-CO2 is
    here without its knowledge transfer between models and clients.

    \b
    Examples:
      fedco2 forecast --dataset digits
      fedco2 forecast --dataset cifar10 --skew dirichlet --alpha 0.3 --clients 20
      fedco2 forecast --file clients.npz --json
    """
    if (options["dataset"] is None) == (options["path"] is None):
        raise click.UsageError("name the data: either --dataset, for instance digits, or --file FILE.npz")
    if options["path"] is not None:
        given = [name for name in options if _given(ctx, name) and name not in FOR_FILES]
        if given:
            raise click.UsageError(f"--{given[0].replace('_', '-')} is for --dataset; the file says who holds what")
    from cli.forecast_run import run

    run(options)


FOR_FILES = {"path", "width", "network_seed", "as_json"}


def _given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
