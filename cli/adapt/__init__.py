"""``fedco2 adapt``: a personal part for a client that was never seen."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options import add_code_options, load_code


@click.command(
    short_help="Give a client that was never seen a personal part.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--data", type=click.Path(path_type=Path), default=None, help="Its data.  [default: the run's held-out client]"
)
@click.option("--client", default=None, help="Which, if there are several in --data.")
@click.option("--shots", type=click.IntRange(0), default=20, show_default=True, help="Labelled samples to train on.")
@click.option("--passes", type=click.IntRange(1), default=None, help="Over the shots.  [default: 50]")
@click.option("--lr", type=float, default=None, help="Learning rate.  [default: the run's]")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the choice of shots.")
@click.option("--metrics", default=None, metavar="NAMES", help="Further scores: all, none, or e.g. auroc,brier.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE.safetensors",
    help="Write the personal part, for fedco2 predict RUN --newcomer FILE.",
)
@click.option("--data-dir", type=click.Path(path_type=Path), default=None, help="Where the run's data are.")
@click.option("--device", default=None, help="auto, cpu or cuda.  [default: the run's]")
@add_code_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def adapt(
    run: Path,
    data: Path | None,
    client: str | None,
    shots: int,
    passes: int | None,
    lr: float | None,
    seed: int,
    metrics: str | None,
    out: Path | None,
    data_dir: Path | None,
    device: str | None,
    method: str | None,
    model: str | None,
    aggregator: str | None,
    optimizer: str | None,
    as_json: bool,
) -> None:
    """Give a client that was never seen what is personal in this method, and say its accuracy before and after.

    RUN is the folder that `fedco2 train` wrote; nothing in it changes. The newcomer is the client that was held out
    (`fedco2 train --hold-out`), or that in --data: files laid out as those that the run was trained on.

    What is personal (batch norm, head, offline model) begins as the method has it. Batch norm takes its statistics from
    the inputs of the newcomer's training part, without labels. Then the personal part alone is trained on the labelled
    shots. The accuracies are those on the newcomer's test part.

    \b
    Examples:
      fedco2 adapt RUN --shots 20
      fedco2 adapt RUN --data new-hospital.csv --shots 0
      fedco2 adapt RUN --data photos/carla --out carla.safetensors
      fedco2 predict RUN --newcomer carla.safetensors photo.jpg
    """
    if client is not None and data is None:
        raise click.UsageError("--client says which client in --data; add that")
    from cli.adapt.run import run_adapt

    load_code(method=method, model=model, aggregator=aggregator, optimizer=optimizer)
    run_adapt(
        run, data, client, shots=shots, passes=passes, lr=lr, seed=seed, metrics=metrics, out=out, data_dir=data_dir,
        device=device, as_json=as_json,
    )  # fmt: skip
