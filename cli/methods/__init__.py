"""``fedco2 methods``: what each method shares, keeps and shows, and what a round costs."""

from __future__ import annotations

import click

from fedtrain.registry import METHOD_CLASSES, MODEL_NAMES


@click.command(
    short_help="What each method shares, keeps and costs.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("method", required=False, type=click.Choice(list(METHOD_CLASSES)), metavar="[METHOD]")
@click.option("--model", type=click.Choice(MODEL_NAMES), default="digits", show_default=True, help="On which network.")
@click.option("--clients", type=click.IntRange(1), default=None, help="How many.  [default: as in the paper]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def methods(method: str | None, model: str, clients: int | None, as_json: bool) -> None:
    """Compare the nine methods, or look at one with all its options.

    Shared: what the server averages. Personal: what each client has for itself. Published: what of it every other
    client gets to see. Bytes are those of one client in one round. Whether there is batch norm, where the head begins
    and which options a method has are as in the preset of the network's data set.

    \b
    Examples:
      fedco2 methods
      fedco2 methods --model cifar
      fedco2 methods fedco2 --model alexnet --clients 6
      fedco2 methods --json
    """
    from cli.methods.run import run_methods

    run_methods(method, model, clients, as_json)
