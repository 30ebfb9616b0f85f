"""Read the record of a run from its folder: settings, data, every evaluation, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedtrain.aggregators import AGGREGATORS
from fedtrain.config.method_tables import fill_default_options
from fedtrain.config.schema import SECTIONS, EvaluationSettings
from fedtrain.config.toml import TomlTable, format_error, parse_section, serialize_section
from fedtrain.methods import METHODS
from fedtrain.runs.checkpoint import build_damage_error
from fedtrain.runs.folder import CONFIG_FILE, LAST_CHECKPOINT, SUMMARY_FILE, RunFolder
from fedtrain.runs.json_types import DataDescription, Manifest, MetricRow, RuleResult
from fedtrain.runs.selection import summarise_rows
from fedtrain.serialization.checked_file import CORRUPT_FILE_ERRORS, read_header
from theory.errors import InputError

DEFAULT_AGGREGATOR = "mean"
"""That of runs that mention none."""
FUSED = "fused"
"""The branch that is the prediction of every method."""


class NotEvaluatedError(InputError):
    """A run of which no round has been evaluated: nothing is wrong with it, and there is nothing to report."""


@dataclass(frozen=True)
class RunRecord:
    """A run as its folder tells it, finished or not."""

    path: Path
    settings: TomlTable
    """Every setting; those that an older version did not know have today's default."""
    manifest: Manifest
    test: list[MetricRow]
    """The rows of the test data."""
    val: list[MetricRow]
    """The rows of the validation data."""
    rules: dict[str, RuleResult]
    finished: bool
    rounds_done: int
    """How many rounds ``bytes`` and ``seconds`` are of."""
    bytes: dict[str, int]
    """Up and down."""
    seconds: float

    @property
    def title(self) -> str:
        """Of the method; of one outside fedco2 as the manifest has it, for a report loads nobody's code."""
        name = str(self.settings["method"]["name"])
        if name in METHODS:
            return METHODS[name].title
        titles = [one.get("title") for one in self.manifest.get("extensions", ()) if one.get("name") == name]
        return str(titles[0]) if titles and titles[0] else name

    @property
    def data(self) -> DataDescription:
        """What the manifest says of the data."""
        return self.manifest["data"]

    @property
    def class_counts(self) -> dict[str, list[int]] | None:
        """How many training images of each class every client holds, if the manifest says so."""
        try:
            found = {str(one["name"]): [int(count) for count in one["train"]] for one in self.data["clients"]}
            classes = len(self.data["classes"])
        except (KeyError, TypeError, ValueError):
            return None
        whole = found and classes and all(len(counts) == classes and min(counts) >= 0 for counts in found.values())
        return found if whole and any(map(any, found.values())) else None

    @property
    def seeds(self) -> tuple[int, int]:
        """Of the networks and of the data."""
        return int(self.settings["seed"]), int(self.settings["data"]["seed"])

    @property
    def rounds(self) -> int:
        """How many there were to be."""
        return int(self.settings["server"]["rounds"])

    @property
    def last_evaluated_round(self) -> int:
        """The last evaluated round."""
        return max(int(row["round"]) for row in (*self.test, *self.val))

    @property
    def clients(self) -> dict[str, int]:
        """How many test images each has, in the order of the run."""
        return {row["client"]: row["n"] for row in self.test}

    @property
    def branches(self) -> list[str]:
        """The prediction first."""
        return list(next(iter(self.rules.values()))["mean"])

    @property
    def has_untested_rounds(self) -> bool:
        """Whether there are rounds in which test data waited for a better one."""
        return bool({row["round"] for row in self.val} - {row["round"] for row in self.test})

    @cached_property
    def curves(self) -> dict[tuple[str, str, str], dict[int, float]]:
        """Accuracy by round, of each split (test and val), client and branch."""
        found: dict[tuple[str, str, str], dict[int, float]] = {}
        for row in (*self.test, *self.val):
            found.setdefault((row["split"], row["client"], row["branch"]), {})[row["round"]] = row["accuracy"]
        return found

    @property
    def reporting_rule(self) -> str:
        """The rule that the run itself reports by."""
        wanted = str(self.settings["evaluation"]["report"])
        return wanted if wanted in self.rules else next(iter(self.rules))


def read_record(path: Path) -> RunRecord:
    """Read all but the tensors; refused if there is nothing to report yet."""
    folder = RunFolder(path)
    given, manifest, rows = (
        folder.load_tables(),
        folder.read_manifest(),
        drop_partial_rounds(folder.load_rows()),
    )
    try:
        tables = fill_default_settings(given)
        evaluation = parse_section(EvaluationSettings, tables["evaluation"], "evaluation")
        rounds = int(tables["server"]["rounds"])
        if not all(0 <= row["accuracy"] <= 1 for row in rows):
            raise ValueError("an accuracy is not between 0 and 1")
        rules = summarise_rows(rows, lambda round: evaluation.is_in_window(round, rounds))
        data = manifest["data"]
        known: DataDescription = {
            "title": str(data["title"]),
            "standin": bool(data["standin"]),
            "notes": [str(note) for note in data.get("notes", ())],
        }
        if any(FUSED not in rule["mean"] for rule in rules.values()):
            raise ValueError("no row has the branch fused")
        manifest["data"] = {**data, **known}
        done, up, down, seconds = _read_cost(folder)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise build_damaged_run_error(path, error) from None
    if not rules:
        raise NotEvaluatedError(
            f"{path}: no round has been evaluated yet; wait for the first, or go on with `fedco2 train --resume {path}`"
        )
    test, val = ([row for row in rows if row["split"] == split] for split in ("test", "val"))
    return RunRecord(
        path, tables, manifest, test, val, rules, folder.is_finished, done, {"up": up, "down": down}, seconds
    )


def build_damaged_run_error(path: Path, error: Exception) -> InputError:
    """What to say of a run whose files can be read and make no sense."""
    return InputError(f"{path}: its records are damaged ({format_error(error)}); leave it out or run it anew")


def list_run_folders(place: Path) -> list[Path]:
    """Those of the runs that a folder holds."""
    return sorted(config.parent for config in place.glob(f"*/{CONFIG_FILE}"))


def find_runs(path: Path) -> list[Path]:
    """The folder itself, or those of the runs that it holds."""
    return ([] if RunFolder(path).has_run else list_run_folders(path)) or [path]


def drop_partial_rounds(rows: list[MetricRow]) -> list[MetricRow]:
    """Without what was being written when the process was killed: of each split a round has all rows, or none."""
    found: dict[tuple[int, str], set[tuple[str, str]]] = {}
    for row in rows:
        found.setdefault((row["round"], row["split"]), set()).add((row["client"], row["branch"]))
    whole: dict[str, set[tuple[str, str]]] = {}
    for (_, split), there in found.items():
        whole[split] = max(whole.get(split, set()), there, key=len)
    return [row for row in rows if found[row["round"], row["split"]] == whole[row["split"]]]


def fill_default_settings(given: TomlTable) -> TomlTable:
    """With the defaults of what is not given, but not checked: the machine may be another one than the run's."""
    kind = METHODS.get(given.get("method", {}).get("name", "fedco2"))  # None: not ours, its options are all given
    tables: TomlTable = {"seed": given.get("seed", 1)}
    for name, section in SECTIONS.items():
        tables[name] = {**serialize_section(section()), **given.get(name, {})}
    server = {"name": DEFAULT_AGGREGATOR, **given.get("aggregator", {})}
    server_kind = AGGREGATORS.get(server["name"])
    return tables | {
        "method": fill_default_options(kind, given.get("method", {})),
        "aggregator": {**(serialize_section(server_kind()) if server_kind else {}), **server},
    }


def _read_cost(folder: RunFolder) -> tuple[int, int, int, float]:
    """Rounds, bytes up and down, and seconds: of the summary, else of the last checkpoint, else of nothing."""
    if (folder.path / SUMMARY_FILE).exists():
        summary = folder.read_summary()
        totals = (int(summary["bytes"][way]["total"]) for way in ("up", "down"))
        return int(summary["rounds"]), *totals, float(summary["seconds"])  # type: ignore[return-value]
    path = folder.path / LAST_CHECKPOINT
    if not path.exists():
        return 0, 0, 0, 0.0
    try:
        about = read_header(path)
        up, down = (sum(map(int, about["ledger"][way].values())) for way in ("up", "down"))
        return int(about["round"]), up, down, float(about["seconds"])
    except CORRUPT_FILE_ERRORS as error:
        raise build_damage_error(path, error) from None
