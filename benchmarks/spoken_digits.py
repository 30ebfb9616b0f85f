"""Train on six speakers of spoken digits with all nine methods, and adapt to each speaker as if it came later.

The Free Spoken Digit Dataset as pictures, ``spoken_digits/SPEAKER/DIGIT/DIGIT_SPEAKER_NUMBER.png``. Its published
convention is that recordings 0 to 4 of each digit are the test part.

  python benchmarks/spoken_digits.py split spoken_digits.zip spoken.zip   # SPEAKER/{train,test}/DIGIT/...
  fedco2 data add spoken spoken.zip
  python benchmarks/spoken_digits.py train runs --seeds 0,1,2
  python benchmarks/spoken_digits.py newcomers runs --seeds 0,1,2 --json newcomers.json

What is there already is not trained again, and what was cut short goes on, so that a second call goes on with the
first, and two calls can share the seeds.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import click

import fedtrain
from fedtrain.runs.folder import RunFolder
from fedtrain.utils.atomic_files import replace_atomically

PAPER_METHODS = ("singleset", "fedavg", "fedprox", "fedper", "moon", "fedrod", "copa", "fedbn", "fedco2")
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
TEST_RECORDINGS = 5
DRAWS = {0: (0,), 5: (0, 1, 2), 20: (0, 1, 2)}
"""By number of shots: the seeds of their choice. Without shots there is nothing to choose."""


def split_recordings(source: Path, target: Path) -> int:
    """Write the archive again with the part in each path; the number of recordings."""
    count = 0
    with zipfile.ZipFile(source) as recordings, zipfile.ZipFile(target, "x") as parts:
        for name in sorted(recordings.namelist()):
            path = PurePosixPath(name)
            if path.suffix != ".png":
                continue
            part = "test" if int(path.stem.rsplit("_", 1)[1]) < TEST_RECORDINGS else "train"
            folder, speaker, digit = path.parts[-4:-1]
            parts.writestr(f"{folder}/{speaker}/{part}/{digit}/{path.name}", recordings.read(name))
            count += 1
    return count


def train_or_resume(out: Path, **options: Any) -> fedtrain.Run:
    """The run in this folder, finished. 450 recordings make 14 batches of 32 and one of two, which is left out."""
    if RunFolder(out).is_finished:
        return fedtrain.load_run(out)
    if out.exists():
        return fedtrain.train(resume=out, quiet=True)
    return fedtrain.train(
        dataset="spoken", model="mlp", settings={"local.last_batch": "drop"}, threads=1, quiet=True, out=out, **options
    )


def adapt(run: fedtrain.Run, about: Mapping[str, Any]) -> dict[str, Any]:
    """The accuracy of the speaker that was held out, before, and by number of shots after: one for every draw."""
    found = {
        shots: [run.adapt(shots=shots, seed=seed, metrics="none") for seed in seeds] for shots, seeds in DRAWS.items()
    }
    after = {str(shots): [one.after.accuracy for one in each] for shots, each in found.items()}
    return {**about, "before": found[0][0].before.accuracy, "after": after}


def parse_seeds(text: str) -> list[int]:
    """As they are given, with commas."""
    return [int(seed) for seed in text.split(",")]


@click.group(help=__doc__.replace("\n\n", "\n\n\b\n") if __doc__ else None)
def main() -> None:
    """See the docstring of this file."""


@main.command("split")
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@click.argument("target", type=click.Path(path_type=Path))
def split_command(source: Path, target: Path) -> None:
    """Put recordings 0 to 4 of each digit into the test part."""
    click.echo(f"{target}: {split_recordings(source, target)} recordings")


@main.command("train")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--seeds", default="0,1,2")
def train_command(out: Path, seeds: str) -> None:
    """All nine methods on all six speakers."""
    for seed in parse_seeds(seeds):
        for method in PAPER_METHODS:
            run = train_or_resume(
                out / f"spoken-{method}-s{seed}",
                method=method,
                seed=seed,
                eval_every=10,
                metrics="balanced_accuracy,ece",
            )
            click.echo(f"{method}, seed {seed}: {100 * run.summary['rules']['last']['mean']['fused']:.1f} %")


@main.command("newcomers")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--seeds", default="0,1,2")
@click.option("--json", "written", type=click.Path(path_type=Path), help="Write all rows found in OUT here.")
def newcomers_command(out: Path, seeds: str, written: Path | None) -> None:
    """Every speaker held out in turn by every method, and adapted with 0, 5 and 20 shots."""
    for seed in parse_seeds(seeds):
        for speaker in SPEAKERS:
            for method in PAPER_METHODS:
                folder = out / f"without-{speaker}-{method}-s{seed}"
                if (found := folder.with_suffix(".json")).exists():
                    continue
                run = train_or_resume(folder, method=method, seed=seed, hold_out=speaker, eval_every=50, metrics="none")
                row = adapt(run, {"method": method, "client": speaker, "seed": seed})
                with replace_atomically(found) as part:
                    part.write_text(json.dumps(row), encoding="utf-8")
                click.echo(f"{method} without {speaker}, seed {seed}: {100 * row['before']:.1f} % before")
    if written is not None:
        rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("without-*.json"))]
        written.write_text(json.dumps(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
