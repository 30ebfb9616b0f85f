"""What travels in fewer bytes: what is lost and kept, what is counted, and that every backend loses the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtrain.analysis.model_summary import foretell_run, summarise_model
from fedtrain.backends.serial import SerialBackend
from fedtrain.backends.threads import ThreadsBackend
from fedtrain.backends.vmap.backend import VmapBackend
from fedtrain.config.codec import Codec, parse_codec
from fedtrain.config.schema import Config, EvaluationSettings, ServerSettings
from fedtrain.errors import TrainingError
from fedtrain.federated.codec.entries import decode_entry, encode_entry, list_forms
from fedtrain.federated.codec.states import (
    count_encoded_bytes,
    decode_model,
    decode_state,
    decode_update,
    encode_model,
    encode_update,
    get_form,
)
from fedtrain.federated.communication import CommunicationCost, count_bytes, measure_exchange
from fedtrain.federated.messages import Broadcast, Update
from fedtrain.federated.residuals import drop_residual, extract_residual
from fedtrain.federated.server import federate, validate_update
from fedtrain.methods.copa import Copa
from fedtrain.methods.fedbn import FedBN
from fedtrain.methods.fedco2 import FedCO2
from theory.errors import InputError

METHODS = pytest.mark.parametrize("method", [FedBN(), Copa(), FedCO2()], ids=lambda method: method.title)
ROUNDING = ["float16", "bfloat16"]
WITH_MEMORY = [
    "int8",
    "topk:0.3",
    "topk:0.2+int8",
    "topk:0.2+bfloat16",
    "lowrank:2",
    "lowrank:2+int8",
    "lowrank:1+float16",
]
CODECS = pytest.mark.parametrize("codec", [*ROUNDING, *WITH_MEMORY])
MEMORIES = pytest.mark.parametrize("codec", WITH_MEMORY)


def draw(seed, shape=(6, 9), dtype=torch.float32):
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=chance, dtype=dtype) * 10.0 ** torch.randint(-3, 3, (1,), generator=chance)


def lose(value, word):
    """The entry after its way there."""
    codec, form = parse_codec(word), get_form(value)
    parts = encode_entry(value, codec)
    assert {suffix: get_form(part) for suffix, part in parts.items()} == list_forms(form, codec)
    return decode_entry(parts, form, codec)


def states(seed):
    sent = {"w": draw(seed, dtype=torch.float64), "b": draw(seed + 1, (4,)), "n": torch.tensor(3)}
    return sent, {"w": sent["w"] + draw(seed + 2, dtype=torch.float64), "b": sent["b"] + 1, "n": torch.tensor(5)}


# --- one entry


@given(st.integers(0, 999), st.sampled_from([(1, 1), (3, 5), (4, 2, 3, 3), (17, 1)]))
@settings(max_examples=25)
def test_int8_is_within_half_a_step_of_each_row(seed, shape):
    value = draw(seed, shape)
    rows, found = value.reshape(len(value), -1).numpy(), lose(value, "int8").reshape(len(value), -1).numpy()
    steps = np.abs(rows).max(1, keepdims=True) / 127
    assert (np.abs(found - rows) <= steps * (0.5 + 1e-4)).all()
    again = lose(torch.from_numpy(found), "int8").numpy()  # what is written already loses no more
    np.testing.assert_allclose(again, found, rtol=1e-6)


@given(st.integers(0, 999))
@settings(max_examples=25)
def test_float16_is_numpys_and_bfloat16_has_eight_bits(seed):
    value = draw(seed)
    np.testing.assert_array_equal(encode_entry(value, parse_codec("float16"))[""], value.numpy().astype(np.float16))
    lost = (lose(value, "bfloat16") - value).abs()
    assert (lost <= 2.0**-8 * value.abs()).all()  # half a unit of the last of 8 bits, at most


@given(st.integers(0, 999), st.floats(0.01, 1))
@settings(max_examples=25)
def test_top_k_keeps_the_largest_and_nothing_else(seed, share):
    value = draw(seed)
    found = lose(value, f"topk:{share}")
    kept = max(1, int(np.ceil(share * value.numel())))
    chosen = found != 0
    assert int(chosen.sum()) == kept
    assert found[chosen].equal(value[chosen])
    if kept < value.numel():
        assert value[chosen].abs().min() >= value[~chosen].abs().max()


@given(st.integers(0, 999), st.integers(1, 3))
@settings(max_examples=25)
def test_low_rank_is_nearly_the_best_of_its_rank(seed, rank):
    """Against the singular values, which the encoder never computes."""
    value = draw(seed, (12, 20), torch.float64)
    lost = value - lose(value, f"lowrank:{rank}")
    best = torch.linalg.svdvals(value)[rank:].square().sum().sqrt()
    assert best * (1 - 1e-9) <= lost.norm() <= 1.16 * best  # two power iterations; all 3,000 cases hold
    assert lost.norm() <= value.norm()
    assert torch.linalg.matrix_rank(value - lost) == rank


@given(st.integers(0, 999))
@settings(max_examples=10)
def test_a_matrix_of_low_rank_arrives(seed):
    value = draw(seed, (9, 2), torch.float64) @ draw(seed + 1, (2, 11), torch.float64)
    torch.testing.assert_close(lose(value, "lowrank:2"), value)


@CODECS
def test_zeros_stay_zeros_and_odd_forms_pass(codec):
    for shape in ((3, 4), (1, 1), (2, 0), (0, 3), ()):
        zeros = torch.zeros(shape)
        assert lose(zeros, codec).equal(zeros)
    assert lose(torch.tensor([[3]]), codec).equal(torch.tensor([[3]]))
    assert encode_entry(torch.ones(4, 3, dtype=torch.int64), parse_codec(codec))[""].dtype == torch.int64


@MEMORIES
def test_vectors_arrive_in_full_where_more_than_rounding_is_lost(codec):
    value = torch.tensor([1e-7, 1.0, 3e8])
    assert lose(value, codec).equal(value)


@pytest.mark.parametrize("codec", ["lowrank:3", "topk:1", "lowrank:3+int8"])
def test_what_would_be_no_fewer_bytes_is_sent_whole(codec):
    value = draw(1, (5, 4))
    word = codec.partition("+")[2] or "none"
    assert lose(value, codec).equal(lose(value, word))


# --- updates, with memory and without


@given(st.integers(0, 999), st.sampled_from(WITH_MEMORY))
@settings(max_examples=30)
def test_over_rounds_everything_arrives(seed, word):
    """What has arrived and what still waits is what was to be sent: error feedback, summed up."""
    sent = {"w": torch.zeros(8, 10, dtype=torch.float64), "b": torch.zeros(3)}
    arrived, wished, waiting = torch.zeros_like(sent["w"]), torch.zeros_like(sent["w"]), {}
    for round in range(6):
        added = draw(seed + round, (8, 10), torch.float64)
        payload, waiting = encode_update({"w": added, "b": torch.ones(3)}, sent, waiting, word)
        arrived += decode_update(payload, sent, word)["w"]
        wished += added
        assert waiting.keys() == {"w"}
        torch.testing.assert_close(arrived + waiting["w"], wished)


@pytest.mark.parametrize("word", [*WITH_MEMORY, "topk:0.05"])
def test_what_waits_does_not_grow(word):
    """The same step in every round: the memory stays below a bound that does not depend on the number of rounds."""
    step, waiting, sizes = {"w": draw(3, (8, 10))}, {}, []
    for _ in range(60):
        _, waiting = encode_update(step, {"w": torch.zeros(8, 10)}, waiting, word)
        sizes.append(waiting["w"].norm().item())
    assert max(sizes[30:]) <= 1.25 * max(sizes[:30]) + 1e-6


@given(st.integers(0, 999), st.sampled_from(ROUNDING))
@settings(max_examples=15)
def test_half_precision_rounds_the_difference_and_keeps_nothing(seed, codec):
    sent, trained = states(seed)
    payload, kept = encode_update(trained, sent, {}, codec)
    assert kept == {}
    found = decode_update(payload, sent, codec)
    assert (found["w"].dtype, found["n"].item()) == (torch.float64, 5)
    difference = (trained["w"] - sent["w"]).abs()
    assert ((found["w"] - trained["w"]).abs() <= 2.0**-8 * difference + 2.0**-25).all()


def test_without_a_codec_everything_is_as_it_was():
    sent, trained = states(1)
    assert encode_update(trained, sent, {}, "none") == (trained, {})
    assert decode_update(trained, sent, "none") is trained
    assert encode_model(trained, dict, "none") is trained
    assert decode_model(trained, sent, dict, "none") is trained


@CODECS
def test_a_head_needs_no_memory_and_the_start_costs_nothing(codec):
    start, trained = states(2)
    payload = encode_model(trained, lambda: start, codec)
    assert count_bytes(payload) == count_encoded_bytes(trained, codec)
    found = decode_model(payload, trained, lambda: start, codec)
    assert found["b"].dtype == torch.float32
    assert found["n"] == 5
    if parse_codec(codec).has_memory:
        assert found["b"].equal(trained["b"])
        lost = (found["w"] - trained["w"]).norm() / (trained["w"] - start["w"]).norm()
        assert lost <= 1
        for value in decode_model(encode_model(start, lambda: start, codec), start, lambda: start, codec).values():
            assert any(value.equal(one) for one in start.values())


def test_payloads_of_others_are_refused_by_name():
    sent, trained = states(4)
    for word, part, lie, said in (
        ("int8", "w:scale", lambda v: v * np.nan, "w has a scale that is negative or not finite"),
        ("int8", "w:scale", lambda v: -v - 1, "w has a scale that is negative"),
        ("int8", "w:scale", lambda v: v[:2], r"w is torch.float32 \(2,\), not torch.float32 \(6,\)"),
        ("int8", "w", lambda v: v.float(), "w is torch.float32"),
        ("topk:0.3", "w:index", lambda v: v - 100, "w has places that are not in order, or not below 54"),
        ("topk:0.3", "w:index", lambda v: v + 54, "w has places"),
        ("topk:0.3", "w:index", lambda v: v.flip(0), "w has places"),
        ("topk:0.3", "w:index", lambda v: v * 0, "w has places"),
        ("topk:0.3", "w", lambda v: v / 0, "w is not finite"),
        ("lowrank:2", "w:right", lambda v: v * np.inf, "w is not finite"),
        ("bfloat16", "b", lambda v: v * 0 + 0x7F80, "b is not finite"),
        ("int8", "b", lambda v: v / 0, "b is not finite"),
    ):
        payload, _ = encode_update(trained, sent, {}, word)
        decode_state(payload, sent, word)
        with pytest.raises(ValueError, match=said):
            decode_state({**payload, part: lie(payload[part])}, sent, word)
        with pytest.raises(ValueError, match=f"its entries are others: {part}"):
            decode_state({name: value for name, value in payload.items() if name != part}, sent, word)
        with pytest.raises(ValueError, match="its entries are others: more"):
            decode_state({**payload, "more": payload[part]}, sent, word)


@given(st.integers(0, 10**6), st.sampled_from([*WITH_MEMORY, *ROUNDING]), st.binary(max_size=400))
@settings(max_examples=60)
def test_any_bytes_are_decoded_to_something_finite_or_refused(seed, word, noise):
    forms = {"w": torch.zeros(5, 7), "b": torch.zeros(3), "n": torch.tensor(1)}
    payload = encode_model({"w": draw(seed, (5, 7)), "b": torch.ones(3), "n": torch.tensor(2)}, lambda: forms, word)
    for name, value in payload.items():
        own = (noise * (1 + value.nbytes // max(1, len(noise))))[: value.nbytes] if noise else b"\xff" * value.nbytes
        payload[name] = torch.frombuffer(bytearray(own), dtype=value.dtype).view(value.shape)
    try:
        found = decode_state(payload, forms, word)
    except ValueError:
        return
    assert all(value.isfinite().all() for value in found.values())


# --- words


@pytest.mark.parametrize(
    ("word", "codec"),
    [
        ("none", Codec()),
        ("bfloat16", Codec(numbers="bfloat16")),
        ("topk", Codec("topk", 0.01)),
        ("topk:0.05+int8", Codec("topk", 0.05, "int8")),
        ("lowrank", Codec("lowrank", 4)),
        ("lowrank:16+float16", Codec("lowrank", 16, "float16")),
    ],
)
def test_words_are_read(word, codec):
    assert parse_codec(word) == codec
    assert ServerSettings(codec=word).codec == word


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("int4", "unknown codec 'int4' in server.codec 'int4'; did you mean 'int8'"),
        ("topk:2", r"server.codec topk:2: it keeps a share of the numbers; choose it in \(0, 1\]"),
        ("topk:nan", "it keeps a share"),
        ("lowrank:1.5", "a rank is a whole number, 1 or more"),
        ("lowrank:inf", "a rank is a whole number"),
        ("int8+topk", "topk and lowrank come first"),
        ("int8:4", "topk and lowrank come first"),
        ("topk+none", "unknown codec 'none'"),
        ("topk+int8+int8", "unknown codec 'int8'"),
        ("", "unknown codec ''"),
    ],
)
def test_other_words_are_refused_with_the_way_out(word, said):
    with pytest.raises(InputError, match=said):
        ServerSettings(codec=word)


def test_settings_that_lose_what_is_learnt_are_refused():
    with pytest.raises(InputError, match=r"server.broadcast_codec is 'int8', so clients must send what they add"):
        ServerSettings(broadcast_codec="int8")
    with pytest.raises(InputError, match=r"server.broadcast_codec 'int7'; did you mean 'int8'"):
        ServerSettings(codec="int8", broadcast_codec="int7")
    with pytest.raises(InputError, match=r"server.heads_every is 0"):
        ServerSettings(heads_every=0)


# --- whole rounds


def rounds_on(kind, toy, method, server, rounds=2):
    trainers = [toy.build_client_trainer(method, fast_path=False) for _ in range(2)]
    for trainer in trainers:
        trainer.codec, trainer.heads_every = server.codec, server.heads_every
    first = trainers if kind is ThreadsBackend else trainers[0]
    backend = kind(first, toy.build_clients(), delivery=server)
    return backend, list(federate(backend, backend.initial_broadcast(), rounds, codec=server.codec))


BOTH_WAYS = [
    ServerSettings(codec="float16"),
    ServerSettings(codec="bfloat16", broadcast_codec="bfloat16", heads_every=2),
    ServerSettings(codec="int8", broadcast_codec="int8"),
    ServerSettings(codec="topk:0.2+int8", broadcast_codec="float16", peers=1),
    ServerSettings(codec="lowrank:2", broadcast_codec="lowrank:3+int8"),
]
SETTINGS = pytest.mark.parametrize("server", BOTH_WAYS, ids=lambda one: f"{one.codec} {one.broadcast_codec}")


@METHODS
@SETTINGS
def test_backends_agree_in_what_they_lose(toy, method, server, same):
    serial, expected = rounds_on(SerialBackend, toy, method, server)
    other, threads = rounds_on(ThreadsBackend, toy, method, server)
    for one, two in zip(expected, threads, strict=True):
        assert same(one.message.shared, two.message.shared)
        assert same(one.message.peers, two.message.peers)
    assert same(serial.client_states, other.client_states)
    for kept in serial.client_states.values():
        assert bool(extract_residual(kept)) is parse_codec(server.codec).has_memory
        assert drop_residual(kept).keys() == serial.trainer.personal_names
    assert serial.evaluate(expected[-1].message, ["test"]) == other.evaluate(threads[-1].message, ["test"])


@METHODS
@pytest.mark.parametrize("codec", ["float16", "int8"])
def test_clients_as_one_computation_lose_nearly_the_same(toy, method, codec):
    server = ServerSettings(codec=codec, broadcast_codec=codec)
    serial, expected = rounds_on(SerialBackend, toy, method, server)
    vmap, found = rounds_on(VmapBackend, toy, method, server)
    for name, value in expected[-1].message.shared.items():  # a rounding apart, which may change a last step
        torch.testing.assert_close(found[-1].message.shared[name], value, rtol=4e-3, atol=4e-3)
    assert {one: kept.keys() for one, kept in vmap.client_states.items()} == {
        one: kept.keys() for one, kept in serial.client_states.items()
    }


@METHODS
@SETTINGS
def test_bytes_are_counted_as_they_travel_and_foretold(toy, method, server):
    rounds = 3
    server = replace(server, rounds=rounds)
    backend, history = rounds_on(SerialBackend, toy, method, server, rounds)
    counted, message = CommunicationCost(), backend.initial_broadcast()
    for round in history:
        for update in round.updates:
            sent = backend.delivery.encode_for(message, update.client)
            counted += measure_exchange(sent, update, backend.batch_norm_names)
            others = [head for name, head in sent.peers.items() if name != update.client]
            travelled = count_bytes(sent.shared) + sum(map(count_bytes, others))
            assert measure_exchange(sent, update, backend.batch_norm_names).down.total == travelled
        message = round.message
    each = summarise_model(method, toy.build_net, 3, server=server).traffic
    assert counted == foretell_run(each, server, 3)
    full = summarise_model(method, toy.build_net, 3).traffic
    assert counted.up.total < rounds * 3 * full.up.total


def test_heads_are_left_out_of_the_rounds_between(toy):
    server = ServerSettings(heads_every=3)
    _, history = rounds_on(SerialBackend, toy, FedCO2(), server, 4)
    published = [[bool(update.published) for update in round.updates] for round in history]
    assert published == [[False] * 3, [False] * 3, [True] * 3, [False] * 3]
    for before, after in pairwise([one.message.peers for one in history]):
        assert before.keys() == after.keys()


def test_a_round_without_heads_is_one_without_peers(toy, same):
    server = ServerSettings(heads_every=9)
    backend, [one] = rounds_on(SerialBackend, toy, FedCO2(), server, 1)
    alone, (_, two) = rounds_on(SerialBackend, toy, FedCO2(), server, 2)
    plain = SerialBackend(toy.build_client_trainer(FedCO2(inter="none"), fast_path=False), toy.build_clients())
    plain.client_states = backend.client_states
    [next_one] = federate(plain, replace(one.message, peers={}), 2)
    assert same(next_one.message.shared, two.message.shared)
    assert same(plain.client_states, alone.client_states)


@pytest.mark.parametrize("codec", ["float16", "topk:0.2+int8"])
@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_run_that_is_resumed_is_as_never_stopped(run_twice, same, no_figures, codec, where):
    config = Config(
        method=Copa(),
        server=ServerSettings(rounds=3, codec=codec, broadcast_codec="lowrank:2"),
        evaluation=EvaluationSettings(every=3),
    )
    config = replace(config, machine=replace(config.machine, client_state=where))
    one, _, two = run_twice(config)
    assert same(one.message.shared, two.message.shared)
    assert same(dict(one.message.peers), dict(two.message.peers))
    assert same(dict(one.client_states), dict(two.client_states))
    assert bool(extract_residual(next(iter(two.client_states.values())))) is parse_codec(codec).has_memory
    assert one.communication == two.communication


def test_answers_in_another_form_are_refused():
    message = Broadcast(0, {"w": torch.zeros(2)}, {})
    update = Update("a", {"w": torch.zeros(2)}, {}, 1, 0.0)
    half = replace(update, shared={"w": torch.zeros(2, dtype=torch.float16)})
    assert validate_update(update, "a", message) is None
    assert validate_update(half, "a", message, "float16") is None
    assert "not torch.float16" in validate_update(update, "a", message, "float16")
    assert "not torch.float32" in validate_update(half, "a", message)


def test_a_head_that_is_none_is_refused():
    message, forms = Broadcast(0, {}, {}), {"w": torch.zeros(2, 3)}
    good = Update("a", {}, encode_model(forms, lambda: forms, "int8"), 1, 0.0)
    assert validate_update(good, "a", message, "int8", forms) is None
    assert validate_update(good, "a", message, "int8", {}) == "its entries are others: w, w:scale"
    lie = replace(good, published={**good.published, "w:scale": torch.full((2,), float("inf"))})
    assert validate_update(lie, "a", message, "int8", forms) == "w has a scale that is negative or not finite"


@pytest.mark.parametrize("codec", ["float16", "topk:0.3+float16"])
def test_numbers_that_do_not_fit_are_told(toy, codec):
    trainer = toy.build_client_trainer(FedBN(), lr=1e6, momentum=0.0, weight_decay=0.0, max_grad_norm=10.0)
    trainer.codec = codec
    backend = SerialBackend(trainer, toy.build_clients())
    with pytest.raises(TrainingError, match=r"too large for server.codec .*float16; lower local.lr"):
        next(federate(backend, backend.initial_broadcast(), 1, codec=codec))
