"""The points of the curve: which head is published, and how what travels is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Point:
    """A way to send, all else being as in the reference."""

    title: str
    server: dict[str, Any]
    last: bool = False
    """Whether networks are cut before their last layer, so that this alone is published."""


def both(codec: str, broadcast: str, **more: Any) -> dict[str, Any]:
    """Settings of the server for what clients send, and what it sends."""
    return {"codec": codec, "broadcast_codec": broadcast, **more}


REFERENCE = "reference"
POINTS = {
    REFERENCE: Point("all heads in full (the paper)", {}),
    "peers-1": Point("one peer's head", {"peers": 1}),
    "half": Point("bfloat16 both ways", both("bfloat16", "bfloat16")),
    "int8": Point("int8 both ways", both("int8", "int8")),
    "int8-every-4": Point("int8, heads every 4 rounds", both("int8", "int8", heads_every=4)),
    "last": Point("last layer, in full", {}, last=True),
    "last-int8": Point("last layer, int8", both("int8", "int8"), last=True),
    "topk": Point("top 1 %, down 5 %, int8", both("topk:0.01+int8", "topk:0.05+int8")),
    "rank-8-down-int8": Point("rank 8 up, int8 down", both("lowrank:8+int8", "int8")),
    "rank-8": Point("rank 8, int8", both("lowrank:8+int8", "lowrank:8+int8")),
    "rank-4": Point("rank 4, int8", both("lowrank:4+int8", "lowrank:4+int8")),
    "last-rank-8-down-int8": Point("last layer, rank 8 up, int8 down", both("lowrank:8+int8", "int8"), last=True),
    "last-rank-8": Point("last layer, rank 8, int8", both("lowrank:8+int8", "lowrank:8+int8"), last=True),
}
