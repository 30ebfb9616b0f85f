"""``fedco2 reproduce``: tables and figures of the paper, each a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli.console import CHECK_FAILED, INTERRUPTED
from cli.options import Choice


@click.command(
    short_help="Run a table or figure of the paper, beside the paper's numbers.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("names", metavar="[T1 F2 ...]", nargs=-1)
@click.option("--list", "listing", is_flag=True, help="Show all tables and figures and what each needs.")
@click.option("--seeds", default=None, metavar="N | A,B,..", help="How many, or which (one alone: 4,).  [the paper's]")
@click.option("--rounds", type=click.IntRange(min=1), default=None, help="For all runs, instead of the paper's.")
@click.option("--methods", default=None, metavar="A,B,..", help="Only the rows of these methods.")
@click.option("--dataset", default=None, help="Only this data set's part; or this one instead of the paper's.")
@click.option("--eval-every", type=click.IntRange(min=1), default=None, help="Evaluate every so many rounds.")
@click.option(
    "--rule",
    type=Choice(("last", "best-by-validation", "window")),
    default=None,
    help="Which accuracy.  [default: the paper's]",
)
@click.option(
    "--data",
    type=Choice(("auto", "real", "standin")),
    default="auto",
    show_default=True,
    help="auto: the stand-in where real data are not there.",
)
@click.option("--legacy", is_flag=True, help="With the published code's quirks (docs/development/paper-vs-code.md).")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any other setting, for all runs.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Runs at the same time.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("reproduce"), show_default=True, help="Folder.")
@click.option(
    "--adopt",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Use this finished run (or all in this folder) where it is what a cell asks for.",
)
@click.option(
    "--paper", type=click.Path(path_type=Path), default=None, help="A TOML file of more numbers of the paper."
)
@click.option("--data-dir", type=click.Path(path_type=Path), default=None, help="Where the data are.")
@click.option("--dry-run", is_flag=True, help="Show every command, run nothing.")
@click.option("--only-finished", is_flag=True, help="Show the runs that are finished; make none.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.pass_context
def reproduce(ctx: click.Context, /, **options: Any) -> None:
    """Run or resume all that a table or figure of the paper takes, and show it beside the paper's numbers.

    Each cell is an ordinary run in its own folder below --out; experiments share those that they have in common. The
    same command goes on after Ctrl-C or a crash. With fewer rounds or seeds, or other data than the paper's, each title
    says so, and nothing is marked as agreeing with the paper or not.

    \b
    Examples:
      fedco2 reproduce --list
      fedco2 reproduce T7 F2 --dry-run
      fedco2 reproduce T7 F2 --rounds 50 --seeds 1 --eval-every 5 --jobs 2
      fedco2 reproduce T5 T11 T12 --dataset digits --rounds 50 --seeds 1
      fedco2 reproduce T9 --legacy
      fedco2 reproduce T7 --rounds 50 --seeds 1 --adopt runs
      fedco2 reproduce T3 --only-finished

    \b
    Exit codes:
      0    all runs are finished
      1    a run failed; its log is named, the others went on
      130  interrupted; the same command goes on
    """
    if not options["names"] and not options["listing"]:
        raise click.UsageError("name tables or figures, for instance T7 or F2; --list shows all")
    from cli.interrupt import Interrupted
    from cli.reproduce.run import run_reproduce

    try:
        if not run_reproduce(options):
            ctx.exit(CHECK_FAILED)
    except Interrupted as stop:
        click.echo(str(stop), err=True)
        ctx.exit(INTERRUPTED)
