"""``fedco2 new``: a small package with tests, for a method, a network or a site of one's own."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options import Choice


@click.command(
    short_help="Write a small tested package for a method, model or site of yours.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("kind", type=Choice(("method", "model", "site")))
@click.argument("name")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="A new folder.  [default: fedco2-NAME]")
def new(kind: str, name: str, out: Path | None) -> None:
    """Write a package that works as it is: code to change, a test, a README and what makes it a plug-in.

    method: a subclass of FedAvg, put through the laws that every method keeps. model: a network with features and
    head. site: a function that reads a site's own data, for its node on Flower. Nothing is downloaded, and nothing that
    is there is overwritten.

    \b
    Examples:
      fedco2 new method halfway
      fedco2 new model tiny --out ~/tiny
      fedco2 new site basel
    """
    from cli.new.run import write_package

    folder = write_package(kind, name, out)
    click.echo(f"Written to {folder}. Try it there: python -m pytest")
    click.echo("Install it, and it is a plug-in: pip install -e . --no-deps")
    click.echo(f"What it is and how to use it: {folder / 'README.md'}")
