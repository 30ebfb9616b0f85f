"""One entry in the form in which it travels. Vectors are left as they are: batch norm divides by some of them, and all
of them together are few."""

from __future__ import annotations

from math import prod

from torch import Tensor

from fedtrain.config.codec import Codec, Part
from fedtrain.federated.codec.low_rank import decode_low_rank, encode_low_rank, list_low_rank_forms
from fedtrain.federated.codec.numbers import Form, decode_numbers, encode_numbers, list_number_forms
from fedtrain.federated.codec.top_k import count_kept, decode_top_k, encode_top_k, list_top_k_forms
from fedtrain.parameters import StateDict, is_finite


def is_shortened(form: Form, codec: Codec) -> bool:
    """Whether an entry of this form is sent in fewer bytes: whole numbers never are."""
    dtype, shape = form
    if codec.is_none or not dtype.is_floating_point or not prod(shape):
        return False
    return codec.is_rounding or len(shape) > 1


def choose_part(shape: tuple[int, int], codec: Codec) -> Part:
    """What of a matrix is sent: all of it where two thin matrices, or the largest numbers, would not be fewer."""
    rows, columns = shape
    if codec.part == "lowrank":
        return "lowrank" if codec.amount * (rows + columns) < rows * columns else "all"
    return codec.part if codec.part == "topk" and count_kept(shape, codec.amount) < rows * columns else "all"


def list_forms(form: Form, codec: Codec) -> dict[str, Form]:
    """The parts in which an entry of this form travels, by the suffix of its name."""
    dtype, shape = form
    if not is_shortened(form, codec):
        return {"": form}
    if codec.is_rounding:
        return list_number_forms(shape, dtype, codec.numbers)
    matrix = shape[0], prod(shape[1:])
    part = choose_part(matrix, codec)
    if part == "lowrank":
        return list_low_rank_forms(matrix, dtype, int(codec.amount), codec.numbers)
    if part == "topk":
        return list_top_k_forms(matrix, dtype, codec.amount, codec.numbers)
    return list_number_forms(matrix, dtype, codec.numbers)


def encode_entry(value: Tensor, codec: Codec) -> StateDict:
    """The parts of an entry, by the suffix of its name; OverflowError for what is too large."""
    if not is_shortened((value.dtype, tuple(value.shape)), codec):
        return {"": value}
    if codec.is_rounding:
        return encode_numbers(value, codec.numbers)
    matrix = value.reshape(len(value), -1)
    part = choose_part((matrix.shape[0], matrix.shape[1]), codec)
    if part == "lowrank":
        return encode_low_rank(matrix, int(codec.amount), codec.numbers)
    if part == "topk":
        return encode_top_k(matrix, codec.amount, codec.numbers)
    return encode_numbers(matrix, codec.numbers)


def decode_entry(parts: StateDict, form: Form, codec: Codec) -> Tensor:
    """The entry of all its parts; ValueError, as what it is or has, for parts that are not those of one."""
    dtype, shape = form
    for suffix, (kind, size) in list_forms(form, codec).items():
        if (found := parts[suffix]).dtype != kind or tuple(found.shape) != size:
            raise ValueError(f"is {found.dtype} {tuple(found.shape)}, not {kind} {size}")
    if not is_shortened(form, codec):
        value = parts[""]
    elif codec.is_rounding:
        value = decode_numbers(parts, dtype, codec.numbers)
    else:
        matrix = shape[0], prod(shape[1:])
        part = choose_part(matrix, codec)
        if part == "lowrank":
            value = decode_low_rank(parts, dtype, codec.numbers)
        elif part == "topk":
            value = decode_top_k(parts, matrix, dtype, codec.numbers)
        else:
            value = decode_numbers(parts, dtype, codec.numbers)
    if not is_finite(value):
        raise ValueError("is not finite")
    return value.view(shape)
