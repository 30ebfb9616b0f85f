"""What is less, or other, than in the paper, in words: without marks of agreement, and in every title."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedtrain.config.data import SETTINGS_OF_SKEW
from fedtrain.config.schema import Config
from fedtrain.config.toml import flatten_tables
from fedtrain.data.datasets import DATASETS, DatasetInfo
from fedtrain.data.source import LoadedDataset
from fedtrain.reproduction.paper_item import load_paper_item
from fedtrain.reproduction.plan import Plan
from fedtrain.reproduction.run_spec import affects_result

PUBLISHED_TEST_SIZES = {
    "digits": {"mnist": 14_000, "svhn": 19_858, "usps": 1_860, "synthdigits": 97_791, "mnist_m": 14_000},
    "cifar10": {"cifar10": 10_000},
    "cifar100": {"cifar100": 10_000},
}
"""Test images of the published splits; of the other data sets the catalogue has them."""
RULE_PHRASES = {
    "last": "the last round",
    "best-by-validation": "the round of the best mean validation accuracy",
    "window": "the mean over the last rounds",
}


def list_deviations(plan: Plan, missing: int = 0, blocks: Sequence[int] | None = None) -> list[str]:
    """Empty if the runs are as in the paper; ``missing`` of them have no result. Of all blocks or of these."""
    chosen = range(len(plan.paper_item.blocks)) if blocks is None else blocks
    words = [_describe_replacement(plan)] if plan.replaced_dataset else []
    if len(plan.paper_item.blocks) < len(load_paper_item(plan.paper_item.name).blocks):
        words.append(f"{_join_names([block.name for block in plan.paper_item.blocks])} only")
    pairs = [(plan.run_specs[b, 0, plan.seeds[0]].config, plan.paper_configs[b]) for b in chosen]
    words += _describe_rounds(pairs)
    seeds, paper = len(plan.seeds), len(plan.paper_item.seeds)
    words += [f"{seeds} of {paper} seeds"] * (seeds < paper)
    if missing:
        runs = len({cell.identity for (b, _, _), cell in plan.run_specs.items() if b in chosen})
        words.append(f"{runs - missing} of {runs} runs")
    for cell, full in pairs:
        if cell.evaluation.every > full.evaluation.every and (cell.data.val_size or plan.paper_item.layout == "rounds"):
            words.append(f"evaluated every {cell.evaluation.every} rounds")
    for name in _drop_duplicates([plan.paper_item.blocks[b].dataset for b in chosen]):
        data, found = DATASETS[name], plan.sources[name]
        words += [f"{data.title} stand-in images"] if found.standin else _describe_other_images(data, found)
    asked_rule = plan.request.rule
    if asked_rule and any(asked_rule != (plan.paper_item.rule or full.evaluation.report) for _, full in pairs):
        words.append(f"by {RULE_PHRASES[asked_rule]}")
    words += [f"{key} = {value}" for key, value in flatten_tables(plan.request.sets).items() if affects_result(key)]
    return _drop_duplicates(words)


def _describe_replacement(plan: Plan) -> str:
    """The concentration of the paper's title is another data set's."""
    block, data = plan.paper_item.blocks[0], plan.run_specs[0, 0, plan.seeds[0]].config.data
    skewed = f" (α {data.alpha})" * ("alpha" in SETTINGS_OF_SKEW[data.skew])
    return f"on {block.name}{skewed} instead of {plan.replaced_dataset}"


def _describe_rounds(pairs: Sequence[tuple[Config, Config]]) -> list[str]:
    """Of all, or of the data sets that have other numbers than the paper."""
    notes = {}
    for cell, full in pairs:
        some, paper = cell.server.rounds, full.server.rounds
        words = f"{some} of {paper} rounds" if some < paper else f"{some} rounds instead of {paper}"
        notes[cell.data.dataset] = "" if some == paper else words
    everywhere = len(set(notes.values())) == 1
    return _drop_duplicates([w if everywhere else f"{w} on {DATASETS[name].title}" for name, w in notes.items() if w])


def _describe_other_images(data: DatasetInfo, found: LoadedDataset) -> list[str]:
    """Subsets and replacements by their own titles, then those whose test images are not the published ones."""
    titles = (pool.title for pool in found.pools if pool.title != data.domains[pool.domain])
    replaced = [re.sub(r"\(subset of .*\)", "(subset)", title) for title in titles]
    ours = " ".join(note for note in found.notes if "fedco2's own" in note)
    sizes = PUBLISHED_TEST_SIZES.get(data.name) or data.test_sizes
    split = [
        data.domains[pool.domain]
        for pool in found.pools
        if pool.title == data.domains[pool.domain] and (pool.title in ours or len(pool.test) != sizes[pool.domain])
    ]
    return [*replaced, *([f"another split of {_join_names(split)}"] if split else [])]


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _drop_duplicates(words: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(words))
