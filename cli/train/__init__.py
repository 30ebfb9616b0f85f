"""``fedco2 train``: federated training, from a preset to a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli.console import INTERRUPTED
from cli.options import add_found_options, complete_names
from fedtrain.registry import AGGREGATOR_CLASSES, DATASET_NAMES, METHOD_CLASSES, MODEL_NAMES, TRACKER_CLASSES


@click.command(
    short_help="Train clients whose data differ, with Fed-CO2 or another method.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--method",
    shell_complete=complete_names("method"),
    default=None,
    help=f"{', '.join(METHOD_CLASSES)}; or yours: lg:LGFedAvg, ./lg.py:LGFedAvg.",
)
@click.option(
    "--model",
    shell_complete=complete_names("model"),
    default=None,
    help=f"{', '.join(MODEL_NAMES)}; auto: by the data; or yours: nets:make.  [default: the data set's]",
)
@click.option("--head", default=None, help="Which submodule of a network of yours is its head, such as fc.")
@click.option(
    "--dataset",
    shell_complete=complete_names("dataset"),
    default=None,
    metavar="NAME|PATH",
    help=f"{', '.join(DATASET_NAMES)}, or your own.  [default: digits]",
)
@add_found_options
@click.option(
    "--data",
    default=None,
    help="auto: real data if they are there, else the built-in stand-in; real; standin.  [default: auto]",
)
@click.option("--skew", default=None, help="domain, label+feature, iid, pathological, dirichlet or pachinko.")
@click.option("--alpha", type=float, default=None, help="Dirichlet concentration; smaller is more skewed.")
@click.option("--clients", type=int, default=None, help="How many clients (label skews).")
@click.option("--hold-out", default=None, metavar="CLIENT", help="Train without this client, and report on it.")
@click.option("--participation", type=float, default=None, help="Share of the clients that train in a round.")
@click.option(
    "--aggregator",
    shell_complete=complete_names("aggregator"),
    default=None,
    help=f"{', '.join(AGGREGATOR_CLASSES)}; or yours.  [default: mean]",
)
@click.option("--peers", type=int, default=None, help="Number of peer heads sent to each client.  [default: all]")
@click.option("--heads-every", type=int, default=None, help="Publish and send heads every so many rounds.")
@click.option(
    "--codec",
    default=None,
    help="How clients send: none, float16, bfloat16, int8, topk:0.01, lowrank:4, topk:0.01+int8 ...  [default: none]",
)
@click.option("--broadcast-codec", default=None, help="How the server sends: the same.  [default: none]")
@click.option("--rounds", type=int, default=None, help="Rounds of federated training.")
@click.option("--local-epochs", type=int, default=None, help="Passes over the local data in a round.")
@click.option("--batch-size", type=int, default=None, help="Samples of a step.")
@click.option(
    "--optimizer",
    shell_complete=complete_names("optimizer"),
    default=None,
    help="sgd, adam, adamw or another of torch.optim; or yours.  [default: sgd]",
)
@click.option("--lr", type=float, default=None, help="Learning rate.")
@click.option("--lr-schedule", default=None, help="Over rounds: constant, cosine or step.  [default: constant]")
@click.option("--momentum", type=float, default=None, help="Momentum of SGD.")
@click.option("--weight-decay", type=float, default=None, help="Weight decay.")
@click.option("--seed", type=int, default=None, help="Of networks, batches, noise and cohorts.")
@click.option("--data-seed", type=int, default=None, help="Of the partition.")
@click.option("--eval-every", type=int, default=None, help="Evaluate every so many rounds (and after the last).")
@click.option("--eval-clients", type=int, default=None, help="Evaluate so many clients, drawn once.  [default: all]")
@click.option("--metrics", default=None, metavar="NAMES", help="Further scores: all, none, or e.g. auroc,brier.")
@click.option("--save-predictions", is_flag=True, default=None, help="Keep the last predictions of all test samples.")
@click.option("--checkpoint-every", type=int, default=None, help="Keep the checkpoint of every so many rounds.")
@click.option("--on-client-failure", default=None, help="stop, or skip: go on without that client in that round.")
@click.option("--device", default=None, help="auto, cpu or cuda.")
@click.option("--threads", type=int, default=None, help="Cores to use.")
@click.option("--fast-path/--no-fast-path", default=None, help="Faster steps, equal up to rounding.  [default: on]")
@click.option("--backend", default=None, help="How clients run: auto, serial, threads, vmap or distributed.")
@click.option("--nproc", type=click.IntRange(1), default=None, help="With --backend distributed: processes to start.")
@click.option("--client-state", default=None, help="Where personal state waits: memory or disk.  [default: memory]")
@click.option(
    "--track",
    shell_complete=complete_names("tracker"),
    multiple=True,
    help=f"Copy numbers to {', '.join(TRACKER_CLASSES)} or yours; may be repeated.",
)
@click.option(
    "--callback",
    "callbacks",
    shell_complete=complete_names("callback"),
    multiple=True,
    help="Let code of yours watch: ./watch.py:Watch; may be repeated.",
)
@click.option("--preset", default=None, help="A protocol by name.  [default: the data set's]")
@click.option("--config", type=click.Path(path_type=Path), default=None, help="A TOML file of settings.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any other setting, e.g. method.mu=0.5.")
@click.option("--data-dir", type=click.Path(path_type=Path), default=None, help="Where the data are.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder.  [default: a new one in runs/]")
@click.option("--resume", type=click.Path(path_type=Path), default=None, metavar="RUN", help="Go on with this run.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and what it would cost.")
@click.option("--show-config", is_flag=True, help="With --dry-run: every setting too.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON and nothing else.")
@click.pass_context
def train(ctx: click.Context, /, **options: Any) -> None:
    """Train a federation whose clients' data differ, and write what came of it.

    Without an option for it, everything is as in the paper for that data set (its preset). Real data are used if they
    were added with `fedco2 data`; else built-in stand-in images, and every output says so.

    --dataset PATH trains on your own data: a folder or zip of images, client/class/image or
    client/{train,test}/class/image; a CSV table; an npz with X, y, owner. Clients and classes are found there.

    \b
    Examples:
      fedco2 train --dataset office
      fedco2 train --dataset digits --method fedbn --rounds 50
      fedco2 train --dataset digits --data standin --model two-layer --rounds 10
      fedco2 train --dataset cifar10 --skew dirichlet --alpha 0.3 --clients 20
      fedco2 train --dataset office --aggregator fedadam --set aggregator.lr=0.03
      fedco2 train --set method.intra=none --set method.inter=online
      fedco2 train --method ./lg.py:LGFedAvg --model nets:make --head fc
      fedco2 train --dataset digits --skew label+feature --dry-run
      fedco2 train --dataset office --backend distributed --nproc 2
      fedco2 train --dataset photos.zip --image-size 64
      fedco2 train --dataset office --hold-out dslr
      fedco2 train --dataset t.csv --client-column hospital --target disease
      fedco2 train --resume runs/digits-fedco2-20260101-120000

    Settings come from, the later the stronger: preset, --config, options and --set.
    """
    if options["resume"] is not None and (clash := _find_resume_conflict(options)):
        raise click.UsageError(f"{clash} contradicts --resume: the run says what it is; leave it out")
    from cli.interrupt import Interrupted
    from cli.train.run import run_train

    try:
        run_train(options)
    except Interrupted as stop:
        click.echo(str(stop), err=True)
        ctx.exit(INTERRUPTED)


def _find_resume_conflict(options: dict[str, Any]) -> str | None:
    """An option that has no place beside --resume."""
    return next((f"--{name}" for name in ("preset", "config", "out") if options[name] is not None), None)
