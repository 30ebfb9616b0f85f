"""``fedco2 evaluate``: how each client's own model does on the client's own data."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(
    short_help="Evaluate the personal models of a run.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--client", default=None, help="Only this one.  [default: all]")
@click.option("--split", type=click.Choice(("test", "val", "train")), default="test", show_default=True, help="Which.")
@click.option("--data-dir", type=click.Path(path_type=Path), default=None, help="Where the data are.")
@click.option("--device", default=None, help="auto, cpu or cuda.  [default: the run's]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def evaluate(
    run: Path, client: str | None, split: str, data_dir: Path | None, device: str | None, as_json: bool
) -> None:
    """Evaluate what a run has trained: the prediction of each client's model, and each branch of it.

    RUN is the folder that `fedco2 train` wrote. The weights are those of its last checkpoint, the data those that it
    was trained with: others are refused. The numbers are the last ones in the run's metrics.jsonl.

    \b
    Examples:
      fedco2 evaluate runs/office-fedco2-20260101-120000
      fedco2 evaluate runs/office-fedco2-20260101-120000 --client dslr
      fedco2 evaluate runs/office-fedco2-20260101-120000 --split val --json
    """
    from cli.evaluate.run import run_evaluate

    run_evaluate(run, client, split, data_dir, device, as_json)  # type: ignore[arg-type] # click checks the split
