"""Tensors and a note from one rank to another: no pickle, no copy but one, bit by bit what was sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fedtrain.config.toml import format_error
from fedtrain.errors import TrainingError
from fedtrain.parameters import StateDict
from fedtrain.serialization.message_codec import EncodedMessage
from fedtrain.serialization.tensor_block import pack_tensors, unpack_tensors


class TensorChannel:
    """The note goes as JSON from CPU to CPU (gloo), the tensors as one block from device to device (gloo or nccl)."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def send(self, to: int, note: Mapping[str, Any], entries: StateDict) -> None:
        """To one rank."""
        self._send_with(lambda piece: dist.send(piece, to), note, entries)

    def receive(self, sender: int) -> EncodedMessage:
        """From one rank; waits for it."""
        return self._receive_with(lambda piece: dist.recv(piece, sender))

    def broadcast(self, note: Mapping[str, Any], entries: StateDict) -> None:
        """From rank 0 to all others."""
        self._send_with(lambda piece: dist.broadcast(piece, 0), note, entries)

    def receive_broadcast(self) -> EncodedMessage:
        """What rank 0 tells all others; waits for it."""
        return self._receive_with(lambda piece: dist.broadcast(piece, 0))

    def wait_for_all(self) -> None:
        """Wait until all are ready to leave: who leaves while another still listens would be taken for dead."""
        with _translate_errors():
            dist.barrier()

    def _send_with(self, move: Callable[[Tensor], object], note: Mapping[str, Any], entries: StateDict) -> None:
        forms, block = pack_tensors(entries, self.device)
        text = json.dumps({"note": note, "forms": forms, "size": len(block)}).encode()
        header = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        with _translate_errors():
            for piece in (torch.tensor([len(header)]), header, *([block] if len(block) else [])):
                move(piece)

    def _receive_with(self, move: Callable[[Tensor], object]) -> EncodedMessage:
        length = torch.zeros(1, dtype=torch.int64)
        with _translate_errors():
            move(length)
            header = torch.empty(int(length), dtype=torch.uint8)
            move(header)
            description = json.loads(header.numpy().tobytes())
            block = torch.empty(description["size"], dtype=torch.uint8, device=self.device)
            if len(block):
                move(block)
        return description["note"], unpack_tensors(description["forms"], block)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """What torch says of a rank that is gone, in our words."""
    try:
        yield
    except RuntimeError as error:
        raise TrainingError(f"another rank is gone ({format_error(error)}); go on from the last checkpoint") from None
