"""Messages as Flower carries them: small ones whole, the tensors of large ones as arrays of their own."""

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: make test-all")

from flwr.app import ConfigRecord
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fedtrain.flower.records import INLINE_LIMIT, RecordPacker, build_record, parse_record

SMALL = {"a/x": torch.arange(5), "a/y": torch.tensor(2.5, dtype=torch.float64), "b/x": torch.zeros(2, 0)}
LARGE = {"a/x": torch.arange(INLINE_LIMIT // 8 + 1)}


@pytest.mark.parametrize(("entries", "objects"), [(SMALL, 2), (LARGE, 5), ({}, 2)], ids=["small", "large", "none"])
def test_what_is_sent_arrives(entries, objects):
    """A small message is two objects on its way, itself and its note; every further one is a request of its own."""
    record = build_record({"round": 3}, entries)
    note, received = parse_record(record)
    assert note == {"round": 3}
    assert {name: value.dtype for name, value in received.items()} == {n: v.dtype for n, v in entries.items()}
    assert all(torch.equal(received[name], value) for name, value in entries.items())
    assert len(get_all_nested_objects(record)) == objects
    for value in received.values():
        value.add_(1)  # they can be written to, and are nobody else's
    assert parse_record(record)[0] == note


def test_a_group_of_several_large_messages_is_packed_once():
    packer, state = RecordPacker(), {"x": LARGE["a/x"]}
    one, other = (packer.pack({"to": name}, {"a": state}) for name in ("one", "other"))
    assert one["a"] is other["a"]


def test_what_is_no_block_is_refused():
    record = build_record({}, SMALL)
    record["note"] = ConfigRecord({**record["note"], "block a": "text"})
    with pytest.raises(TypeError, match="not one of bytes"):
        parse_record(record)
    record["note"] = ConfigRecord({**record["note"], "block a": b"\x00"})
    with pytest.raises(ValueError, match="does not fit a block of 1 bytes"):
        parse_record(record)
