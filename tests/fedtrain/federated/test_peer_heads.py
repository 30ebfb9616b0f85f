"""``server.peers``: each client is sent so many heads, drawn afresh each round, and pays for no more."""

from __future__ import annotations

from dataclasses import replace

import pytest
import small_experiments
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from fedtrain.config.schema import ServerSettings
from fedtrain.federated.communication import count_bytes
from fedtrain.federated.delivery import draw_heads
from fedtrain.federated.messages import Broadcast
from fedtrain.inference.evaluate import evaluate_clients
from fedtrain.inference.trained_run import load_trained_run
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.loop import run_rounds
from fedtrain.runs.manifest import build_manifest, describe_data
from theory.errors import InputError

pytestmark = pytest.mark.usefixtures("no_figures")
NAMES = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=9, unique=True)
SEEDS = st.integers(0, 2**63 - 1)


def message(names, round=0):
    return Broadcast(round, {}, {name: {"w": torch.tensor(i)} for i, name in enumerate(names)})


def heard(sent, client):
    """The others' heads, in the order of the message."""
    return [name for name in sent.peers if name != client]


# --- laws of the draw


@given(NAMES, st.data(), st.integers(0, 12), SEEDS, st.integers(0, 999))
def test_a_client_hears_so_many_others_each_once_and_in_order(names, data, k, seed, round):
    client = data.draw(st.sampled_from([*names, "somebody who never published"]))
    whole = message(names, round)
    sent = draw_heads(whole, client, k, seed)
    others = heard(whole, client)
    assert len(heard(sent, client)) == (min(k, len(others)) if k else len(others))
    assert heard(sent, client) == [name for name in others if name in sent.peers]
    assert all(sent.peers[name] is whole.peers[name] for name in sent.peers)
    assert (sent.round, sent.shared) == (whole.round, whole.shared)
    if 0 < k < len(others):
        assert client not in sent.peers
    assert heard(draw_heads(whole, client, k, seed), client) == heard(sent, client)


@given(NAMES, st.data(), SEEDS, st.randoms(use_true_random=False))
def test_the_order_of_the_clients_has_no_say(names, data, seed, chance):
    client, k = data.draw(st.sampled_from(names)), data.draw(st.integers(1, 9))
    mixed = list(names)
    chance.shuffle(mixed)
    one, other = (draw_heads(message(each), client, k, seed) for each in (names, mixed))
    assert set(heard(one, client)) == set(heard(other, client))


@given(st.integers(3, 9), st.data(), SEEDS)
def test_draws_vary_over_rounds_clients_and_seeds(n, data, seed):
    """With 24 rounds, all draws alike has a chance below (2/3)^23 at k = 1 of 2 others, and less for more."""
    names = [f"client{i}" for i in range(n)]
    k = data.draw(st.integers(1, n - 2))
    draws = {tuple(heard(draw_heads(message(names, round), "client0", k, seed), "client0")) for round in range(24)}
    assert len(draws) > 1
    everyone = {name for draw in draws for name in draw}
    assume(k > 1)
    assert len(everyone) > k


def test_every_other_client_is_drawn_alike():
    names, count = [f"client{i}" for i in range(6)], dict.fromkeys(range(1, 6), 0)
    for round in range(1000):
        for name in heard(draw_heads(message(names, round), "client0", 2, 7), "client0"):
            count[int(name[-1])] += 1
    assert all(abs(n - 400) < 5 * (1000 * 0.4 * 0.6) ** 0.5 for n in count.values())  # five deviations


# --- whole runs


@pytest.fixture
def ran(tmp_path):
    """Runs a case with so many peers on a backend: what came of it."""

    def new(case, peers, backend="serial"):
        work = small_experiments.experiment(case, learning=True, server={"peers": peers}, machine={"backend": backend})
        if backend == "vmap":
            work = replace(work, config=replace(work.config, machine=replace(work.config.machine, fast_path=False)))
        folder = RunFolder(tmp_path / f"{case} {peers} {backend}")
        folder.begin(work.config, {})
        run_rounds(work, folder)
        return small_experiments.everything(work, folder), folder.load_checkpoint()

    return new


@pytest.mark.parametrize("case", ["copa all", "fedco2 both"])
def test_backends_agree_on_who_hears_whom(case, ran):
    torch.set_num_threads(2)
    try:
        threads, _ = ran(case, 2, "threads")
    finally:
        torch.set_num_threads(1)
    serial, state = ran(case, 2)
    assert not small_experiments.different(serial, threads)
    vmapped, other = ran(case, 2, "vmap")  # other arithmetic: other last digits
    assert serial["cost"] == vmapped["cost"]
    for one, two in ((state.message.shared, other.message.shared), *pairs(state.message.peers, other.message.peers)):
        for name, value in one.items():
            torch.testing.assert_close(value, two[name], rtol=1e-3, atol=1e-4)
    whole, whole_state = ran(case, 0)
    assert small_experiments.different(serial, whole)
    moved = max((state.message.shared[n] - v).abs().max() for n, v in whole_state.message.shared.items() if v.numel())
    assert moved > 1e-3  # so that the tolerance above tells two draws apart


def pairs(one, other):
    assert one.keys() == other.keys()
    return [(one[name], other[name]) for name in one]


@pytest.mark.parametrize("case", ["copa all", "fedco2 both"])
def test_all_others_by_number_are_all_others(case, ran):
    none, _ = ran(case, 0)
    for k in (4, 5, 99):
        assert not small_experiments.different(ran(case, k)[0], none)


@pytest.mark.parametrize("case", ["copa some", "fedco2 all"])
def test_the_cost_counts_the_heads_that_are_sent(case, ran):
    """Each client in a round pays for k heads, as many as are sent, not for all of them."""
    settings = small_experiments.config(case).server
    turns = settings.rounds * (3 if settings.participation < 1 else 5)
    for k in (0, 1, 2, 4):
        found, state = ran(case, k)
        head = count_bytes(next(iter(state.message.peers.values())))
        assert found["cost"].down.head == turns * (k or 4) * head
        assert found["cost"].up.head == turns * head


def test_a_number_below_zero_is_refused():
    with pytest.raises(InputError, match=r"server.peers is -1; it must be 0 \(all\) or more"):
        ServerSettings(peers=-1)


def test_peers_mean_nothing_to_a_method_without_heads_to_show():
    work = small_experiments.experiment("fedbn all", server={"peers": 2})
    with pytest.raises(InputError, match="FedBN shows no heads to peers; leave it out"):
        work.validate()
    small_experiments.experiment("copa all", server={"peers": 2}).validate()


@pytest.mark.parametrize("case", ["copa all", "fedco2 all"])
def test_a_run_put_to_use_has_the_numbers_of_the_run(case, tmp_path):
    """COPA predicts with the heads that it is sent: with others the same checkpoint would be another model."""
    work, folder = small_experiments.experiment(case, server={"peers": 2}), RunFolder(tmp_path / "run")
    folder.begin(work.config, build_manifest(work.config, describe_data(work.federation), "test"))
    run_rounds(work, folder)
    trained = load_trained_run(folder.path)
    last = [row for row in folder.load_rows() if row["round"] == 3]
    assert evaluate_clients(trained, work.federation, "test") == last
    for client in work.federation.clients:
        said = trained.compute_logits(client.name, client.test.inputs)["fused"].argmax(1)
        (told,) = [row for row in last if (row["client"], row["branch"]) == (client.name, "fused")]
        assert (said == client.test.labels).double().mean().item() == pytest.approx(told["accuracy"])
