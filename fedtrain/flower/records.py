"""Parcels as Flower carries them: the note as JSON, each group of tensors as one array."""

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

NOTE_RECORD, BLOCK_KEY = "note", "block"


class RecordPacker:
    """Requests of one round: a group that goes into several of them (the averaged entries, a head) is packed once.

    One array holds all tensors of a group, for Flower moves arrays one by one and a network has many small ones.
    """

    def __init__(self) -> None:
        self.packed_groups: dict[int, tuple[StateDict, TensorSpecs, ArrayRecord]] = {}

    def pack(self, note: Mapping[str, Any], groups: Mapping[str, StateDict]) -> RecordDict:
        """A record for each group, and the note."""
        records = RecordDict({name: self._pack_group(state)[1] for name, state in groups.items()})
        forms = {name: self._pack_group(state)[0] for name, state in groups.items()}
        records[NOTE_RECORD] = ConfigRecord({"json": json.dumps({"note": note, "forms": forms})})
        return records

    def _pack_group(self, state: StateDict) -> tuple[TensorSpecs, ArrayRecord]:
        if id(state) not in self.packed_groups:  # which stays its own while it is held here
            forms, block = pack_tensors(state)
            self.packed_groups[id(state)] = state, forms, ArrayRecord({BLOCK_KEY: Array(block.numpy())})
        return self.packed_groups[id(state)][1:]


def build_record(note: Mapping[str, Any], entries: StateDict) -> RecordDict:
    """A message that goes to one client."""
    return RecordPacker().pack(note, group_entries(entries))


def parse_record(records: RecordDict) -> EncodedMessage:
    """What became these records; ValueError, KeyError or TypeError if nothing of ours did."""
    header = json.loads(str(records.config_records[NOTE_RECORD]["json"]))
    blocks = {group: records.array_records[group][BLOCK_KEY].numpy() for group in header["forms"]}
    if any(block.dtype != np.uint8 or block.ndim != 1 for block in blocks.values()):
        raise ValueError("a block is not one of bytes")
    groups = {group: unpack_tensors(forms, torch.from_numpy(blocks[group])) for group, forms in header["forms"].items()}
    return dict(header["note"]), flatten_groups(groups)
