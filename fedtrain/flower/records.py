"""Parcels as Flower carries them: the note as JSON, each group of tensors as one array, or within the note if small."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedtrain.parameters import StateDict
from fedtrain.serialization.message_codec import EncodedMessage, flatten_groups, group_entries
from fedtrain.serialization.tensor_block import TensorSpecs, pack_tensors, unpack_tensors

NOTE_RECORD, NOTE_KEY, BLOCK_KEY = "note", "json", "block"
INLINE_LIMIT = 2**17
"""Bytes of all tensors of a message up to which they go into the note. An array of its own makes four requests on its
way to the SuperLink and four from there, and each of them costs more than so few bytes."""


class RecordPacker:
    """Requests of one round: a group that goes into several of them (the averaged entries, a head) is packed once.

    One array holds all tensors of a group, for Flower moves arrays one by one and a network has many small ones.
    """

    def __init__(self) -> None:
        self.packed_groups: dict[int, tuple[StateDict, TensorSpecs, ArrayRecord]] = {}

    def pack(self, note: Mapping[str, Any], groups: Mapping[str, StateDict]) -> RecordDict:
        """A record for each group, and the note; or the note alone."""
        size = sum(value.nbytes for state in groups.values() for value in state.values())
        if size <= INLINE_LIMIT:
            packed = {name: pack_tensors(state) for name, state in groups.items()}
            forms = {name: specs for name, (specs, _) in packed.items()}
            blocks = {f"{BLOCK_KEY} {name}": block.numpy().tobytes() for name, (_, block) in packed.items()}
            return RecordDict({NOTE_RECORD: ConfigRecord({NOTE_KEY: format_header(note, forms), **blocks})})
        records = RecordDict({name: self._pack_group(state)[1] for name, state in groups.items()})
        forms = {name: self._pack_group(state)[0] for name, state in groups.items()}
        records[NOTE_RECORD] = ConfigRecord({NOTE_KEY: format_header(note, forms)})
        return records

    def _pack_group(self, state: StateDict) -> tuple[TensorSpecs, ArrayRecord]:
        if id(state) not in self.packed_groups:  # which stays its own while it is held here
            forms, block = pack_tensors(state)
            self.packed_groups[id(state)] = state, forms, ArrayRecord({BLOCK_KEY: Array(block.numpy())})
        return self.packed_groups[id(state)][1:]


def format_header(note: Mapping[str, Any], forms: Mapping[str, TensorSpecs]) -> str:
    """What a message says, and what its tensors are like."""
    return json.dumps({"note": note, "forms": forms})


def build_record(note: Mapping[str, Any], entries: StateDict) -> RecordDict:
    """A message that goes to one client."""
    return RecordPacker().pack(note, group_entries(entries))


def read_inline_block(value: object) -> np.ndarray:
    """The bytes of a group that came within the note."""
    if not isinstance(value, bytes):
        raise TypeError("a block within the note is not one of bytes")
    return np.frombuffer(bytearray(value), np.uint8)  # a copy, for tensors must be writable


def parse_record(records: RecordDict) -> EncodedMessage:
    """What became these records; ValueError, KeyError or TypeError if nothing of ours did."""
    sent = records.config_records[NOTE_RECORD]
    header = json.loads(str(sent[NOTE_KEY]))
    blocks = {
        group: read_inline_block(sent[inline])
        if (inline := f"{BLOCK_KEY} {group}") in sent
        else records.array_records[group][BLOCK_KEY].numpy()
        for group in header["forms"]
    }
    if any(block.dtype != np.uint8 or block.ndim != 1 for block in blocks.values()):
        raise ValueError("a block is not one of bytes")
    groups = {group: unpack_tensors(forms, torch.from_numpy(blocks[group])) for group, forms in header["forms"].items()}
    return dict(header["note"]), flatten_groups(groups)
