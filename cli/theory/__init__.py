"""``fedco2 theory``: a verdict on every claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli.console import CHECK_FAILED
from cli.options import CODE_NAMES, Choice, add_code_options, is_given


@click.command(
    short_help="A verdict on every claim of the theory.",
    context_settings={"show_default": True, "help_option_names": ["-h", "--help"]},
)
@click.option("--clients", type=int, default=5, help="N, how many clients.")
@click.option("--samples", type=int, default=20, help="M, samples of each client.")
@click.option("--dim", type=int, default=10, help="d, the dimension of the inputs.")
@click.option("--width", type=int, default=4096, help="m, hidden units.")
@click.option("--alpha", type=float, default=0.5, help="The scale of the initial weights, in (0, 1].")
@click.option(
    "--covariance",
    type=Choice(["isotropic", "scaled", "anisotropic"]),
    default="anisotropic",
    help="S_i of the clients: all I; s_i I; or each with its own axes.",
)
@click.option("--heterogeneity", type=float, default=1.0, help="How much covariances differ (spread of log variances).")
@click.option("--seed", type=int, default=0, help="Of the data and the networks.")
@click.option("--draws", type=int, default=1, help="Repeat with other data and networks; mean, worst, how often held.")
@click.option("--steps", type=int, default=200, help="Steps of real descent.")
@click.option(
    "--projection",
    type=Choice(["exact", "printed"]),
    default="exact",
    help="Derivative of the normalised unit: true, or as the paper prints it.",
)
@click.option("--dtype", type=Choice(["float64", "float32"]), default="float64", help="Precision of the kernels.")
@click.option("--device", default="cpu", help="cpu or cuda.")
@click.option("--threads", type=int, default=None, help="Cores to use.  [default: one for small problems, else all]")
@click.option(
    "--chunk", type=int, default=None, help="Hidden units at a time (memory against speed).  [default: fitted]"
)
@click.option("--certify", is_flag=True, help="Prove O2, O3 and O5, rounding errors included.")
@click.option("--claims", "claim_ids", default=None, metavar="O1,O2", help="Only these claims.  [default: all]")
@click.option(
    "--sweep", "sweeps", multiple=True, metavar="NAME=A,B,..", help="Vary one setting, or two (give it twice)."
)
@click.option(
    "--dataset",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE.npz",
    help="Your data: arrays X, y, owner.",
)
@click.option(
    "--ridge", type=float, default=1e-3, help="Added to covariances of --dataset, as a share of the mean variance."
)
@click.option("--allow-parallel", is_flag=True, help="Go on although two samples are parallel.")
@click.option(
    "--run",
    "run_folder",
    type=click.Path(path_type=Path),
    default=None,
    metavar="RUN",
    help="Examine the networks of a run instead, with --samples, --seed, --dtype, --device, --threads.",
)
@click.option(
    "--real-round",
    is_flag=True,
    help="With --run: also make its own next round at each checkpoint; as slow as training.",
)
@click.option("--data-dir", type=click.Path(path_type=Path), default=None, help="Where the data of --run are.")
@add_code_options
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder.  [default: a new one in runs/]")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON and nothing else.")
@click.option("--strict", is_flag=True, help="Exit with 1 where an ordering (O1-O4, X1) fails.")
@click.pass_context
def theory(ctx: click.Context, /, **options: Any) -> None:
    """Verify the theory of Fed-CO2: kernels, eigenvalue orderings, limits, bounds and dynamics.

    Two-layer batch-norm networks are built for synthetic clients (or for your own data), every claim of the paper is
    measured on them, and each gets a verdict: it holds, it fails, or it holds only if read in another way.

    With --run the networks are those of a run of `fedco2 train`, at the start and at every checkpoint that it kept
    (--set checkpoints.every=5): eigenvalues of their tangent kernels, the orderings O1-O4, and how far the kernel
    predicts a round.

    \b
    Examples:
      fedco2 theory --clients 5
      fedco2 theory --clients 5 --certify --draws 10
      fedco2 theory --claims O1,O2,O3 --width 65536
      fedco2 theory --sweep clients=2,5,10,20 --sweep heterogeneity=0.5,1,2
      fedco2 theory --dataset clients.npz --out my-report
      fedco2 theory --run runs/digits-fedco2-20260101-120000 --samples 10
    """
    if options["certify"] and options["sweeps"]:
        raise click.UsageError("--certify proves the orderings of one setting, not of a --sweep; leave one of them out")
    given = [name for name in options if is_given(ctx, name)]
    if options["run_folder"] is not None:
        from cli.theory.networks import refuse_other_options, run_networks

        refuse_other_options(ctx, given)
        held = run_networks(options, given)
    elif code := next((name for name in CODE_NAMES if options[name]), None):
        raise click.UsageError(f"--{code} is code of yours that a run needs; give --run, or leave it out")
    elif options["data_dir"] is not None:
        raise click.UsageError(
            "--data-dir is where the data of --run are; give --run, or --dataset for a file of yours"
        )
    else:
        from cli.theory.run import run

        held = run(options, given)
    if not held and options["strict"]:
        ctx.exit(CHECK_FAILED)
