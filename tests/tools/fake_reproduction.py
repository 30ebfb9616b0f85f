"""Tables and figures of the paper on data of the published sizes without an image, and runs that were never made."""

from __future__ import annotations

import random
from functools import cache

import numpy as np

from fedtrain.data.build import assemble_federation
from fedtrain.data.client_data import SamplePool
from fedtrain.data.datasets import DATASETS
from fedtrain.data.source import LoadedDataset
from fedtrain.report.records import read_record
from fedtrain.reproduction import paper_numbers
from fedtrain.reproduction.deviations import PUBLISHED_TEST_SIZES
from fedtrain.reproduction.jobs import build_jobs
from fedtrain.reproduction.plan import build_plan
from fedtrain.reproduction.request import Request
from fedtrain.reproduction.results import build_comparison_tables
from fedtrain.runs.folder import SUMMARY_FILE, RunFolder
from fedtrain.runs.manifest import describe_clients

STANDIN_REQUEST = Request(source="standin")

BRANCHES = {"fedco2": ("online", "offline"), "fedrod": ("generic", "personal"), "copa": ("own", "peers")}


def make_published_data(name):
    """Data of the published sizes, without an image."""
    data = DATASETS[name]
    sizes = PUBLISHED_TEST_SIZES.get(name) or data.test_sizes
    train = np.arange(50_000) % len(data.classes)
    test = {domain: np.arange(sizes[domain]) % len(data.classes) for domain in data.domains}
    pools = [
        SamplePool(domain, title, train, test[domain], lambda *_: None, (3, 28, 28))
        for domain, title in data.domains.items()
    ]
    return LoadedDataset(data, pools, data.title, False, ())


def make_plan(name, look=make_published_data, **request):
    return (
        build_plan(name, Request(**request), look)
        if request or look is not make_published_data
        else make_full_plan(name)
    )


@cache
def make_full_plan(name):
    return build_plan(name, Request(), make_published_data)


@cache
def outline_clients(settings, look):
    return describe_clients(assemble_federation(settings, look(settings.dataset).without_inputs()))


def write_fake_run(job, level=0.8, sums="same", look=make_published_data):
    """The folder of a finished run with made-up accuracies."""
    config = job.spec.config
    rounds, chance, about = config.server.rounds, random.Random(job.spec.identity), outline_clients(config.data, look)
    folder = RunFolder(job.folder)
    folder.begin(config, {"data": about | {"sha256": sums}})
    rows = []
    for k, client in enumerate(one["name"] for one in about["clients"]):
        top = level - 0.02 * (k % 5) + chance.gauss(0, 0.01)
        for j, branch in enumerate(("fused", *BRANCHES.get(config.method_name, ()))):
            for round in (r for r in range(1, rounds + 1) if config.evaluation.is_due(r, rounds)):
                for split in ("val", "test") if config.data.val_size else ("test",):
                    accuracy = (top - 0.02 * j) * round / (round + 1)
                    place = {"round": round, "client": client, "split": split, "branch": branch}
                    rows.append(place | {"accuracy": accuracy, "loss": 1.0, "n": 100})
    folder.append_rows(rows)
    cost = {"bytes": {"up": {"total": 1}, "down": {"total": 1}}, "seconds": 1.0}
    folder.write_json(SUMMARY_FILE, {"finished": True, "rounds": rounds, **cost})


def build_fake_results(one, place, level=0.8, numbers=None, leave=()):
    """Fake all runs but some, and read them."""
    found = {}
    for identity, job in build_jobs([one], place).items():
        if job.spec.config.method_name not in leave:
            if not job.finished:
                write_fake_run(job, level, look=one.sources.__getitem__)
            found[identity] = read_record(job.folder)
    return found, build_comparison_tables(
        one, found, paper_numbers.load_paper_numbers(one.paper_item.name) if numbers is None else numbers
    )
