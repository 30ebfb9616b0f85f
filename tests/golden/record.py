"""Write down what every case gives: ``python tests/golden/record.py``, for numbers that are meant to change.

All is recorded anew, and what other machines gave is forgotten. ``--add`` keeps it and adds this machine's bits, if its
numbers are those that were recorded, but for rounding.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded
os.environ.setdefault("MPLBACKEND", "Agg")

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from golden_cases import CASES, DOUBLE
from golden_look import FILE, Seen, differences, look, machine, recorded


def rounded(value: Any, digits: int) -> Any:
    """Fewer digits than the bits have: enough for the tolerance, and the file stays small."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    return [rounded(one, digits) for one in value] if isinstance(value, list) else value


def lines(table: Mapping[str, Any], indent: int) -> str:
    """JSON with a line for each key, and for each key of the tables in it, down to lists."""
    pad, inner = " " * indent, []
    for key, value in table.items():
        nested = isinstance(value, Mapping) and value
        text = lines(value, indent + 1) if nested else json.dumps(value, ensure_ascii=False)
        inner.append(f"{pad} {json.dumps(key, ensure_ascii=False)}: {text}")
    return "{\n" + ",\n".join(inner) + f"\n{pad}}}"


def main() -> int:
    """Run all cases; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--add", action="store_true", help="keep what is recorded, add this machine's bits")
    add = parser.parse_args().add
    seen: dict[str, Seen] = {}
    for name, case in CASES.items():
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            seen[name] = look(case, Path(folder))
        print(f"{time.perf_counter() - began:6.2f} s  {name}", flush=True)
    values = {
        name: {"exact": one.exact, "near": rounded(one.near, 12 if CASES[name].tolerance <= DOUBLE else 7)}
        for name, one in seen.items()
        if CASES[name].like is None
    }
    wrong = [
        f"{name}: {what}"
        for name, case in CASES.items()
        if case.like is not None
        for what in differences(case, seen[name], values[case.like], seen[case.like].bits)
    ]
    machines: dict[str, Any] = {}
    if add:
        old = recorded()
        values, machines = old["values"], dict(old["machines"])
        for name in values:
            wrong += [f"{name}: {what}" for what in differences(CASES[name], seen[name], values[name], None)]
    if wrong:
        print("nothing is written:", *wrong, sep="\n")
        return 1
    here = machine()
    machines[here] = {name: seen[name].bits for name in values if seen[name].bits}
    FILE.write_text(lines({"values": values, "machines": machines}, 0) + "\n", encoding="utf-8")
    print(f"{FILE}: {len(values)} cases, {len(machines)} machines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
