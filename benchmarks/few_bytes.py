"""Accuracy against bytes on Digits: python benchmarks/few_bytes.py train [POINT ...], then draw.

Each point is a run of Fed-CO2 that differs from the reference in what travels alone (`few_bytes_lib/points.py`). The
defaults are reduced: the narrow network, few images of each client, every fifth test image.
``--network digits --percent 0.1 --test-every 1`` is the paper's protocol, but for its rounds.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from few_bytes_lib.figure import draw_curve, format_table, load_results
from few_bytes_lib.points import POINTS

from fedtrain.data.client_data import ClientData, Samples
from fedtrain.training import plan, run_plan

NARROW = Path(__file__).parent / "few_bytes_lib" / "narrow_digits.py"
HEADS = {False: "build_with_head", True: "build_with_last_layer"}


def thin_test(client: ClientData, every: int) -> ClientData:
    """Its test images, but only every so many-th of them."""
    rows = slice(None, None, every)
    return replace(client, test=Samples(client.test.inputs[rows], client.test.labels[rows]))


def train_point(name: str, options: argparse.Namespace) -> None:
    """Train one point into its folder."""
    point, narrow = POINTS[name], options.network == "narrow"
    settings = {f"server.{key}": value for key, value in point.server.items()}
    settings["data.percent"] = options.percent
    if not narrow:
        settings["model.split_at"] = "last" if point.last else "conv"
    training = plan(
        preset="digits",
        data="real",
        model=f"{NARROW}:{HEADS[point.last]}" if narrow else "digits",
        rounds=options.rounds,
        eval_every=options.rounds,
        threads=1,
        seed=options.seed,
        settings=settings,
        out=options.runs / name,
    )
    whole = training.experiment.federation
    thinned = replace(whole, clients=tuple(thin_test(one, options.test_every) for one in whole.clients))
    run = run_plan(
        replace(training, experiment=replace(training.experiment, federation=thinned)),
        command=f"python benchmarks/few_bytes.py train {name} --network {options.network} --rounds {options.rounds} "
        f"--percent {options.percent} --test-every {options.test_every} --seed {options.seed}",
    )
    print(name, run.summary["rules"]["last"]["mean"]["fused"], run.summary["bytes"], flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["train", "draw"])
    parser.add_argument("points", nargs="*", choices=[[], *POINTS], help="which to train; all of them if none is named")
    parser.add_argument("--runs", type=Path, default=Path("runs/few-bytes"), help="the folder of the runs")
    parser.add_argument("--network", choices=["narrow", "digits"], default="narrow")
    parser.add_argument("--percent", type=float, default=0.03, help="of USPS's size, training images of a client")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--test-every", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--picture", type=Path, default=Path("docs/figures/bytes.png"))
    options = parser.parse_args()
    if options.do == "train":
        for name in options.points or POINTS:
            train_point(name, options)
        return
    results = load_results(options.runs)
    draw_curve(results, options.picture)
    print(format_table(results))


if __name__ == "__main__":
    main()
