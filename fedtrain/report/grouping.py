"""Group runs that differ only in their seeds, or share their test data, and name what tells groups apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedtrain.config.toml import TomlTable, flatten_tables
from fedtrain.report.records import RunRecord

IGNORED_SETTINGS = ("seed", "data.seed", "data.source", "machine.", "checkpoints.", "evaluation.")
"""Settings that do not make another configuration: they decide by chance or not at all what is trained."""
TRAINING_ONLY_SETTINGS = {"percent", "train_size", "val_size", "augment", "augment_val", "seed", "source"}
"""Settings of the data that leave the test data what they are (another seed draws them anew in the same way)."""
MAX_LABEL_LENGTH = 32
"""Settings in a label, in letters."""


def _is_ignored(key: str) -> bool:
    return key.startswith(IGNORED_SETTINGS)


def get_configuration_key(record: RunRecord) -> str:
    """The same for runs that differ in nothing but seeds and machine."""
    kept = {key: value for key, value in flatten_tables(record.settings).items() if not _is_ignored(key)}
    return repr((sorted(kept.items()), get_test_data_key(record)))


def get_test_data_key(record: RunRecord) -> str:
    """The same for runs whose accuracies may stand in one table."""
    kept = {key: value for key, value in record.settings["data"].items() if key not in TRAINING_ONLY_SETTINGS}
    return repr((record.data["title"], record.data["standin"], list(record.clients), sorted(kept.items())))


def group_records(records: Sequence[RunRecord], key: Callable[[RunRecord], str]) -> list[list[RunRecord]]:
    """Those of one key together, in the order of their first."""
    found: dict[str, list[RunRecord]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return list(found.values())


def build_labels(groups: Sequence[Sequence[RunRecord]]) -> list[str]:
    """The method, and whether it is unfinished; where that is not enough, settings that differ, or else the folder."""
    firsts = [runs[0] for runs in groups]
    names: list[str] = []
    for one in firsts:
        rivals = [flatten_tables(other.settings) for other in firsts if other.title == one.title]
        mine = flatten_tables(one.settings)
        apart = [k for k in mine if any(r.get(k) != mine[k] for r in rivals) and not _is_ignored(k)]
        words = ", ".join(f"{_shorten_key(key)} {_format_value(mine[key])}" for key in apart)
        name = f"{one.title} ({words})" if apart and len(words) <= MAX_LABEL_LENGTH else one.title
        names.append(name if one.finished else f"{name}, unfinished")
    twice = {name for name in names if names.count(name) > 1}
    return [f"{name}, {one.path.name}" if name in twice else name for name, one in zip(names, firsts, strict=True)]


def find_setting_differences(rows: Sequence[Sequence[RunRecord]]) -> tuple[dict[str, list[str]], TomlTable]:
    """The settings that differ between runs, with the values of each row; and those that all share."""
    each = [[flatten_tables(run.settings) for run in row] for row in rows]
    apart: dict[str, list[str]] = {}
    common: TomlTable = {}
    for key in dict.fromkeys(key for row in each for run in row for key in run):
        values = [list(dict.fromkeys(_format_value(run.get(key, "–")) for run in row)) for row in each]
        if len({word for row in values for word in row}) > 1:
            apart[key] = [", ".join(row) for row in values]
        else:
            common[key] = values[0][0]
    return apart, common


def _shorten_key(key: str) -> str:
    """Of a setting: its own name, or what it is the name of."""
    section, _, name = key.rpartition(".")
    return section if name == "name" else name


def _format_value(value: object) -> str:
    """As TOML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
