"""``fedco2 evaluate``: how each client's own model does on the client's own data."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options import Choice, add_code_options, complete_names, load_code
from fedtrain.registry import FUSION_RULES


@click.command(
    short_help="Evaluate the personal models of a run.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--client", default=None, help="Only this one.  [default: all]")
@click.option("--split", type=Choice(("test", "val", "train")), default="test", show_default=True, help="Which.")
@click.option("--metrics", default=None, metavar="NAMES", help="Further scores: all, none, or e.g. auroc,brier.")
@click.option(
    "--save-predictions",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE.npz",
    help="Write what each model says of each sample; in the run folder, predictions.npz, reports find it.",
)
@click.option("--fusion", type=Choice(FUSION_RULES), help="Fuse the branches by another rule.")
@click.option("--data-dir", type=click.Path(path_type=Path), default=None, help="Where the data are.")
@click.option("--device", default=None, help="auto, cpu or cuda.  [default: the run's]")
@add_code_options
@click.option("--dataset", shell_complete=complete_names("dataset"), help="Its data, if they are code of yours.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def evaluate(
    run: Path,
    client: str | None,
    split: str,
    metrics: str | None,
    save_predictions: Path | None,
    data_dir: Path | None,
    device: str | None,
    fusion: str | None,
    method: str | None,
    model: str | None,
    aggregator: str | None,
    optimizer: str | None,
    dataset: str | None,
    as_json: bool,
) -> None:
    """Evaluate what a run has trained: the prediction of each client's model, and each branch of it.

    RUN is the folder that `fedco2 train` wrote. The weights are those of its last checkpoint, the data those that it
    was trained with: others are refused. The numbers are the last ones in the run's metrics.jsonl.

    \b
    Examples:
      fedco2 evaluate runs/office-fedco2-20260101-120000
      fedco2 evaluate runs/office-fedco2-20260101-120000 --client dslr
      fedco2 evaluate runs/office-fedco2-20260101-120000 --split val --json
      fedco2 evaluate RUN --fusion weighted
      fedco2 evaluate RUN --metrics all --save-predictions RUN/predictions.npz

    With --fusion the branches of the same weights are fused in another way; for weighted and best every client chooses
    anew, on its validation data. The gap is how far the prediction is above the better branch.

    Scores: balanced_accuracy, macro_f1, auroc, auprc, ece, brier, and of two classes sensitivity and specificity.
    """
    from cli.evaluate.run import run_evaluate

    load_code(method=method, model=model, aggregator=aggregator, optimizer=optimizer, dataset=dataset)
    run_evaluate(
        run,
        client,
        split,  # type: ignore[arg-type] # click checks it
        metrics,
        save_predictions,
        data_dir,
        device,
        fusion,
        as_json,
    )
