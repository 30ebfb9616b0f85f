"""Plan the runs of a request: which rows, blocks and seeds, each with its configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

from fedtrain.config.data import DataSettings
from fedtrain.config.method_tables import get_method_class
from fedtrain.config.presets import resolve_preset
from fedtrain.config.schema import Config, SelectionRule
from fedtrain.config.toml import TomlTable, flatten_tables, merge_tables
from fedtrain.data.datasets import get_dataset_info
from fedtrain.data.source import LoadedDataset, load_dataset
from fedtrain.reproduction.paper_item import Block, MethodVariant, PaperItem, load_paper_item
from fedtrain.reproduction.request import Request, parse_seeds
from fedtrain.reproduction.run_spec import RunSpec
from theory.errors import InputError

RESERVED_SETTINGS = {
    "seed": "seeds",
    "data.source": "data",
    "data.dataset": "dataset",
    "method.name": "methods",
    "server.rounds": "rounds",
    "evaluation.every": "eval_every",
    "evaluation.report": "rule",
}
"""Settings on which the table itself depends, and the option that tells it of them."""
DOMAIN_DATASETS = ("digits", "office", "domainnet")
"""Data sets that can take each other's place: a domain for each client."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A table or figure with the rows and blocks that were asked for, and the cells that it takes."""

    paper_item: PaperItem
    request: Request
    seeds: tuple[int, ...]
    run_specs: dict[tuple[int, int, int], RunSpec]
    """By number of block, number of row, and seed."""
    sources: dict[str, LoadedDataset]
    """The data, by data set."""
    paper_configs: tuple[Config, ...]
    """What the paper has, for each block."""
    replaced_dataset: str = ""
    """The data set of the paper, if another one takes its place."""

    def get_rule(self, block: int) -> SelectionRule:
        """Which accuracy counts."""
        own = self.run_specs[block, 0, self.seeds[0]].config.evaluation.report
        return self.request.rule or self.paper_item.rule or own


DatasetFinder = Callable[[str], LoadedDataset]


def make_dataset_finder(request: Request) -> DatasetFinder:
    """Looks each data set up once."""
    return cache(partial(_find_dataset, request))


def _find_dataset(request: Request, name: str) -> LoadedDataset:
    return load_dataset(DataSettings(dataset=name, source=request.source), request.data_dir)


def build_plan(name: str, request: Request, find_dataset: DatasetFinder) -> Plan:
    """The cells of a table or figure."""
    for key in flatten_tables(request.sets):
        if option := RESERVED_SETTINGS.get(key):
            raise InputError(f"{key} is not for other settings: use {option} for it", options=(option,))
    whole = load_paper_item(name)
    blocks, instead_of = _select_blocks(whole, request.dataset)
    chosen = replace(whole, rows=_select_rows(whole, request.methods), blocks=blocks)
    seeds = parse_seeds(request.seeds, whole.seeds)
    found = {block.dataset: find_dataset(block.dataset) for block in blocks}
    full = tuple(resolve_preset(block.preset, merge_row_settings(block, chosen.rows[0])) for block in blocks)
    cells: dict[tuple[int, int, int], RunSpec] = {}
    for b, block in enumerate(blocks):
        for r, row in enumerate(chosen.rows):
            cell = _build_run_spec(block, row, request, found[block.dataset], curve=whole.layout == "rounds")
            _check_rule(whole, request.rule, cell.config)
            cells |= {(b, r, seed): cell.with_seed(seed) for seed in seeds}
    return Plan(chosen, request, seeds, cells, found, full, instead_of)


def _check_rule(shown: PaperItem, rule: SelectionRule | None, config: Config) -> None:
    if rule and shown.layout == "rounds":
        raise InputError(f"rule {rule}: {shown.name} shows rounds as they come; leave it out", options=("rule",))
    if (rule == "best-by-validation" and not config.data.val_size) or (
        rule == "window" and not config.evaluation.window
    ):
        raise InputError(
            f"rule {rule}: {shown.name} has nothing to report by it; use last, or leave it out", options=("rule",)
        )


def merge_row_settings(block: Block, row: MethodVariant) -> TomlTable:
    """What a row on a block has beside the block's preset."""
    return merge_tables(block.set, {"method": {"name": row.method}}, row.set, row.per_dataset.get(block.dataset, {}))


def _build_run_spec(block: Block, row: MethodVariant, request: Request, found: LoadedDataset, curve: bool) -> RunSpec:
    preset = f"{block.preset}-published" if request.legacy else block.preset
    asked: TomlTable = {"data": {"source": "standin" if found.standin else "real"}}
    if request.rounds is not None:
        asked["server"] = {"rounds": request.rounds}
    if request.eval_every is not None:
        asked = merge_tables(asked, {"evaluation": {"every": request.eval_every}})
    quirks = merge_tables(block.legacy, row.legacy) if request.legacy else {}
    given = merge_tables(merge_row_settings(block, row), quirks, asked, request.sets)
    config = resolve_preset(preset, given, standin=found.standin)
    if config.data.val_size and not curve:  # as the published code does: testing takes longer than validating
        given = merge_tables({"evaluation": {"test": "chosen"}}, given)
        config = resolve_preset(preset, given, standin=found.standin)
    return RunSpec(preset, given, config, found.standin, curve)


def _select_rows(whole: PaperItem, methods: tuple[str, ...]) -> tuple[MethodVariant, ...]:
    """All rows, or those of these methods. A table that compares methods has room for any that the paper lacks."""
    for name in methods:
        get_method_class(name)
    if not methods:
        return whole.rows
    there = dict.fromkeys(row.method for row in whole.rows)
    compares_methods = len(there) == len(whole.rows) > 1
    more = [MethodVariant(name) for name in dict.fromkeys(methods) if name not in there] if compares_methods else []
    rows = (*(row for row in whole.rows if row.method in methods), *more)
    titles = Counter(row.name for row in rows)
    rows = tuple(
        replace(row, label=f"{row.name} ({row.method})") if titles[row.name] > 1 and row in more else row
        for row in rows
    )
    if not rows:
        raise InputError(f"{whole.name} has no row of {', '.join(methods)}; its methods are {', '.join(there)}")
    return rows


def _select_blocks(whole: PaperItem, wanted: str | None) -> tuple[tuple[Block, ...], str]:
    """All blocks; or those on the wanted data set; or, if there are none, the only one moved there."""
    if wanted is None:
        return whole.blocks, ""
    name = get_dataset_info(wanted).name
    if here := tuple(block for block in whole.blocks if block.dataset == name):
        return here, ""
    old = whole.blocks[0]
    if len(whole.blocks) > 1 or whole.layout != "clients" or name not in DOMAIN_DATASETS:
        there = ", ".join(dict.fromkeys(block.dataset for block in whole.blocks))
        raise InputError(f"{whole.name} cannot be run on {name}; it is on {there}")
    return (Block(name, set=old.set, legacy=old.legacy),), get_dataset_info(old.dataset).title
