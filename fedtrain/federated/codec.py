"""How a client's answer is written: in full, or in half as many bytes.

What training added to a shared entry is sent, not the entry: half precision has eleven bits for the difference, and the
server adds it to what it sent itself. A published head is sent as it is, for who receives it has nothing to add it to.
Whole numbers are never shortened.
"""

from __future__ import annotations

import torch

from fedtrain.config.schema import CodecName
from fedtrain.parameters import StateDict

HALF = torch.float16


def encode_shared(shared: StateDict, sent: StateDict, codec: CodecName) -> StateDict:
    """What a client answers, to a server that sent it this."""
    if codec == "none":
        return shared
    return {
        name: (value - sent[name]).to(HALF) if value.is_floating_point() else value for name, value in shared.items()
    }


def decode_shared(payload: StateDict, sent: StateDict, codec: CodecName) -> StateDict:
    """What the server takes the client's entries to be."""
    if codec == "none":
        return payload
    return {
        name: sent[name] + value.to(sent[name].dtype) if value.is_floating_point() else value
        for name, value in payload.items()
    }


def encode_head(head: StateDict, codec: CodecName) -> StateDict:
    """What a client publishes; it travels and rests like this."""
    if codec == "none":
        return head
    return {name: value.to(HALF) if value.is_floating_point() else value for name, value in head.items()}


def get_encoded_dtype(dtype: torch.dtype, codec: CodecName) -> torch.dtype:
    """What a client's answer has in the place of such numbers."""
    return HALF if codec == "float16" and dtype.is_floating_point else dtype
