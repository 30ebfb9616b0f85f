"""The loop and its parts as laws: averages, cohorts, batches, and chance that knows its purpose."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtrain.aggregators import average_states
from fedtrain.config.local import LocalSettings
from fedtrain.federated.aggregate import aggregate
from fedtrain.federated.messages import Broadcast, Update
from fedtrain.federated.server import federate, sample_cohort
from fedtrain.rng import derive_seed, fork_rng, make_generator

# ---- averages


@st.composite
def replies(draw):
    """States with a matrix, a scalar and a counter, and a positive weight for each."""
    count, chance = draw(st.integers(1, 6)), np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    states = [
        {"w": chance.normal(size=shape), "s": np.asarray(chance.normal()), "n": np.asarray(chance.integers(9))}
        for _ in range(count)
    ]
    return states, draw(st.lists(st.floats(1e-3, 1e3), min_size=count, max_size=count))


def as_tensors(states):
    return [{name: torch.from_numpy(value.copy()) for name, value in state.items()} for state in states]


@given(replies())
def test_mean_is_the_weighted_mean(drawn):
    states, weights = drawn
    found = average_states(as_tensors(states), weights)
    for name in ("w", "s"):
        expected = np.average([state[name] for state in states], axis=0, weights=weights)
        np.testing.assert_allclose(found[name].numpy(), expected, rtol=1e-12, atol=1e-12)
    assert found["n"] == states[0]["n"]


@given(replies())
def test_the_mean_of_one_is_itself_and_no_input_is_touched(drawn):
    states, weights = drawn
    tensors = as_tensors(states)
    found = average_states(tensors[:1], weights[:1])
    assert all(torch.equal(found[name], tensors[0][name]) for name in found)
    average_states(tensors, weights)["w"].add_(1)
    found["n"].add_(1)
    for state, tensor in zip(states, tensors, strict=True):
        assert all(np.array_equal(state[name], tensor[name].numpy()) for name in state)


def update(client, value, examples, **published):
    return Update(client, {"w": torch.tensor([value])}, published, examples, loss=0.0)


def test_aggregate_makes_the_next_message():
    """An absent client's head stays; a counter is that of the first by name, whoever was quicker."""
    head = {name: torch.tensor(ord(name)) for name in "abc"}
    message = Broadcast(4, {"w": torch.tensor([9.0])}, {name: {"h": head[name]} for name in "abc"})
    new = update("c", 1.0, 30, h=torch.tensor(0)), update("a", 5.0, 10, h=torch.tensor(1))
    found = aggregate(message, new, "size")
    assert (found.round, found.shared["w"].item()) == (5, 2.0)
    assert {name: peer["h"].item() for name, peer in found.peers.items()} == {"a": 1, "b": ord("b"), "c": 0}
    assert aggregate(message, new, "uniform").shared["w"].item() == 3.0
    assert (message.round, message.peers["a"]["h"].item()) == (4, ord("a"))


# ---- the loop


class Roll:
    """A backend that only notes who was called."""

    client_names = ("d", "b", "a", "c")
    parameter_names = frozenset("w")

    def __init__(self):
        self.calls = []

    def train(self, message, cohort):
        self.calls.append((message.round, list(cohort)))
        return [update(name, float(message.round), 1) for name in cohort]


def test_rounds_go_on_from_where_the_message_is():
    backend = Roll()
    history = list(federate(backend, Broadcast(2, {}, {}), 5))
    assert [call[0] for call in backend.calls] == [2, 3, 4]
    assert [each.message.round for each in history] == [3, 4, 5]
    assert [each.message.shared["w"].item() for each in history] == [2, 3, 4]
    assert list(federate(backend, history[-1].message, 5)) == []


def test_a_run_that_is_taken_up_again_asks_the_same_clients():
    whole, second = Roll(), Roll()
    list(federate(whole, Broadcast(0, {}, {}), 6, participation=0.5, seed=3))
    list(federate(second, Broadcast(4, {}, {}), 6, participation=0.5, seed=3))
    assert whole.calls[4:] == second.calls
    assert {len(names) for _, names in whole.calls} == {2}


names = st.lists(st.text(max_size=3), min_size=1, max_size=12, unique=True)


@given(names, st.data(), st.integers(0, 99), st.integers(0, 99))
def test_a_cohort_has_its_size_and_depends_on_seed_and_round_only(clients, data, seed, round):
    wanted = data.draw(st.integers(1, len(clients)))
    chosen = sample_cohort(clients, wanted / len(clients), seed, round)
    assert len(chosen) == wanted
    assert chosen == [name for name in clients if name in chosen]
    assert set(sample_cohort(data.draw(st.permutations(clients)), wanted / len(clients), seed, round)) == set(chosen)


@given(names, st.floats(0, 1))
def test_a_cohort_is_rounded_down_but_never_empty(clients, participation):
    size = len(sample_cohort(clients, participation, 0, 0))
    assert 1 <= size <= max(1, len(clients) * participation + 1e-6)
    assert size > len(clients) * participation - 1


def test_every_client_is_asked_equally_often():
    """Binomial(2000, 0.3): five standard deviations are 102."""
    clients = [f"client {i}" for i in range(10)]
    asked = Counter(name for round in range(2000) for name in sample_cohort(clients, 0.3, 0, round))
    assert set(asked) == set(clients)
    assert all(abs(times - 600) < 102 for times in asked.values())


# ---- batches


@given(st.integers(0, 60), st.integers(1, 20), st.booleans(), st.integers(0, 99))
def test_batches_part_an_order(samples, size, norm, seed):
    order = torch.randperm(samples, generator=make_generator(seed))
    kept = list(LocalSettings(batch_size=size).split_into_batches(order, norm))
    rest = samples % size
    lost = samples if size == 1 and norm else rest if rest == 1 and norm else 0
    assert torch.equal(torch.cat([order[:0], *kept]), order[: samples - lost])
    assert all(len(rows) == size for rows in kept[:-1])
    assert all(len(rows) > norm for rows in kept)
    dropped = list(LocalSettings(batch_size=size, last_batch="drop").split_into_batches(order, norm))
    assert len(dropped) == (0 if size == 1 and norm else samples // size)
    assert all(torch.equal(one, other) and len(one) == size for one, other in zip(dropped, kept, strict=False))


# ---- chance

purposes = st.tuples(st.integers(0, 9), st.text(max_size=3), st.integers(0, 99), st.integers(0, 9))


@given(st.sets(purposes, min_size=2, max_size=20))
@settings(max_examples=50)
def test_other_purposes_have_other_seeds(several):
    """Whatever clients are called: a name may hold the mark that separates the parts."""
    seeds = {derive_seed(*purpose, what) for purpose in several for what in ("order", "augment")}
    assert len(seeds) == 2 * len(several)
    assert all(0 <= seed < 2**63 for seed in seeds)


@given(purposes)
@settings(max_examples=20)
def test_the_same_purpose_draws_the_same(purpose):
    assert torch.equal(
        torch.rand(3, generator=make_generator(*purpose)), torch.rand(3, generator=make_generator(*purpose))
    )


def test_seeds_are_the_same_on_every_machine():
    """Not of Python's own hash, which differs from process to process."""
    assert derive_seed(0, "network", "") == 3868546146994606413
    assert derive_seed("a", 1) != derive_seed("a1")


def test_drawing_leaves_the_global_generator_as_it_was_even_after_an_error():
    before = torch.get_rng_state()
    with fork_rng("one"):
        first = torch.rand(2)
    with fork_rng("one"):
        assert torch.equal(torch.rand(2), first)
    with pytest.raises(RuntimeError, match="invalid for input of size 2"), fork_rng("two"):
        torch.rand(2).reshape(7)
    assert torch.equal(torch.get_rng_state(), before)
