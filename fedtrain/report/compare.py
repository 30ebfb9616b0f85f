"""Two configurations side by side: each client's difference, and whether it is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from fedtrain.report.grouping import build_labels, get_configuration_key, get_test_data_key
from fedtrain.report.intervals import load_run_predictions
from fedtrain.report.records import FUSED, RunRecord
from fedtrain.report.sample_test import SampleTestEntry, compare_samples
from fedtrain.report.significance import DifferenceEstimate, run_paired_tests, run_two_proportion_test
from fedtrain.report.tables import RULE_DESCRIPTIONS, ResultTable, build_result_tables
from theory.errors import InputError

RunPair = tuple[RunRecord, RunRecord]
MEAN_ROW = "mean of all"


class ComparedSide(TypedDict):
    """One side of a comparison."""

    label: str
    runs: list[str]


class ComparedClient(TypedDict):
    """Accuracies of both sides on a client's data, and B - A; None where there is nothing to judge by."""

    name: str
    a: float
    b: float
    difference: float
    std: float | None
    low: float | None
    high: float | None
    p: float | None
    wilcoxon: float | None


class PairedSampleTests(TypedDict):
    """McNemar's test of a pair of runs: their seeds, and a row for each client and one for all."""

    pair: list[str]
    rows: list[SampleTestEntry]


class ComparisonResult(TypedDict):
    """Two configurations compared, as JSON holds it."""

    title: str
    standin: bool
    rule: str
    rule_words: str
    a: ComparedSide
    b: ComparedSide
    pairs: list[list[str]]
    paired: bool
    """Whether several runs with the same seeds are compared pair by pair."""
    test: str
    """How it was tested, in words."""
    notes: list[str]
    higher: int
    """Clients on which B is higher."""
    samples: list[PairedSampleTests]
    """Of each pair that has saved its predictions."""
    rows: list[ComparedClient]
    """One for each client, and one for their mean."""


def compare_runs(a: Sequence[RunRecord], b: Sequence[RunRecord], rule: str | None = None) -> ComparisonResult:
    """B - A by client, pairs matched by their seeds; as JSON can hold it."""
    for side, records in (("A", a), ("B", b)):
        _check_one_configuration(side, records)
    if get_test_data_key(a[0]) != get_test_data_key(b[0]):
        titles = [f"{side} ({one.path}) on {one.data['title']}" for side, one in (("A", a[0]), ("B", b[0]))]
        raise InputError(f"{' and '.join(titles)} were not tested on the same clients and data; choose runs that were")
    (table,) = build_result_tables([*a, *b], rule)
    pairs = pair_by_seed(a, b)
    several = len(pairs) > 1
    names, samples = build_labels([a, b]), _compare_samples(pairs)
    rows = [_compare_client(name, several, pairs, table) for name in [*table.clients, MEAN_ROW]]
    return {
        "title": table.title,
        "standin": table.standin,
        "rule": table.rule,
        "rule_words": RULE_DESCRIPTIONS[table.rule],
        "a": {"label": names[0], "runs": [str(one.path) for one in a]},
        "b": {"label": names[1], "runs": [str(one.path) for one in b]},
        "pairs": [[_format_seeds(one), _format_seeds(other)] for one, other in pairs],
        "paired": several,
        "test": _describe_test(len(pairs), bool(samples)),
        "notes": [*_list_unpaired(a, b, pairs), *table.cautions],
        "higher": sum(row["difference"] > 0 for row in rows[:-1]),
        "samples": samples,
        "rows": rows,
    }


def pair_by_seed(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> list[RunPair]:
    """Runs with the same seeds; a single run on each side are a pair whatever their seeds."""
    pairs = [(one, other) for one in a for other in b if one.seeds == other.seeds]
    if not pairs and len(a) == len(b) == 1:
        return [(a[0], b[0])]
    if not pairs:
        raise InputError(
            "no run of A has the seeds of a run of B; train both with the same seeds", options=("seed", "data_seed")
        )
    return pairs


def _check_one_configuration(side: str, records: Sequence[RunRecord]) -> None:
    for one in records[1:]:
        if get_configuration_key(one) != get_configuration_key(records[0]):
            raise InputError(
                f"{side}: {one.path} differs from {records[0].path} in more than its seed; name runs of one "
                "configuration on each side"
            )
    seeds = [one.seeds for one in records]
    for one in records:
        if seeds.count(one.seeds) > 1:
            raise InputError(f"{side}: two runs have seed {_format_seeds(one)}; name one of them")


def _compare_client(name: str, several: bool, pairs: Sequence[RunPair], table: ResultTable) -> ComparedClient:
    """One client, or their mean."""
    clients = table.clients if name == MEAN_ROW else [name]
    sides = [
        [[run.rules[table.rule]["clients"][c][FUSED] for c in clients] for run in side]
        for side in zip(*pairs, strict=True)
    ]
    a, b = ([sum(run) / len(clients) for run in side] for side in sides)
    verdict: DifferenceEstimate
    if several:
        verdict = run_paired_tests(a, b)
    else:
        sizes = ([run.clients[c] for c in clients] for run in pairs[0])
        verdict = run_two_proportion_test(sides[0][0], sides[1][0], *sizes)
    return {
        "name": name,
        "a": sum(a) / len(a),
        "b": sum(b) / len(b),
        "difference": verdict.difference,
        "std": verdict.std,
        "low": verdict.low,
        "high": verdict.high,
        "p": verdict.p,
        "wilcoxon": verdict.wilcoxon,
    }


def _compare_samples(pairs: Sequence[RunPair]) -> list[PairedSampleTests]:
    """The pairs of which both runs have saved what they say of each sample."""
    tests: list[PairedSampleTests] = []
    for one, other in pairs:
        a, b = load_run_predictions(one.path), load_run_predictions(other.path)
        if a is not None and b is not None:
            rows = [test.to_dict() for test in compare_samples(a, b)]
            tests.append({"pair": [_format_seeds(one), _format_seeds(other)], "rows": rows})
    return tests


def _describe_test(pairs: int, has_samples: bool) -> str:
    if pairs > 1:
        return (
            f"{pairs} pairs of runs with the same seeds: paired t test with its interval, and Wilcoxon's signed-rank "
            f"test, whose p cannot be below {2 ** (1 - pairs):.2g} with {pairs} pairs."
        )
    same = " (McNemar's test does not)" if has_samples else ", because the runs saved no predictions"
    return (
        "One run each, so this is approximate: each accuracy is taken as a share of so many independent test images "
        f"(z test of two proportions). That both saw the same images is ignored{same}; "
        "and it says nothing about how much another seed would change. For a paired test name several seeds of each."
    )


def _list_unpaired(a: Sequence[RunRecord], b: Sequence[RunRecord], pairs: Sequence[RunPair]) -> list[str]:
    used = [one.path for pair in pairs for one in pair]
    notes = [
        f"{one.path} has no partner with seed {_format_seeds(one)} and is left out."
        for one in [*a, *b]
        if one.path not in used
    ]
    if any(one.seeds != other.seeds for one, other in pairs):
        notes.append("The two runs have different seeds.")
    return notes


def _format_seeds(record: RunRecord) -> str:
    """The seed, and that of the data."""
    return "{} (data {})".format(*record.seeds)
