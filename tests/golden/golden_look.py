"""Runs a case and looks at what came of it: whole numbers and words, numbers to compare, and digests of every bit."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import platform
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from golden_cases import ACCURACY, CLIENTS, THEORY, TRAIN, Case
from golden_words import CHECKPOINT, FIGURES, MANIFEST, METRICS, OWN, REPORT, fedco2, words
from safetensors import safe_open

FILE = Path(__file__).resolve().with_name("recorded.json")
PROSE = ("title", "notes", "command", "versions", "inputs", "statement", "source", "words", "out", "data", "seconds")
"""Of reports: what may be said otherwise, or depends on the day and the place, while all numbers stay."""

ADDED_EVIDENCE = {"K5": ("readings",)}
"""Evidence that recorded claims gained later: it has a digest of its own, and the claim's stays as it was."""

KERNELS = ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE")
"""Variables that have numerical libraries compute as if on another CPU."""
ROLES = ("shared", "personal", "peers")
"""Whose a tensor is."""
FEW = 8
"""With more clients than these, the digests of what all of them call alike are made one."""


@dataclass
class Seen:
    """What came of a case."""

    exact: dict[str, Any] = field(default_factory=dict)
    """Whole numbers and words: the same on every machine."""
    near: dict[str, Any] = field(default_factory=dict)
    """Numbers, and lists of them: the same but for rounding."""
    bits: dict[str, str] = field(default_factory=dict)
    """Digests: the same on a machine of the same kind."""


def machine() -> str:
    """What the last bits depend on."""
    told, cpuinfo = [platform.machine()], Path("/proc/cpuinfo")
    if cpuinfo.exists():
        pairs = (line.partition(":") for line in cpuinfo.read_text().split("\n\n")[0].splitlines())
        known = {key.strip(): value.strip() for key, _, value in pairs}
        told += [f"{key} {known[key]}" for key in ("model name", "cpu family", "model", "stepping") if key in known]
    told += [torch.backends.cpu.get_cpu_capability(), f"torch {torch.__version__}", f"numpy {np.__version__}"]
    return ", ".join([*told, *(f"{name} {os.environ[name]}" for name in KERNELS if name in os.environ)])


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]


# --- running


@contextmanager
def quiet() -> Iterator[io.StringIO]:
    """One thread before and after, no figures, and what is said is caught."""
    before, said = torch.get_num_threads(), io.StringIO()
    torch.set_num_threads(1)
    try:
        with mock.patch(FIGURES, return_value=[]), redirect_stdout(said), redirect_stderr(said):
            yield said
    finally:
        torch.set_num_threads(before)


def ask(arguments: Sequence[str]) -> str:
    """Run the command; what it says."""
    with quiet() as said:
        code = fedco2(arguments)
    if code:
        raise AssertionError(f"fedco2 {' '.join(arguments)} ended with {code}: {said.getvalue()}")
    return said.getvalue()


def commands(case: Case, folder: Path, **more: Any) -> list[list[str]]:
    """What is to be called, one after the other."""
    own = {option: own_data(kind, folder) for option, kind in case.own_data.items()}
    told = {**case.options, **own, **more, "json": True}
    if case.command in (TRAIN, THEORY):
        told["out"] = folder / "out"
    again = [] if case.then is None else [{**case.then, **more, "resume": folder / "out", "json": True}]
    return [[*case.command, *words(**each)] for each in (told, *again)]


def look(case: Case, folder: Path) -> Seen:
    """Run a case in an empty folder, and see what it left behind."""
    said = [ask(arguments) for arguments in commands(case, folder)][-1]
    if case.command == TRAIN:
        return of_run(folder / "out")
    if case.command == CLIENTS:
        return Seen(exact=numbers(json.loads(said)))
    told = json.loads((folder / "out" / REPORT).read_text("utf-8") if case.command == THEORY else said)
    return of_theory(told) if case.command == THEORY else of_forecast(told)


def own_data(kind: str, folder: Path) -> Path:
    """Three clients of unlike sizes; from Python's own generator, whose numbers never change, in whole 1/256."""
    chance, rows = random.Random(kind), []
    for owner, size in enumerate((7, 9, 8)):
        for _ in range(size):
            x = [(1 + owner / 2) * round(256 * chance.uniform(-2, 2)) / 256 for _ in range(4)]
            y = float(x[0] + x[1] > 0) if kind == "classes" else round(256 * math.sin(x[0] + owner)) / 256
            rows.append((x, y, owner))
    path = folder / f"{kind}.npz"
    x, y, owner = zip(*rows, strict=True)
    np.savez(path, X=np.array(x), y=np.array(y), owner=np.array(owner))
    return path


# --- looking


def numbers(told: Any) -> Any:
    """Without prose."""
    if isinstance(told, dict):
        return {key: numbers(value) for key, value in told.items() if key not in PROSE}
    return [numbers(one) for one in told] if isinstance(told, list) else told


def of_run(folder: Path) -> Seen:
    """Rows, all tensors, bytes that travelled, and the data of each client."""
    seen = Seen()
    data = json.loads((folder / MANIFEST).read_text("utf-8"))["data"]
    for client in data["clients"]:
        seen.bits[f"data/{client['name']}"] = client.pop("sha256")[:20]
        seen.exact[f"data/{client['name']}"] = [client[key] for key in ("train", "val", "test", "noise")]
    lines = (folder / METRICS).read_bytes()
    seen.bits["rows"] = digest(lines)
    of_rows([json.loads(line) for line in lines.splitlines()], seen)
    of_checkpoint(folder, seen)
    return seen


def of_rows(rows: Sequence[Mapping[str, Any]], seen: Seen) -> None:
    """Mean accuracy and loss of the clients, by round, split and branch."""
    groups: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows:
        groups[f"rows/{row['round']}/{row['split']}/{row['branch']}"].append([row["accuracy"], row["loss"], row["n"]])
    for key, group in groups.items():
        *means, _ = np.mean(group, 0).tolist()
        seen.near[key], seen.exact[key] = means, [n for _, _, n in group]


def of_checkpoint(folder: Path, seen: Seen) -> None:
    """Every tensor by its role (shared, personal, peers), its client and its name, wherever it is kept."""
    tensors, about = opened(folder / CHECKPOINT)
    clients = about["clients"]
    seen.exact |= {key: about[key] for key in ("round", "clients", "publishing", "ledger", "skipped")}
    found: dict[tuple[str, str, str], np.ndarray] = {}
    for key, value in tensors.items():
        role, _, rest = key.partition("/")
        place, _, name = rest.partition("/") if role != "shared" else ("", "", rest)
        found[role, clients[int(place)] if place else "", name] = value
    for path in sorted(folder.glob(OWN)):
        tensors, own = opened(path)
        if about["elsewhere"].get(own["client"]) == own["round"]:
            found |= {("personal", own["client"], name): value for name, value in tensors.items()}
    together: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    bits: defaultdict[str, list[str]] = defaultdict(list)
    for (role, client, name), value in sorted(found.items()):
        kind = f"{client} {value.dtype} {value.shape}".encode()
        whose = client if len(clients) <= FEW else "*"
        bits["/".join((role, whose, name) if client else (role, name))].append(
            digest(kind + np.ascontiguousarray(value).tobytes())
        )
        together[f"{role}/{name}"].append(value.astype(np.float64).ravel())
    seen.bits |= {key: each[0] if len(each) == 1 else digest(" ".join(each).encode()) for key, each in bits.items()}
    seen.near |= {key: gist(np.concatenate(values)) for key, values in together.items()}


def gist(values: np.ndarray) -> list[float]:
    """Two numbers that tell much of many: their norm, and a sum with unlike weights, which sees their order."""
    return [float(np.linalg.norm(values)), float(values @ np.cos(np.arange(len(values))))]


def opened(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    with safe_open(path, "np") as file:
        about = json.loads(file.metadata()["about"])
        return {key: file.get_tensor(key) for key in file.keys()}, about  # noqa: SIM118 - not a mapping


def of_theory(told: Mapping[str, Any]) -> Seen:
    """Verdicts and eigenvalues; of all other numbers, many of which are rounding errors, the bits."""
    kept = numbers(told)
    exact = {claim["id"]: claim["verdict"] for claim in kept["claims"]}
    added = {
        f"{claim['id']}/{key}": digest(json.dumps(claim["evidence"].pop(key)).encode())
        for claim in kept["claims"]
        for key in ADDED_EVIDENCE.get(claim["id"], ())
    }
    near = {f"eigenvalues/{name}": list(values.values()) for name, values in kept["eigenvalues"].items()}
    bits = {key: digest(json.dumps(value).encode()) for key, value in kept.items() if key != "claims"}
    bits |= {claim["id"]: digest(json.dumps(claim).encode()) for claim in kept["claims"]}
    return Seen(exact, near, bits | added)


def of_forecast(told: Mapping[str, Any]) -> Seen:
    """Scores and gains to compare; who is first in words."""
    kept = numbers(told)
    exact = {"first": [kept["first"][key] for key in ("method", "second", "word")]}
    exact |= {row["name"]: [row["samples"], row["federation"]["word"]] for row in kept["clients"]}
    near = {f"scores/{row['name']}": list(row["scores"].values()) for row in kept["clients"]}
    near |= {"mean": list(kept["mean"].values())}
    bits = {key: digest(json.dumps(value).encode()) for key, value in kept.items()}
    return Seen(exact, near, bits)


# --- comparing


def differences(case: Case, seen: Seen, values: Mapping[str, Any], bits: Mapping[str, str] | None) -> list[str]:
    """What is not as recorded; without recorded bits, what is further off than rounding can explain."""
    wrong = list(unlike("", json.loads(json.dumps(seen.exact)), values["exact"]))
    for key in sorted({*seen.near, *values["near"]}):
        new, old = seen.near.get(key), values["near"].get(key)
        if new is None or old is None or len(new) != len(old):
            wrong.append(f"{key}: was {old}, is {new}")
        elif any(abs(a - b) > most for a, b, most in zip(new, old, allowed(case, key, old), strict=True)):
            wrong.append(f"{key}: was {old}, is {new}, which is not rounding")
    if bits is None:
        return wrong
    known = {key: value for key, value in seen.bits.items() if key in bits or not case.grows}
    return wrong + list(unlike("bits of ", known, bits))


def allowed(case: Case, key: str, old: Sequence[float]) -> list[float]:
    """How far each of these numbers may be off: by a share of its own size, or that of its tensor."""
    role = key.partition("/")[0]
    if role == "rows":
        return [ACCURACY, case.tolerance * abs(old[1])]
    if role in ROLES:
        return [case.tolerance * max(1.0, abs(old[0]))] * 2
    return [case.tolerance * max(1e-3, abs(one)) for one in old]


def unlike(what: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted({*new, *old}):
        if new.get(key) != old.get(key):
            yield f"{what}{key}: was {old.get(key)}, is {new.get(key)}"


def recorded() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text("utf-8")))


def bits_here(record: Mapping[str, Any]) -> Mapping[str, Mapping[str, str]] | None:
    """The digests of each case that were recorded on a machine of this kind; None if there was none.

    Machines are numbered, and what several of them gave alike is there once: ``bits[case]["0 2"]``.
    """
    if (here := machine()) not in record["machines"]:
        return None
    number = str(record["machines"].index(here))
    return {
        name: digests
        for name, kinds in record["bits"].items()
        for machines, digests in kinds.items()
        if number in machines.split()
    }
