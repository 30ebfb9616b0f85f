"""Which runs the tables and figures of the paper are made of, which they share, and what is said of fewer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_reproduction import STANDIN_REQUEST, make_plan, make_published_data, write_fake_run

from fedtrain.config.schema import serialize_config
from fedtrain.data.partition.assign import validate_data_settings
from fedtrain.methods import METHODS
from fedtrain.report.records import fill_default_settings
from fedtrain.reproduction.deviations import list_deviations
from fedtrain.reproduction.jobs import build_jobs
from fedtrain.reproduction.paper_item import PAPER_ITEM_NAMES
from fedtrain.reproduction.plan import make_dataset_finder
from fedtrain.reproduction.request import parse_seeds
from fedtrain.reproduction.run_spec import hash_settings
from fedtrain.reproduction.table_layout import get_plan_panels
from theory.errors import InputError

RUNS = {
    "T1": 45, "T2": 45, "T3": 32, "T4": 45, "T5": 20, "T7": 45, "T8": 40, "T9": 40, "T10": 20, "T11": 20, "T12": 20,
    "T13": 35, "F2": 14, "F3": 225, "F4": 4, "F5": 40, "F6": 225, "F7": 45,
}  # fmt: skip


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", PAPER_ITEM_NAMES)
def test_every_cell_is_a_configuration(name, legacy):
    one = make_plan(name, legacy=legacy)
    assert len({spec.identity for spec in one.run_specs.values()}) == RUNS[name]
    for spec in one.run_specs.values():
        validate_data_settings(spec.config.data)
        assert spec.config.data.source == "real"
    assert list_deviations(one) == []
    assert len(get_plan_panels(one)) * len(one.paper_item.rows) > 0


@pytest.mark.parametrize("name", PAPER_ITEM_NAMES)
def test_seeds_and_rounds_are_the_papers(name):
    one = make_plan(name)
    label_skew = one.paper_item.blocks[0].dataset.startswith("cifar")
    few = (0,) if label_skew else (1,) if name == "F2" else (1, 2, 3, 4, 5)
    assert one.seeds == few
    rounds = {spec.config.server.rounds for spec in one.run_specs.values()}
    assert rounds == ({500} if name == "F5" else {1500} if label_skew else {300})


def identities(name, **request):
    return {spec.identity for spec in make_plan(name, **request).run_specs.values()}


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [("T7", "F2", 7), ("T7", "F6", 45), ("T1", "F2", 7), ("T2", "T10", 15), ("T5", "T11", 10), ("T5", "T12", 10),
     ("T11", "T12", 5), ("T4", "F3", 45), ("T3", "T13", 6), ("F7", "T1", 5), ("F7", "T2", 5), ("F7", "T7", 5),
     ("T7", "T4", 0), ("T1", "T9", 0)],
)  # fmt: skip
def test_experiments_share_the_runs_that_they_have_in_common(one, other, shared):
    assert len(identities(one) & identities(other)) == shared


def test_a_shared_run_is_evaluated_as_often_as_the_most_demanding_wants(tmp_path):
    both = build_jobs([make_plan("T7", methods=("fedavg",), seeds="1"), make_plan("F2", methods=("fedavg",))], tmp_path)
    digits = [job for job in both.values() if job.spec.config.data.dataset == "digits"]
    assert len(both) == 2
    assert [(job.spec.eval_every, job.spec.config.evaluation.every) for job in digits] == [(1, 1)]
    assert "--eval-every 1" in " ".join(digits[0].build_arguments(1))


def test_test_data_wait_for_a_round_that_may_be_reported_unless_a_curve_is_wanted(tmp_path):
    table, curve = make_plan("T1", methods=("fedbn",), seeds="1"), make_plan("F2", methods=("fedbn",), dataset="office")
    ((identity, one),), ((same, other),) = (build_jobs([plan], tmp_path).items() for plan in (table, curve))
    assert identity == same
    assert one.folder != other.folder
    assert "evaluation.test=chosen" in one.build_arguments(1)
    assert "evaluation.test=chosen" not in other.build_arguments(1)
    ((_, both),) = build_jobs([table, curve], tmp_path).items()
    assert both.spec.config.evaluation.test == "always"
    write_fake_run(one)
    assert build_jobs([table], tmp_path)[identity].finished
    assert not build_jobs([curve], tmp_path)[identity].begun  # its curve has gaps
    write_fake_run(other)
    assert build_jobs([curve], tmp_path)[identity].finished
    assert "evaluation.test" not in " ".join(
        make_plan("T7").run_specs[0, 0, 1].build_arguments()
    )  # there is nothing to choose by


def test_what_makes_another_cell():
    config = make_plan("T7").run_specs[0, 1, 1].config

    def identity(**changes):
        tables = serialize_config(config)
        for section, table in changes.items():
            tables[section] = table if section == "seed" else tables[section] | table
        return hash_settings(tables, standin=False)

    base = identity()
    for same in (
        {"machine": {"threads": 7, "device": "cpu"}},
        {"checkpoints": {"every": 5}},
        {"evaluation": {"report": "window"}},
        {"evaluation": {"every": 3}},
        {"evaluation": {"test": "chosen"}},
    ):
        assert identity(**same) == base, same
    assert base == "aa5b7eda"  # runs of earlier versions are known again
    tables = serialize_config(config)
    del tables["aggregator"]  # which they do not mention
    assert hash_settings(tables, standin=False) == base
    assert hash_settings(fill_default_settings(serialize_config(config)), standin=False) == base
    adam = serialize_config(config) | {"aggregator": {"name": "fedadam"}}
    assert hash_settings(fill_default_settings(adam), standin=False) != base  # as read from a folder too
    for other in (
        {"seed": 2},
        {"machine": {"dtype": "float64"}},
        {"machine": {"amp": True}},
        {"server": {"rounds": 299}},
        {"data": {"percent": 0.2}},
        {"local": {"lr": 0.1}},
        {"aggregator": {"name": "fedadam"}},
    ):
        assert identity(**other) != base, other
    assert hash_settings(serialize_config(config), standin=True) != base
    office = serialize_config(make_plan("T1").run_specs[0, 1, 1].config)
    rarer = office | {"evaluation": office["evaluation"] | {"every": 5}}
    assert hash_settings(rarer, standin=False) != hash_settings(office, standin=False)  # the best of other rounds


def test_the_published_quirks():
    def of(name, method, legacy):
        one = make_plan(name, legacy=legacy, methods=(method,))
        return one.run_specs[0, 0, one.seeds[0]].config

    assert of("T9", "fedavg", True).data.labels == "misaligned"
    assert of("T9", "fedavg", False).data.labels == "aligned"
    assert of("T8", "fedavg", True).data.labels == "misaligned"
    assert not of("T7", "fedprox", True).method.squared
    assert of("T7", "fedprox", False).method.squared
    assert of("T13", "moon", True).method.previous == "initial"
    assert of("T3", "fedrod", True).method.balanced
    assert not of("T13", "fedrod", True).method.balanced
    assert [of(name, "fedrod", False).method.balanced for name in ("T3", "T13", "T7")] == [True, False, False]


def test_figure_7_drops_dense_batch_norm_with_the_head_on_alexnet_only():
    one = make_plan("F7")
    norm = {(spec.config.data.dataset, r): spec.config.model.norm for (_, r, _), spec in one.run_specs.items()}
    assert {key for key, value in norm.items() if not value} == {("office", 1), ("domainnet", 1)}


def test_the_window_shrinks_with_the_rounds():
    spec = make_plan("T3", rounds=150).run_specs[0, 0, 0]
    assert (spec.config.evaluation.window, spec.config.server.rounds) == (20, 150)


# --- requests


@pytest.mark.parametrize(
    ("text", "seeds"), [(None, (1, 2)), ("3", (1, 2, 3)), ("3,", (3,)), ("7,2,7", (7, 2)), ("1", (1,))]
)
def test_how_many_seeds_or_which(text, seeds):
    assert parse_seeds(text, (1, 2)) == seeds


@pytest.mark.parametrize("text", ["0", "-1", "x", "1,x", "", ",", "2000000", "-1,2"])
def test_seeds_that_are_none(text):
    with pytest.raises(InputError, match="say how many, as in 3"):
        parse_seeds(text, (1,))


def test_another_data_set():
    one = make_plan("T5", dataset="digits")
    assert (one.replaced_dataset, one.paper_item.blocks[0].dataset) == ("DomainNet", "digits")
    assert list_deviations(one)[0] == "on Digits instead of DomainNet"
    assert list_deviations(make_plan("T4", dataset="office"))[0] == "on Office-Caltech10 (α 1.0) instead of Digits"
    assert {spec.config.data.dataset for spec in one.run_specs.values()} == {"digits"}
    assert one.run_specs[0, 3, 1].identity in identities("T7")  # the whole method is Table 7's
    assert [block.dataset for block in make_plan("T3", dataset="cifar10").paper_item.blocks] == ["cifar10"] * 2
    for name, other in (("T3", "digits"), ("F6", "office"), ("T5", "cifar10")):
        with pytest.raises(InputError, match=f"{name} cannot be run on {other}"):
            make_plan(name, dataset=other)


def test_methods():
    assert [row.method for row in make_plan("T7", methods=("fedbn", "fedavg")).paper_item.rows] == ["fedavg", "fedbn"]
    neighbours = make_plan("T7", methods=("ditto", "fedbn", "scaffold", "ditto"))  # the paper has no row of two of them
    assert [row.name for row in neighbours.paper_item.rows] == ["FedBN", "Ditto", "SCAFFOLD"]
    every = make_plan("T7", methods=tuple(METHODS))
    assert {spec.config.method_name for spec in every.run_specs.values()} == set(METHODS)
    with pytest.raises(InputError, match="T5 has no row of fedavg"):
        make_plan("T5", methods=("fedavg",))
    with pytest.raises(InputError, match="fedbn"):
        make_plan("T7", methods=("fedbm",))
    with pytest.raises(InputError, match="T7"):
        make_plan("t7x")


# --- what is reduced


def test_less_than_the_paper_in_words():
    one = make_plan("T7", rounds=50, seeds="1", sets={"local": {"lr": 0.1}, "machine": {"fast_path": False}})
    assert list_deviations(one) == ["50 of 300 rounds", "1 of 5 seeds", "local.lr = 0.1"]
    assert list_deviations(make_plan("T7", rounds=400, seeds="9")) == ["400 rounds instead of 300"]
    assert list_deviations(make_plan("T7", eval_every=20)) == []  # the last round is evaluated all the same
    assert list_deviations(make_plan("F2", eval_every=5)) == ["evaluated every 5 rounds"]
    assert list_deviations(make_plan("T1", eval_every=5)) == ["evaluated every 5 rounds"]
    assert (
        list_deviations(make_plan("T1", rule="last"))
        == list_deviations(make_plan("T3", rule="last"))
        == ["by the last round"]
    )
    assert list_deviations(make_plan("F4", rule="last")) == []  # the figure's own
    assert list_deviations(make_plan("F4", rule="window")) == ["by the mean over the last rounds"]
    assert list_deviations(make_plan("T7", sets={"machine": {"dtype": "float64"}})) == ["machine.dtype = float64"]
    assert list_deviations(make_plan("T7"), missing=2) == ["43 of 45 runs"]
    assert list_deviations(make_plan("F2", dataset="digits")) == ["SVHN only"]


def test_other_data_in_words():
    def other(name):
        found = make_published_data(name)
        pools = [replace(pool, title=f"{pool.title} (subset of 1 + 2)") for pool in found.pools[:1]]
        pools += [replace(pool, test=pool.test[:7]) for pool in found.pools[1:3]]
        return replace(found, pools=[*pools, *found.pools[3:]])

    assert list_deviations(make_plan("T7", other)) == ["MNIST (subset)", "another split of SVHN and USPS"]
    own = "the split into training and test is fedco2's own: DSLR, WebCam"
    ours = make_plan("T1", lambda name: replace(make_published_data(name), notes=(own,)))
    assert list_deviations(ours) == ["another split of DSLR and WebCam"]
    look = make_dataset_finder(STANDIN_REQUEST)
    mixed = make_plan("T3", lambda name: look(name) if name == "cifar100" else make_published_data(name))
    assert list_deviations(mixed) == ["60 of 1500 rounds on CIFAR-100", "CIFAR-100 stand-in images"]
    assert list_deviations(mixed, blocks=[0]) == []
