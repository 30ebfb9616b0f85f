"""``fedco2 predict``: what the model of one client says of image files, or of rows of a table."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options import Choice, add_code_options, load_code


@click.command(
    short_help="Classify images or rows with a client's personal model.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--client", default=None, help="Whose model.")
@click.option(
    "--new-client",
    type=Choice(("online-average",)),
    default=None,
    help="For a client that was never seen, by this policy.",
)
@click.option(
    "--newcomer",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE",
    help="For a newcomer: the personal part that fedco2 adapt wrote.",
)
@click.option("--branch", default=None, help="One branch, such as online, instead of the prediction.  [default: fused]")
@click.option("--top", type=click.IntRange(1), default=1, show_default=True, help="So many classes for each.")
@click.option("--device", default=None, help="auto, cpu or cuda.  [default: the run's]")
@add_code_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def predict(
    run: Path,
    files: tuple[Path, ...],
    client: str | None,
    new_client: str | None,
    newcomer: Path | None,
    branch: str | None,
    top: int,
    device: str | None,
    method: str | None,
    model: str | None,
    aggregator: str | None,
    optimizer: str | None,
    as_json: bool,
) -> None:
    """Classify images, or rows of a table, with the personal model of one client.

    RUN is the folder that `fedco2 train` wrote; the data of the run are not needed. Images (JPEG, PNG, BMP, GIF) are
    resized to what the network reads and prepared as in training; no noise is added. Of a run on a table, FILE is a CSV
    or Parquet file with the same columns; every row is classified.

    A client that was never seen has no model of its own. The policy online-average makes one: what the server averaged
    is taken as it is; personal batch norm gets the mean weight and bias of the known clients, and statistics of the
    images at hand (at least 2, better 16 or more, as varied as they will be). Fed-CO2 then predicts with its online
    branch alone, FedRoD with its generic head, COPA with the published heads of the others. SingleSet, FedPer and
    Fed-CO2 with a personal head are refused: they share no classifier. More in docs/guides/predict.md.

    \b
    Examples:
      fedco2 predict runs/office-fedco2-20260101-120000 --client dslr photo.jpg
      fedco2 predict RUN --client dslr --top 3 --branch online photos/*.jpg
      fedco2 predict RUN --new-client online-average photos/*.jpg --json
      fedco2 predict RUN --newcomer carla.safetensors photo.jpg
      fedco2 predict RUN --client basel new-patients.csv
    """
    if sum(one is not None for one in (client, new_client, newcomer)) != 1:
        raise click.UsageError("say whose these are: --client NAME, --new-client online-average, or --newcomer FILE")
    if new_client and branch:
        raise click.UsageError("--branch contradicts --new-client: the policy decides which branch can be used")
    from cli.predict.run import run_predict

    load_code(method=method, model=model, aggregator=aggregator, optimizer=optimizer)
    run_predict(run, files, client, newcomer, branch, top, device, as_json)
