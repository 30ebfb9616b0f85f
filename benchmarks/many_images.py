#!/usr/bin/env python
"""Memory and time to keep a folder of many small images: python benchmarks/many_images.py [--images 1000,100000].

Grey PNG images of 32 x 32 pixels that are drawn here, ``client/class/image``, in 20 clients of ten classes. For each
number of images ``fedco2 data add`` works in a process of its own, whose peak memory is read when it is done.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
CLIENTS, CLASSES, SIDE = 20, 10, 32
KEEP = """
import json, sys, time
from training_speed_lib.child import read_peak_memory
from cli.main import main
import torch, fedtrain
bare, begun = read_peak_memory(), time.perf_counter()
code = main(["data", "add", "many", sys.argv[1], "--data-dir", sys.argv[2]])
print(json.dumps({"seconds": time.perf_counter() - begun, "bare_mb": bare, "peak_mb": read_peak_memory()}))
sys.exit(code)
"""


def write_images(folder: Path, count: int) -> None:
    """Noise: no two images are the same."""
    rng = np.random.default_rng(0)
    for number in range(count):
        group, label = number % CLIENTS, number // CLIENTS % CLASSES
        place = folder / f"client{group}" / f"class{label}"
        if number < CLIENTS * CLASSES:
            place.mkdir(parents=True)
        pixels = rng.integers(0, 256, (SIDE, SIDE), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png", compress_level=1)


def measure(count: int) -> dict[str, Any]:
    """Seconds, and the peak of resident memory of that process, before and after the images were added, in MB."""
    with tempfile.TemporaryDirectory() as name:
        folder, data = Path(name) / "images", Path(name) / "data"
        begun = time.perf_counter()
        write_images(folder, count)
        written = time.perf_counter() - begun
        found = subprocess.run(
            [sys.executable, "-c", KEEP, str(folder), str(data)],
            env={"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}", "OMP_NUM_THREADS": "1", "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        size = sum(file.stat().st_size for file in data.rglob("*.safetensors"))
    return {"images": count, "written_s": written, "kept_mb": size / 1e6, **json.loads(found.stdout.splitlines()[-1])}


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", default="1000,10000,100000", help="how many (default: %(default)s)")
    for count in map(int, parser.parse_args().images.split(",")):
        print(json.dumps({key: round(value, 1) for key, value in measure(count).items()}), flush=True)


if __name__ == "__main__":
    main()
