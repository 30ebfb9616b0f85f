"""How tensors are shortened on their way, as a word of a configuration says it: ``topk:0.01+int8``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Literal, get_args

from theory.errors import InputError
from theory.text import suggest_name

NumberFormat = Literal["full", "float16", "bfloat16", "int8"]
Part = Literal["all", "topk", "lowrank"]
DEFAULT_AMOUNT: dict[Part, float] = {"topk": 0.01, "lowrank": 4}
"""The share of the numbers that top-k keeps; the rank."""
CODEC_WORDS = ("none", "float16", "bfloat16", "int8", *DEFAULT_AMOUNT)


@dataclass(frozen=True)
class Codec:
    """First what of a matrix is sent, then how each number of that is."""

    part: Part = "all"
    amount: float = 0.0
    """topk: the share of the numbers that is kept; lowrank: the rank."""
    numbers: NumberFormat = "full"

    @property
    def is_none(self) -> bool:
        """Whether everything travels as it is."""
        return self.part == "all" and self.numbers == "full"

    @property
    def is_rounding(self) -> bool:
        """Whether each number is merely written in half as many bytes: so little is lost that nobody keeps it."""
        return self.part == "all" and self.numbers in ("float16", "bfloat16")

    @property
    def has_memory(self) -> bool:
        """Whether a client keeps what was lost and adds it to what it sends next: error feedback."""
        return not (self.is_none or self.is_rounding)


@lru_cache
def parse_codec(text: str, setting: str = "server.codec") -> Codec:
    """What a word such as ``float16``, ``lowrank:8`` or ``topk:0.05+int8`` means."""
    first, *rest = text.split("+")
    word, colon, number = first.partition(":")
    if word in DEFAULT_AMOUNT:
        part: Part = "topk" if word == "topk" else "lowrank"
        amount = _parse_amount(part, number, setting) if colon else DEFAULT_AMOUNT[part]
        return Codec(part, amount, _parse_numbers(rest, text, setting) if rest else "full")
    if rest or colon:
        raise InputError(
            f"{setting} is {text!r}; topk and lowrank come first, with an amount if you like, then a format of "
            "numbers, such as topk:0.01+int8"
        )
    return Codec() if word == "none" else Codec(numbers=_parse_numbers([word], text, setting))


def _parse_amount(part: Part, number: str, setting: str) -> float:
    try:
        amount = float(number)
    except ValueError:
        amount = -1.0
    if part == "topk" and not 0 < amount <= 1:
        raise InputError(f"{setting} topk:{number}: it keeps a share of the numbers; choose it in (0, 1]")
    if part == "lowrank" and not (isfinite(amount) and amount >= 1 and amount == int(amount)):
        raise InputError(f"{setting} lowrank:{number}: a rank is a whole number, 1 or more")
    return amount


def _parse_numbers(words: list[str], text: str, setting: str) -> NumberFormat:
    formats: dict[str, NumberFormat] = {name: name for name in get_args(NumberFormat) if name != "full"}
    if len(words) != 1 or words[0] not in formats:
        wrong = next((word for word in words if word not in formats), words[-1])
        known = CODEC_WORDS if "+" not in text else [*formats]
        raise InputError(f"unknown codec {wrong!r} in {setting} {text!r}; {suggest_name(wrong, known)}")
    return formats[words[0]]
