"""What travels comes out as it went in, whatever clients and entries are called and whatever form tensors have."""

from __future__ import annotations

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from small_experiments import bits

from fedtrain.backends.distributed.tensor_channel import TensorChannel
from fedtrain.federated.messages import Broadcast, Failure, Score, Update
from fedtrain.runs.client_state import ClientStateStore
from fedtrain.serialization.message_codec import (
    decode_broadcast,
    decode_replies,
    decode_scores,
    encode_broadcast,
    encode_replies,
    encode_scores,
    flatten_groups,
    group_entries,
)
from fedtrain.serialization.tensor_block import pack_tensors, unpack_tensors

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool])
SHAPES = st.lists(st.integers(0, 3), max_size=3)
LAWS = settings(max_examples=60)


@st.composite
def tensors(draw):
    """Of any bits that the type has: 0-dimensional, empty, laid out the other way round, a piece of another one."""
    shape, dtype = draw(SHAPES), draw(DTYPES)
    count = math.prod(shape) + 1
    raw = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    if dtype is torch.bool:
        raw = bytes(byte % 2 for byte in raw)
    value = torch.frombuffer(bytearray(raw), dtype=dtype)[1:].reshape(shape)
    return value.mT if value.ndim > 1 and draw(st.booleans()) else value


STATES = st.dictionaries(NAMES, tensors(), max_size=4)
LOSSES = st.floats(allow_nan=False)


def same(one, other):
    assert list(one) == list(other)
    assert bits(one) == bits(other)


def through_json(note):
    return json.loads(json.dumps(note))


@LAWS
@given(STATES)
def test_tensors_in_one_block(entries):
    forms, block = pack_tensors(entries)
    same(unpack_tensors(through_json(forms), block), entries)


@pytest.mark.parametrize(
    "form", [["w", "float32", [2], 12], ["w", "nothing", [], 4], ["w", "float32", [-1], 4], ["w", "float32", [1], 5]]
)
def test_forms_that_do_not_fit_their_block_are_refused(form):
    with pytest.raises(ValueError, match="w: "):
        unpack_tensors([form], torch.zeros(8, dtype=torch.uint8))


@LAWS
@given(st.integers(0, 10**9), STATES, st.dictionaries(NAMES, STATES, max_size=4))
def test_a_message(round, shared, peers):
    note, groups = encode_broadcast(Broadcast(round, shared, peers))
    found = decode_broadcast(through_json(note), flatten_groups(groups))
    assert (found.round, list(found.peers)) == (round, list(peers))
    same(found.shared, shared)
    for name, head in peers.items():
        same(found.peers[name], head)


UPDATES = st.builds(Update, NAMES, STATES, STATES, st.integers(0, 10**9), LOSSES)


@LAWS
@given(st.lists(st.one_of(UPDATES, st.builds(Failure, NAMES, st.text(max_size=20))), max_size=4))
def test_answers(answers):
    note, entries = encode_replies(answers)
    found = decode_replies(through_json(note), entries)
    for one, other in zip(found, answers, strict=True):
        if isinstance(other, Failure):
            assert one == other
            continue
        assert (one.client, one.num_examples, one.loss) == (other.client, other.num_examples, other.loss)
        same(one.shared, other.shared)
        same(one.published, other.published)


SCORES = st.dictionaries(
    st.sampled_from(["train", "val", "test"]),
    st.dictionaries(NAMES, st.builds(Score, LOSSES, LOSSES, st.integers(0, 10**9)), max_size=3),
)


@LAWS
@given(st.dictionaries(NAMES, SCORES, max_size=3))
def test_scores(scores):
    assert decode_scores(through_json(encode_scores(scores))) == scores


def test_a_loss_that_is_no_number_travels_too():
    note, _ = encode_replies([Update("a", {}, {}, 1, math.nan)])
    assert math.isnan(decode_replies(through_json(note), {})[0].loss)


@LAWS
@given(st.lists(STATES, max_size=4))
def test_groups_whose_entries_have_slashes(states):
    groups = {f"peers/{i}": entries for i, entries in enumerate(states)}
    found = group_entries(flatten_groups(groups))
    for group, entries in groups.items():
        same(found[group], entries)


class Loop:
    """One rank's end of a channel whose other end is itself."""

    def __init__(self, monkeypatch):
        self.pieces = []
        monkeypatch.setattr(dist, "send", lambda piece, to: self.pieces.append(piece.clone()))
        monkeypatch.setattr(dist, "recv", lambda piece, sender: piece.copy_(self.pieces.pop(0)))


def test_what_a_wire_moves(monkeypatch):
    loop, channel = Loop(monkeypatch), TensorChannel(torch.device("cpu"))

    @LAWS
    @given(st.dictionaries(NAMES, st.one_of(NAMES, st.integers(-(2**70), 2**70), LOSSES), max_size=3), STATES)
    def law(note, entries):
        channel.send(1, note, entries)
        found, moved = channel.receive(1)
        assert found == note
        same(moved, entries)
        assert not loop.pieces

    law()


@LAWS
@given(NAMES, st.integers(1, 999), st.dictionaries(NAMES.filter(lambda n: n != "__metadata__"), tensors(), max_size=3))
def test_a_cupboard_gives_back_what_was_put(client, round, entries):
    with TemporaryDirectory() as place:
        store = ClientStateStore(Path(place) / "own")
        store.save(client, round, entries)
        assert bits(store.load(client, round)) == bits(entries)
        assert [path.parent.parent for path in Path(place).rglob("*.safetensors")] == [store.folder]


def test_clients_whose_plain_letters_are_alike_have_places_of_their_own(tmp_path):
    store, names = ClientStateStore(tmp_path), ["a/b", "a b", "a-b", "../a", "ä", "ö", "", "x" * 300, "x" * 301]
    for i, name in enumerate(names):
        store.save(name, 1, {"w": torch.tensor(i)})
    assert [store.load(name, 1)["w"].item() for name in names] == list(range(len(names)))


def test_a_cupboard_is_cleared_of_what_is_old_and_not_needed(tmp_path):
    store = ClientStateStore(tmp_path)
    for client in ("a", "b"):
        for round in (1, 2, 3, 4, 5):
            store.save(client, round, {"w": torch.tensor(round)})
    store.prune("a", {2}, before=4)
    assert sorted(int(path.stem) for path in tmp_path.glob("a-*/*")) == [2, 4, 5]
    assert len(list(tmp_path.glob("b-*/*"))) == 5
    store.prune("nobody", set(), before=9)
