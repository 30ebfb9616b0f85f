"""``fedco2 methods``: what each method shares, keeps and shows, and what a round costs."""

from __future__ import annotations

import click

from cli.console import CHECK_FAILED
from cli.options import Choice, complete_names
from fedtrain.registry import MODEL_NAMES


@click.command(
    short_help="What each method shares, keeps and costs.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("method", required=False, shell_complete=complete_names("method"), metavar="[[check] METHOD]")
@click.argument("checked", required=False, shell_complete=complete_names("method"), metavar="")
@click.option("--model", type=Choice(MODEL_NAMES), default="digits", show_default=True, help="On which network.")
@click.option("--clients", type=click.IntRange(1), default=None, help="How many.  [default: as in the paper]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.pass_context
def methods(
    ctx: click.Context, method: str | None, checked: str | None, model: str, clients: int | None, as_json: bool
) -> None:
    """Compare all methods, or look at one with all its options.

    Shared: what the server averages. Personal: what each client has for itself. Published: what of it every other
    client gets to see. Bytes are those of one client in one round. Whether there is batch norm, where the head begins
    and which options a method has are as in the preset of the network's data set.

    With check, a method of yours is put through the laws that every method keeps, and each that fails is explained.

    \b
    Examples:
      fedco2 methods
      fedco2 methods --model cifar
      fedco2 methods fedco2 --model alexnet --clients 6
      fedco2 methods --json
      fedco2 methods ./lg.py:LGFedAvg
      fedco2 methods check ./lg.py:LGFedAvg
    """
    if (method == "check") != (checked is not None):
        raise click.UsageError("write fedco2 methods METHOD, or fedco2 methods check METHOD")
    if checked is not None:
        from cli.methods.check import run_check

        if not run_check(checked, as_json):
            ctx.exit(CHECK_FAILED)
        return
    from cli.methods.run import run_methods

    run_methods(method, model, clients, as_json)
