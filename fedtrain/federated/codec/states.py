"""What travels between server and clients, in fewer bytes.

**An update** is what training added to the entries that the server sent, and the server adds it to what it has. A codec
that leaves much out has a memory, *error feedback*: a client keeps what was lost and adds it to what it sends next, so
that over rounds everything arrives.

**A head, or what the server averaged,** takes the place of an earlier one, so nothing adds up and nothing has to be
kept. Half precision writes it as it is; every other codec writes how it differs from the one that training began with,
which everybody can draw.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedtrain.config.codec import Codec, parse_codec
from fedtrain.federated.codec.entries import decode_entry, encode_entry, is_shortened, list_forms
from fedtrain.federated.codec.numbers import Form
from fedtrain.parameters import StateDict

BuildStart = Callable[[], StateDict]
"""Draws what training began with."""


def encode_update(
    shared: StateDict, sent: StateDict, residual: StateDict, codec: str = "none"
) -> tuple[StateDict, StateDict]:
    """What a client answers to a server that sent it this, and what it keeps of it for next time."""
    way = parse_codec(codec)
    if way.is_none:
        return shared, {}
    payload: StateDict = {}
    kept: StateDict = {}
    for name, value in shared.items():
        added = value - sent[name] if value.is_floating_point() else value
        if name in residual:
            added = added + residual[name].to(added.device)
        parts = encode_entry(added, way)
        payload |= join_parts(name, parts)
        if way.has_memory and is_shortened(get_form(added), way):
            kept[name] = added - decode_entry(parts, get_form(added), way)
    return payload, kept


def decode_update(payload: StateDict, base: StateDict, codec: str = "none") -> StateDict:
    """What the server takes the client's entries to be, which has these; ValueError for a payload that is none."""
    if parse_codec(codec).is_none:
        return payload
    found = decode_state(payload, base, codec)
    return {name: base[name] + value if value.is_floating_point() else value for name, value in found.items()}


def encode_model(entries: StateDict, build_start: BuildStart, codec: str = "none") -> StateDict:
    """What a client publishes, or the server sends; it travels and rests like this."""
    way = parse_codec(codec)
    if way.is_none:
        return entries
    start = build_start() if way.has_memory else {}
    return {
        part: found
        for name, value in entries.items()
        for part, found in join_parts(
            name, encode_entry(value - start[name] if is_difference(value, way) else value, way)
        ).items()
    }


def decode_model(payload: StateDict, forms: StateDict, build_start: BuildStart, codec: str = "none") -> StateDict:
    """What became of entries of these forms; ValueError for a payload that is none of theirs."""
    way = parse_codec(codec)
    if way.is_none:
        return payload
    start = build_start() if way.has_memory else {}
    return {
        name: start[name] + value if is_difference(value, way) else value
        for name, value in decode_state(payload, forms, codec).items()
    }


def is_difference(value: Tensor, codec: Codec) -> bool:
    """Whether an entry of a head or an average is written as what was added to the start."""
    return codec.has_memory and is_shortened(get_form(value), codec)


def decode_state(payload: StateDict, forms: StateDict, codec: str) -> StateDict:
    """Every entry that has such a form; ValueError, with its name, for one that has not."""
    way = parse_codec(codec)
    suffixes = {name: list_forms(get_form(like), way) for name, like in forms.items()}
    if other := payload.keys() ^ {name + suffix for name, own in suffixes.items() for suffix in own}:
        raise ValueError(f"its entries are others: {', '.join(sorted(other))}")
    found: StateDict = {}
    for name, own in suffixes.items():
        try:
            found[name] = decode_entry({suffix: payload[name + suffix] for suffix in own}, get_form(forms[name]), way)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
    return found


def count_encoded_bytes(entries: StateDict, codec: str) -> int:
    """Bytes of these entries as they travel, from their forms alone."""
    return sum(
        dtype.itemsize * torch.Size(shape).numel()
        for value in entries.values()
        for dtype, shape in list_forms(get_form(value), parse_codec(codec)).values()
    )


def join_parts(name: str, parts: StateDict) -> StateDict:
    """The parts of an entry, each by its whole name."""
    return {name + suffix: value for suffix, value in parts.items()}


def get_entry_name(part: str) -> str:
    """Of the entry that this is a part of."""
    return part.partition(":")[0]


def get_form(value: Tensor) -> Form:
    """Its type and shape."""
    return value.dtype, tuple(value.shape)
