"""Which runs are alike: in all but their seeds, or in their test data; and what tells the others apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedtrain.report.records import Record
from fedtrain.tables import TomlTable, flatten_tables

ASIDE = ("seed", "data.seed", "data.source", "machine.", "checkpoints.", "evaluation.")
"""Settings that do not make another configuration: they decide by chance or not at all what is trained."""
TRAINING_ONLY = {"percent", "train_size", "val_size", "augment", "augment_val", "seed", "source"}
"""Settings of the data that leave the test data what they are (another seed draws them anew in the same way)."""
LONGEST = 32
"""Settings in a label, in letters."""


def _aside(key: str) -> bool:
    return key.startswith(ASIDE)


def configuration(record: Record) -> str:
    """The same for runs that differ in nothing but seeds and machine."""
    kept = {key: value for key, value in flatten_tables(record.tables).items() if not _aside(key)}
    return repr((sorted(kept.items()), testing(record)))


def testing(record: Record) -> str:
    """The same for runs whose accuracies may stand in one table."""
    kept = {key: value for key, value in record.tables["data"].items() if key not in TRAINING_ONLY}
    return repr((record.data["title"], record.data["standin"], list(record.clients), sorted(kept.items())))


def group(records: Sequence[Record], key: Callable[[Record], str]) -> list[list[Record]]:
    """Those of one key together, in the order of their first."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return list(found.values())


def labels(groups: Sequence[Sequence[Record]]) -> list[str]:
    """The method, and whether it is unfinished; where that is not enough, settings that differ, or else the folder."""
    firsts = [runs[0] for runs in groups]
    names: list[str] = []
    for one in firsts:
        rivals = [flatten_tables(other.tables) for other in firsts if other.title == one.title]
        mine = flatten_tables(one.tables)
        apart = [k for k in mine if any(r.get(k) != mine[k] for r in rivals) and not _aside(k)]
        words = ", ".join(f"{_short(key)} {_word(mine[key])}" for key in apart)
        name = f"{one.title} ({words})" if apart and len(words) <= LONGEST else one.title
        names.append(name if one.finished else f"{name}, unfinished")
    twice = {name for name in names if names.count(name) > 1}
    return [f"{name}, {one.path.name}" if name in twice else name for name, one in zip(names, firsts, strict=True)]


def differences(rows: Sequence[Sequence[Record]]) -> tuple[dict[str, list[str]], TomlTable]:
    """The settings that differ between runs, with the values of each row; and those that all share."""
    each = [[flatten_tables(run.tables) for run in row] for row in rows]
    apart: dict[str, list[str]] = {}
    common: TomlTable = {}
    for key in dict.fromkeys(key for row in each for run in row for key in run):
        values = [list(dict.fromkeys(_word(run.get(key, "–")) for run in row)) for row in each]
        if len({word for row in values for word in row}) > 1:
            apart[key] = [", ".join(row) for row in values]
        else:
            common[key] = values[0][0]
    return apart, common


def _short(key: str) -> str:
    """Of a setting: its own name, or what it is the name of."""
    section, _, name = key.rpartition(".")
    return section if name == "name" else name


def _word(value: object) -> str:
    """As TOML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
