"""Parcels as Flower carries them: the note as JSON, each group of tensors as one array."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedtrain.packing import packed, unpacked
from fedtrain.parcels import flat, grouped
from fedtrain.partition import StateDict

NOTE, BLOCK = "note", "block"


def content(note: Mapping[str, Any], entries: StateDict) -> RecordDict:
    """A record for each group (the averaged entries, each head): what several nodes get alike is uploaded once.

    One array holds all tensors of a group, for Flower moves arrays one by one and a network has many small ones.
    """
    records = RecordDict()
    forms = {}
    for group, state in grouped(entries).items():
        forms[group], block = packed(state)
        records[group] = ArrayRecord({BLOCK: Array(block.numpy())})
    records[NOTE] = ConfigRecord({"json": json.dumps({"note": note, "forms": forms})})
    return records


def opened(records: RecordDict) -> tuple[dict[str, Any], StateDict]:
    """What became these records; ValueError, KeyError or TypeError if nothing of ours did."""
    told = json.loads(str(records.config_records[NOTE]["json"]))
    blocks = {group: records.array_records[group][BLOCK].numpy() for group in told["forms"]}
    if any(block.dtype != np.uint8 or block.ndim != 1 for block in blocks.values()):
        raise ValueError("a block is not one of bytes")
    groups = {group: unpacked(forms, torch.from_numpy(blocks[group])) for group, forms in told["forms"].items()}
    return dict(told["note"]), flat(groups)
