"""``fedco2 report``: one page from any set of runs, and two configurations compared."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options import Choice


@click.command(
    "report",
    short_help="Make one page from any set of runs, or compare two.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("runs", metavar="RUN...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--compare",
    nargs=2,
    metavar="A B",
    help="Differences B - A of each client, with a test. Each side is a run folder, or several seeds of one "
    "configuration separated by commas: --compare A1,A2,A3 B1,B2,B3.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    metavar="PAGE.html",
    help="Where to write the page.  [default: runs/report-DATE-TIME.html; with --compare or --json: no page]",
)
@click.option(
    "--rule",
    type=Choice(("last", "best-by-validation", "window")),
    default=None,
    help="Which accuracy.  [default: the rule of the runs if they agree, else last]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def report(
    runs: tuple[Path, ...], compare: tuple[str, str] | None, out: Path | None, rule: str | None, as_json: bool
) -> None:
    """Make one self-contained HTML page from run folders: results, curves, fairness, bytes, time, data, settings.

    RUN is a folder that `fedco2 train` wrote, finished or not, or a folder of such. Runs that differ only in their
    seeds become one row, mean ± std (ddof 1). Runs on different data get a table each and are not ranked against each
    other.

    --compare matches runs by their seeds. With two or more pairs it gives the paired t test and Wilcoxon's test; with
    one run on each side an approximation, and says so.

    \b
    Examples:
      fedco2 report runs/digits-*
      fedco2 report runs/digits-fedbn runs/digits-fedco2 --out digits.html
      fedco2 report --compare runs/bn-1,runs/bn-2 runs/co2-1,runs/co2-2
      fedco2 report --compare runs/fedbn runs/fedco2 --out page.html
      fedco2 report runs/digits-* --json | jq '.tables[].rows[] | {label, mean}'
    """
    if not runs and compare is None:
        raise click.UsageError("name at least one run folder, or two sides to --compare")
    from cli.report.run import run_report

    run_report(list(runs), compare, out, rule, as_json)
