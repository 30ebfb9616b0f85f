"""``fedco2 flower up``, ``status`` and ``down``: a real deployment on this machine, and how to have it on several."""

from __future__ import annotations

from pathlib import Path

import click

from cli.console import CHECK_FAILED, INTERRUPTED

folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("flower"),
    show_default=True,
    help="Folder of the deployment: logs, and what clients keep.",
)


@click.command()
@click.option("--clients", type=click.IntRange(1, 1000), help="How many: each has a node of its own.")
@click.option(
    "--sites",
    type=click.Path(path_type=Path),
    help="In place of --clients: a folder with the data of each site, a folder or file each.",
)
@click.option("--tls", is_flag=True, help="Encrypt, and let in only nodes whose key is known, by a test CA of its own.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder of all data, for every node.  [default: the usual one]",
)
@folder_option
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads of each client.")
@click.option("--hosts", metavar="NAME", help="Only print the commands for several hosts, NAME being the SuperLink's.")
def up(
    clients: int | None,
    sites: Path | None,
    tls: bool,
    data_dir: Path | None,
    folder: Path,
    threads: int,
    hosts: str | None,
) -> None:
    """Start a SuperLink and a SuperNode for each client, on 127.0.0.1.

    They go on by themselves until `fedco2 flower down`. Nothing is told to others, looked up or installed unless the
    environment says so (FLWR_TELEMETRY_ENABLED=1, FLWR_DISABLE_UPDATE_CHECK=0,
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=0).

    \b
    Examples:
      fedco2 flower up --clients 4
      fedco2 flower up --clients 4 --tls --dir /tmp/four
      fedco2 flower up --clients 4 --hosts superlink.example.org
      fedco2 flower up --sites hospitals
    """
    if (clients is None) == (sites is None):
        raise click.UsageError("Give one of --clients and --sites.")
    from cli.flower.deployment_run import print_multi_host_guide, start_deployment
    from cli.interrupt import Interrupted

    if hosts is not None and clients is None:
        raise click.UsageError("--hosts goes with --clients; a site starts its own node with `fedco2 flower node`.")
    if hosts is not None and clients is not None:
        print_multi_host_guide(clients, hosts, threads, data_dir)
        return
    try:
        start_deployment(folder, clients, sites, tls, data_dir, threads)
    except Interrupted as stop:
        click.echo(str(stop), err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


@click.command()
@folder_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.pass_context
def status(ctx: click.Context, folder: Path, as_json: bool) -> None:
    """Look at a deployment: its SuperLink, nodes and runs.

    The exit code is 1 if not all of it runs, 2 if none is here.
    """
    from cli.flower.deployment_run import print_status

    if not print_status(folder, as_json):
        ctx.exit(CHECK_FAILED)


@click.command()
@folder_option
def down(folder: Path) -> None:
    """End a deployment and all its processes.

    Logs and what clients keep stay.
    """
    from cli.flower.deployment_run import stop_deployment

    stop_deployment(folder)
