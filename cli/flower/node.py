"""``fedco2 flower node``: a site's own node, on the machine where its data are."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Take part in runs as a site with its own data.")
@click.option("--name", required=True, help="Of the site, as runs and reports will call it.")
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path),
    help="The site's data: a folder of images by class, a table, an archive, or code of yours. They stay here.",
)
@click.option("--superlink", required=True, metavar="HOST:PORT", help="Where the server is.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="Folder of what the site's model keeps to itself; save it.  [default: fedco2-NAME]",
)
@click.option("--ca", type=click.Path(path_type=Path), help="Certificate of who vouches for the server: encrypts.")
@click.option("--key", type=click.Path(path_type=Path), help="This node's private key, which the server knows.")
@click.option("--insecure", is_flag=True, help="Without encryption to another machine: for a trusted network only.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="For training.")
def node(
    name: str,
    data: Path,
    superlink: str,
    state: Path | None,
    ca: Path | None,
    key: Path | None,
    insecure: bool,
    threads: int,
) -> None:
    """Take part, as one site, in the runs that a server starts with --dataset sites; until Ctrl-C.

    The data are read here and never leave. The server learns the name, how many samples there are of each class, the
    names of the columns and a checksum; then models travel, as in every run. No message can make this node run code.

    \b
    Examples:
      fedco2 flower node --name basel --data our-data \\
        --superlink fl.example.org:8000 --ca ca.pem --key basel.key
      fedco2 flower node --name basel --data heart.csv --superlink 127.0.0.1:8000
      fedco2 flower node --name ulm --data ./us.py:load --superlink 127.0.0.1:8000
    """
    from cli.flower.node_process import become_node

    become_node(name, data, superlink, state or Path(f"fedco2-{name}"), ca, key, insecure, threads)
