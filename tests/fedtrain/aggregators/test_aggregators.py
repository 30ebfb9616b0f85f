"""Aggregators against formulas that share no code with them, as laws, and with a client that sends far too much."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import trim_mean

import fedtrain
from fedtrain.aggregators import AGGREGATORS, Aggregate, Aggregator, CohortReplies
from fedtrain.aggregators.mean import Mean
from fedtrain.aggregators.robust import CoordinateMedian, NormClipping, TrimmedMean, measure_update
from fedtrain.aggregators.server_optimizers import FedAdagrad, FedAdam, FedAvgM, FedYogi
from fedtrain.backends.serial import SerialBackend
from fedtrain.config.schema import Config, EvaluationSettings, ServerSettings, parse_config, serialize_config
from fedtrain.errors import TrainingError
from fedtrain.federated.messages import Update
from fedtrain.federated.server import federate
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedbn import FedBN
from theory.errors import InputError

PARAMETERS = frozenset(["w"])
OPTIMIZERS = (FedAvgM, FedAdam, FedYogi, FedAdagrad)
ROBUST = (CoordinateMedian(), TrimmedMean(), NormClipping())
CLOSE = 1e-12
"""Of numbers around 1 in double precision, after a few sums and roots."""


def state(w, s, n=0):
    return {"w": torch.from_numpy(np.array(w)), "s": torch.from_numpy(np.array(s)), "n": torch.tensor(n)}


@st.composite
def cohorts(draw, least=1):
    """Replies of some clients: a parameter w, a statistic s, a counter n."""
    count, chance = draw(st.integers(least, 7)), np.random.default_rng(draw(st.integers(0, 2**32)))
    before = state(chance.normal(size=(2, 3)), chance.normal(size=4))
    states = [state(chance.normal(size=(2, 3)), chance.normal(size=4), int(chance.integers(9))) for _ in range(count)]
    weights = draw(st.sampled_from(["equal", "unequal"]))
    return CohortReplies(
        before, states, [1.0] * count if weights == "equal" else chance.uniform(0.1, 9, count).tolist(), PARAMETERS
    )


def mean_of(replies, name):
    return np.average([one[name].numpy() for one in replies.states], axis=0, weights=replies.weights)


def rounds_of(aggregator, steps, x):
    """Several rounds of one client, which adds the next of these steps to what it is sent."""
    shared, remembered = {"w": torch.from_numpy(x.copy())}, {}
    for step in steps:
        made = aggregator.combine(
            CohortReplies(shared, [{"w": shared["w"] + torch.from_numpy(step)}], [1.0], PARAMETERS, remembered)
        )
        shared, remembered = made.shared, made.remembered
    return shared["w"].numpy()


@pytest.fixture
def steps():
    chance = np.random.default_rng(3)
    return chance.normal(size=(5, 3)) * [1.0, 1e-2, 1e-4], chance.normal(size=3)


# ---- formulas


@given(cohorts())
@settings(max_examples=30)
def test_the_median_and_the_trimmed_mean_are_those_of_numpy_and_scipy(replies):
    count = len(replies.states)
    for name in ("w", "s"):
        every = np.stack([one[name].numpy() for one in replies.states])
        found = CoordinateMedian().combine(replies).shared[name].numpy()
        np.testing.assert_allclose(found, np.median(every, axis=0), rtol=CLOSE, atol=CLOSE)
        for trim in (0.1, 0.2, 0.4):
            share = max(trim, 1 / count + 1e-9) if count >= 3 else 0.0  # at least one at each end
            expected = trim_mean(every, min(share, (count - 1) // 2 / count + 1e-9), axis=0)
            found = TrimmedMean(trim).combine(replies).shared[name].numpy()
            np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE)


def test_fedavgm_is_sgd_with_momentum_of_torch(steps):
    updates, start = steps
    x = torch.from_numpy(start.copy())
    sgd = torch.optim.SGD([x], lr=0.7, momentum=0.9)
    for step in updates:
        x.grad = -torch.from_numpy(step)
        sgd.step()
    np.testing.assert_allclose(rounds_of(FedAvgM(0.7, 0.9), updates, start), x.numpy(), rtol=CLOSE, atol=CLOSE)


def test_fedadagrad_is_that_of_torch(steps):
    updates, start = steps
    x = torch.from_numpy(start.copy())
    adagrad = torch.optim.Adagrad([x], lr=0.1, initial_accumulator_value=1e-6, eps=1e-3)
    for step in updates:
        x.grad = -torch.from_numpy(step)
        adagrad.step()
    found = rounds_of(FedAdagrad(lr=0.1, tau=1e-3), updates, start)
    np.testing.assert_allclose(found, x.numpy(), rtol=CLOSE, atol=CLOSE)


def test_fedadam_is_adam_of_torch_without_its_corrections(steps):
    """Torch divides m by 1 - β₁ᵗ and v by 1 - β₂ᵗ; a step length and an ε for each round undo that."""
    updates, start = steps
    x = torch.from_numpy(start.copy())
    adam = torch.optim.Adam([x], betas=(0.9, 0.99))
    adam.state[x] = {
        "step": torch.tensor(0.0),
        "exp_avg": torch.zeros_like(x),
        "exp_avg_sq": torch.full_like(x, 1e-6),
    }
    for t, step in enumerate(updates, 1):
        first, second = 1 - 0.9**t, np.sqrt(1 - 0.99**t)
        adam.param_groups[0] |= {"lr": 0.1 * first / second, "eps": 1e-3 / second}
        x.grad = -torch.from_numpy(step)
        adam.step()
    found = rounds_of(FedAdam(lr=0.1, tau=1e-3), updates, start)
    np.testing.assert_allclose(found, x.numpy(), rtol=1e-9)  # torch rounds its corrections otherwise


def test_fedyogi_is_its_formula_number_by_number(steps):
    updates, start = steps
    found = rounds_of(FedYogi(lr=0.1, beta1=0.8, beta2=0.95, tau=1e-2), updates, start)
    for i, x in enumerate(start.tolist()):
        m, v = 0.0, 1e-4
        for delta in updates[:, i].tolist():
            m = 0.8 * m + 0.2 * delta
            if v > delta * delta:
                v -= 0.05 * delta * delta
            elif v < delta * delta:
                v += 0.05 * delta * delta
            x += 0.1 * m / (v**0.5 + 1e-2)
        assert found[i] == pytest.approx(x, rel=CLOSE)


@given(cohorts(), st.floats(0.01, 3))
@settings(max_examples=30)
def test_norm_clipping_is_its_formula(replies, limit):
    before = np.concatenate([replies.before[name].numpy().ravel() for name in ("w", "s")])
    updates = [np.concatenate([one[n].numpy().ravel() for n in ("w", "s")]) - before for one in replies.states]
    norms = [np.linalg.norm(update) for update in updates]
    assert [measure_update(replies.before, one) for one in replies.states] == pytest.approx(norms)
    for most, expected_limit in ((limit, limit), (None, np.median(norms))):
        factors = [min(1.0, expected_limit / norm) for norm in norms]
        clipped = [before + factor * update for factor, update in zip(factors, updates, strict=True)]
        expected = np.average(clipped, axis=0, weights=replies.weights)
        shared = NormClipping(most).combine(replies).shared
        found = np.concatenate([shared[name].numpy().ravel() for name in ("w", "s")])
        np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE)


# ---- laws


@pytest.mark.parametrize("kind", AGGREGATORS.values(), ids=AGGREGATORS)
@given(replies=cohorts(), data=st.data())
@settings(max_examples=15)
def test_entries_keep_their_forms_and_nothing_is_written_into(kind, replies, data, same):
    copies = [{name: value.clone() for name, value in one.items()} for one in (replies.before, *replies.states)]
    first = kind().combine(replies)
    second = kind().combine(replace(replies, before=first.shared, remembered=first.remembered))
    assert all(map(same, copies, (replies.before, *replies.states)))
    for made in (first, second):
        assert made.shared.keys() == replies.before.keys()
        for name, value in made.shared.items():
            assert (value.dtype, value.shape) == (replies.before[name].dtype, replies.before[name].shape)
    order = data.draw(st.permutations(range(len(replies.states))))
    moved = replace(replies, states=[replies.states[i] for i in order], weights=[replies.weights[i] for i in order])
    for name in ("w", "s"):  # the order of the sum rounds differently
        torch.testing.assert_close(kind().combine(moved).shared[name], first.shared[name], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", [*OPTIMIZERS, Mean])
@given(replies=cohorts())
@settings(max_examples=15)
def test_statistics_and_counters_are_averaged_whatever_the_server_does_to_parameters(kind, replies):
    made = kind().combine(replies)
    np.testing.assert_allclose(made.shared["s"].numpy(), mean_of(replies, "s"), rtol=CLOSE, atol=CLOSE)
    assert made.shared["n"] == replies.states[0]["n"]
    assert all(entries.keys() == PARAMETERS for entries in made.remembered.values())


@given(cohorts())
@settings(max_examples=15)
def test_where_others_are_the_mean(replies):
    """FedAvgM without memory, clipping at a length that nobody has, the median and the trimmed mean of one or two."""
    expected = {name: mean_of(replies, name) for name in ("w", "s")}
    kinds = [FedAvgM(lr=1.0, beta=0.0), NormClipping(max_norm=1e9)]
    if len(replies.states) == 1:
        kinds += [CoordinateMedian(), TrimmedMean()]
    for kind in kinds:
        for name, value in expected.items():
            np.testing.assert_allclose(kind.combine(replies).shared[name].numpy(), value, rtol=CLOSE, atol=CLOSE)


@given(cohorts(least=3), st.integers(0, 6), st.sampled_from([-1e30, -1e3, 1e3, 1e30]))
@settings(max_examples=30)
def test_one_client_cannot_lead_a_robust_server_astray(replies, which, factor):
    """Every number stays between those of the others; an update is no longer than the median one."""
    liar = which % len(replies.states)
    states = list(replies.states)
    states[liar] = {
        name: replies.before[name] + factor * (value - replies.before[name]) if name != "n" else value
        for name, value in states[liar].items()
    }
    spoilt = replace(replies, states=states, weights=[1.0] * len(states))
    honest = [one for i, one in enumerate(states) if i != liar]
    for server in (CoordinateMedian(), TrimmedMean()):
        made = server.combine(spoilt).shared
        for name in ("w", "s"):
            every = torch.stack([one[name] for one in honest])
            assert (made[name] >= every.min(0).values - CLOSE).all()
            assert (made[name] <= every.max(0).values + CLOSE).all()
    longest = max(measure_update(replies.before, one) for one in honest)
    assert measure_update(replies.before, NormClipping().combine(spoilt).shared) <= longest * (1 + 1e-9)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (FedAvgM, {"lr": 0.0}),
        (FedAvgM, {"beta": 1.0}),
        (FedAdam, {"tau": 0.0}),
        (FedYogi, {"beta2": -0.1}),
        (FedAdagrad, {"beta1": 1.0}),
        (TrimmedMean, {"trim": 0.5}),
        (NormClipping, {"max_norm": -1.0}),
    ],
)
def test_options_that_make_no_sense_are_refused(kind, wrong):
    (name,) = wrong
    with pytest.raises(InputError, match=rf"aggregator\.{name} is"):
        kind(**wrong)


# ---- in a federation


class LyingBackend(SerialBackend):
    """The first client multiplies its update by a thousand."""

    liar = "liar"

    def train(self, message, cohort):
        return [
            Update(one.client, self.exaggerate(message, one), one.published, one.num_examples, one.loss)
            if one.client == self.liar
            else one
            for one in super().train(message, cohort)
        ]

    def exaggerate(self, message, update):
        return {
            name: message.shared[name] + 1000 * (value - message.shared[name]) if value.is_floating_point() else value
            for name, value in update.shared.items()
        }


@pytest.mark.parametrize("method", [FedAvg(), FedBN()], ids=["fedavg", "fedbn"])
def test_one_of_five_clients_multiplies_its_update_by_a_thousand(toy, method):
    """With the mean nothing is left of the model; robust servers stay where they are without the lie."""
    clients = toy.build_clients()
    clients += [replace(clients[0], name="d"), replace(clients[1], name="liar")]

    def accuracy(aggregator, kind):
        backend = kind(toy.build_client_trainer(method), clients)
        *_, last = federate(backend, backend.initial_broadcast(), 8, aggregator=aggregator)
        scores = backend.evaluate(last.message, ["test"])
        return np.mean([scores[name]["test"]["fused"].accuracy for name in "abcd"])

    honest = accuracy(Mean(), SerialBackend)
    assert honest > 0.8
    try:
        ruined = accuracy(Mean(), LyingBackend)
    except TrainingError:  # or even no finite loss
        ruined = 0.0
    assert ruined < honest - 0.15
    for server in ROBUST:
        assert accuracy(server, LyingBackend) > honest - 0.1, server.title


def test_personal_entries_stay_with_the_client_and_are_not_remembered(toy):
    for aggregator in (FedAdam(), FedAvgM(), CoordinateMedian()):
        backend = SerialBackend(toy.build_client_trainer(FedBN()), toy.build_clients())
        trainer = backend.trainer
        for result in federate(backend, backend.initial_broadcast(), 2, aggregator=aggregator):
            assert result.message.shared.keys() == trainer.shared_names
            for entries in result.remembered.values():
                assert entries.keys() == trainer.shared_names & trainer.parameter_names
        own = backend.client_states
        for name in trainer.personal_names & trainer.parameter_names:
            assert not torch.equal(own["a"][name], own["b"][name])


@pytest.mark.parametrize("kind", AGGREGATORS.values(), ids=AGGREGATORS)
def test_a_run_that_is_resumed_is_as_never_stopped(kind, run_twice, same, no_figures):
    """Also the bits that a server remembers; the median and its like remember nothing."""
    made = kind(lr=0.1) if kind in OPTIMIZERS else kind()
    config = Config(aggregator=made, server=ServerSettings(rounds=3), evaluation=EvaluationSettings(every=3))
    one, half, two = run_twice(config)
    assert bool(half.server) == (kind in OPTIMIZERS)
    assert same(one.message.shared, two.message.shared)
    assert same(dict(one.server), dict(two.server))


def test_a_server_that_leaps_to_infinity_is_named_and_no_client_blamed(toy):
    backend = SerialBackend(toy.build_client_trainer(FedAvg()), toy.build_clients())
    with pytest.raises(TrainingError, match=r"aggregator FedAvgM: .* is not finite; lower aggregator.lr"):
        list(federate(backend, backend.initial_broadcast(), 9, aggregator=FedAvgM(lr=1e40)))


@dataclass(frozen=True)
class Half(Aggregator):
    """Somebody's own: it goes half the way."""

    share: float = 0.5
    wrong: str = ""
    title: ClassVar[str] = "half way"

    def combine(self, replies):
        mean = Mean().combine(replies).shared
        made = {name: torch.lerp(replies.before[name], value, self.share) if value.is_floating_point() else value
                for name, value in mean.items()}  # fmt: skip
        if self.wrong == "names":
            made.popitem()
        elif self.wrong == "shape":
            made = {name: value[None] for name, value in made.items()}
        return Aggregate(made)


@pytest.mark.parametrize(("wrong", "words"), [("names", "its entries are others"), ("shape", r"is .* not ")])
def test_somebodys_own_that_gives_back_something_else_is_told(toy, wrong, words):
    backend = SerialBackend(toy.build_client_trainer(FedAvg()), toy.build_clients())
    with pytest.raises(TrainingError, match=f"aggregator half way: .*{words}"):
        next(federate(backend, backend.initial_broadcast(), 1, aggregator=Half(wrong=wrong)))


# ---- in a configuration


@pytest.mark.parametrize("name", AGGREGATORS)
def test_a_configuration_names_an_aggregator_and_its_options(name):
    kind = AGGREGATORS[name]
    config = parse_config({"aggregator": {"name": name}})
    assert config.aggregator == kind()
    assert parse_config(serialize_config(config)) == config
    options = {field.name for field in fields(kind)}
    assert serialize_config(config)["aggregator"].keys() == {"name", *options}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"name": "meen"}, "did you mean 'mean'"),
        ({"name": 3}, "aggregator.name is 3"),
        ({"name": "x:Y"}, "is code outside fedco2"),
        ({"name": "median", "lr": 1.0}, "unknown key 'lr' in .aggregator. of coordinate median"),
    ],
)
def test_what_is_no_aggregator_is_refused(table, words):
    with pytest.raises(InputError, match=words):
        parse_config({"aggregator": table})


def test_train_takes_names_instances_and_references(tmp_path, monkeypatch):
    own = tmp_path / "server_of_mine.py"
    own.write_text(
        "from dataclasses import dataclass\nimport fedtrain\nfrom fedtrain.aggregators.mean import Mean\n"
        "@dataclass(frozen=True)\nclass Mine(Mean):\n    lr: float = 0.5\nNOT = 3\n"
    )
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    small = {"dataset": "digits", "data": "standin", "load_images": False, "out": tmp_path / "run"}

    def chosen(aggregator, **more):
        return fedtrain.plan(**small, aggregator=aggregator, **more).config

    assert chosen("fedadam", settings={"aggregator.lr": 0.2}).aggregator == FedAdam(lr=0.2)
    assert chosen(NormClipping(2.0)).aggregator == NormClipping(2.0)
    assert chosen(None).aggregator == Mean()
    config = chosen(f"{own}:Mine", settings={"aggregator.lr": 0.25})
    assert (config.aggregator_name, config.aggregator.lr) == ("server_of_mine:Mine", 0.25)
    assert serialize_config(config)["aggregator"] == {"name": "server_of_mine:Mine", "lr": 0.25}
    half = chosen(Half(0.25))
    assert half.aggregator == Half(0.25)
    assert half.aggregator_name.endswith(":Half")
    with pytest.raises(InputError, match=r"is an instance of int; name a subclass of fedtrain.Aggregator"):
        chosen(f"{own}:NOT")
    with pytest.raises(InputError, match="unknown aggregator 'fedadem'; did you mean 'fedadam'"):
        chosen("fedadem")
