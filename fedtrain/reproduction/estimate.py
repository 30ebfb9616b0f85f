"""How long cells will take here, roughly: flops in outline, the machine's speed, the sizes of the clients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from fedtrain.analysis.cost import EFFICIENCY, FlopCounts, count_flops, estimate_seconds_left, measure_matmul_rate
from fedtrain.config.data import DataSettings
from fedtrain.config.schema import Config, ModelSettings
from fedtrain.data.datasets import get_dataset_info
from fedtrain.data.partition.assign import assign_samples
from fedtrain.data.source import LoadedDataset
from fedtrain.federated.server import count_heads_sent, sample_cohort
from fedtrain.methods import AnyMethod
from fedtrain.reproduction.plan import DOMAIN_DATASETS
from fedtrain.reproduction.run_spec import RunSpec
from fedtrain.runs.experiment import get_model_builder

EVEN_ALPHA = 100.0
"""A concentration that needs no second draw: clients are as large on average as with any other."""


def estimate_run_seconds(cell: RunSpec, found: LoadedDataset) -> float:
    """Of the whole run, right within a factor of two or three."""
    config = cell.config
    clients, train, test = count_client_samples(replace(config.data, seed=0), found, config.evaluation.test == "always")
    shape = found.pools[0].input_shape
    flops = count_flops_per_sample(
        config.method, config.model, config.data.dataset, shape, clients, config.server.peers, config.local.epochs
    )
    chosen = len(sample_cohort([str(k) for k in range(clients)], config.server.participation, 0, 0))
    rate = EFFICIENCY * measure_matmul_rate(config.machine.resolve_device())
    evaluation = (flops.prediction * test + flops.preparation * train) / rate
    return estimate_seconds_left(config, (flops.training * chosen * train / clients / rate, evaluation))


def estimate_total_seconds(cells: Iterable[RunSpec], found: dict[str, LoadedDataset]) -> float:
    """Of several, each identity once."""
    each = {cell.identity: cell for cell in cells}
    alike: dict[Config, list[RunSpec]] = defaultdict(list)  # but for the seed, on which time does not depend
    for cell in each.values():
        alike[replace(cell.config, seed=0)].append(cell)
    return sum(
        len(cells) * estimate_run_seconds(cells[0], found[config.data.dataset]) for config, cells in alike.items()
    )


@cache
def count_client_samples(data: DataSettings, found: LoadedDataset, always: bool) -> tuple[int, int, int]:
    """How many clients there are, and their training and evaluated samples together; test data always, or hardly."""
    even = replace(data, alpha=EVEN_ALPHA, least_per_class=1)
    parts = assign_samples(even if data.dataset in DOMAIN_DATASETS else replace(data, skew="iid"), found.pools)
    evaluated = sum(len(part.test) * always + len(part.val) for part in parts)
    return len(parts), sum(len(part.train) for part in parts), evaluated


@cache
def count_flops_per_sample(
    method: AnyMethod,
    model: ModelSettings,
    name: str,
    shape: tuple[int, ...],
    clients: int,
    peers: int,
    epochs: int,
) -> FlopCounts:
    """Of samples of a data set."""
    make = get_model_builder(model, method, len(get_dataset_info(name).classes), shape)
    return count_flops(method, make, shape, 1 + count_heads_sent(clients, peers), epochs)
