"""Write down what every case gives: ``python tests/golden/record.py``, for numbers that are meant to change.

All is recorded anew, and what other machines gave is forgotten. ``--add`` keeps it and adds this machine's bits, if its
numbers are those that were recorded, but for rounding. ``--extend`` changes nothing that is recorded: it only adds what
is new in cases that may grow, if all that is recorded still holds, bit by bit on this kind of machine.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded
os.environ["MPLBACKEND"] = "Agg"

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from golden_cases import CASES, DOUBLE
from golden_look import FILE, Seen, bits_here, differences, look, machine, recorded

DEPTH = 4
"""A line for each thing that was seen."""


def rounded(value: Any, digits: int) -> Any:
    """Fewer digits than the bits have: enough for the tolerance, and the file stays small."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(one, digits) for key, one in value.items()}
    return [rounded(one, digits) for one in value] if isinstance(value, list) else value


def joined(kinds: Mapping[str, Any], number: str, ours: Mapping[str, str]) -> dict[str, Any]:
    """Digests by the numbers of the machines that gave them, with those of one more machine."""
    split = [(one, digests) for on, digests in kinds.items() for one in on.split() if one != number]
    found: list[tuple[list[str], Any]] = []
    for one, digests in [*split, (number, ours)]:
        same = next((on for on, other in found if other == digests), None)
        if same is None:
            found.append(([one], digests))
        else:
            same.append(one)
    return {" ".join(on): digests for on, digests in found}


def lines(table: Mapping[str, Any], indent: int) -> str:
    """JSON with a line for each key, and for each key of the tables in it, but not of tables far down."""
    pad, inner = " " * indent, []
    for key, value in table.items():
        deeper = isinstance(value, Mapping) and value and indent < DEPTH
        text = lines(value, indent + 1) if deeper else json.dumps(value, ensure_ascii=False)
        inner.append(f"{pad} {json.dumps(key, ensure_ascii=False)}: {text}")
    return "{\n" + ",\n".join(inner) + f"\n{pad}}}"


def extend() -> int:
    """Add new findings beside the recorded ones; the exit code."""
    record = recorded()
    here, bits = machine(), bits_here(record)
    wrong: list[str] = []
    for name, case in CASES.items():
        if not case.grows:
            continue
        with tempfile.TemporaryDirectory() as folder:
            seen = look(case, Path(folder))
        values, ours = record["values"][name], (bits or {}).get(name, {})
        new = {key: verdict for key, verdict in seen.exact.items() if key not in values["exact"]}
        values["exact"] |= new
        wrong += [f"{name}: {what}" for what in differences(case, seen, values, ours if bits else None)]
        if bits:
            number = str(record["machines"].index(here))
            record["bits"][name] = joined(record["bits"][name], number, {**seen.bits, **ours})
        print(f"{name}: {', '.join(new) or 'no new verdicts'}")
    if wrong:
        print("nothing is written:", *wrong, sep="\n")
        return 1
    FILE.write_text(lines(record, 0) + "\n", encoding="utf-8")
    return 0


def main() -> int:
    """Run all cases; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--add", action="store_true", help="keep what is recorded, add this machine's bits")
    parser.add_argument("--extend", action="store_true", help="keep what is recorded, add new findings to it")
    options = parser.parse_args()
    if options.extend:
        return extend()
    add = options.add
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
    machines: list[str] = []
    bits: dict[str, dict[str, Any]] = {}
    if add:
        old = recorded()
        values, machines, bits = old["values"], old["machines"], old["bits"]
        for name in values:
            wrong += [f"{name}: {what}" for what in differences(CASES[name], seen[name], values[name], None)]
    if wrong:
        print("nothing is written:", *wrong, sep="\n")
        return 1
    if (here := machine()) not in machines:
        machines.append(here)
    bits = {name: joined(bits.get(name, {}), str(machines.index(here)), seen[name].bits) for name in values}
    FILE.write_text(lines({"values": values, "machines": machines, "bits": bits}, 0) + "\n", encoding="utf-8")
    print(f"{FILE}: {len(values)} cases, {len(machines)} machines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
