"""What training began with, which anybody can draw: codecs write how entries differ from it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from threading import Lock

import torch
from torch import nn

from fedtrain.federated.messages import extract_published
from fedtrain.methods.base import AnyMethod
from fedtrain.parameters import EntryNames, StateDict, copy_entries


class StartingEntries:
    """Drawn when somebody asks for them, once for all trainers of a process, one at a time: drawing takes torch's own
    generator for a while."""

    def __init__(self, method: AnyMethod, build_module: Callable[[str], nn.Module], *, is_common: bool) -> None:
        self.method, self.build_module, self.is_common = method, build_module, is_common
        self._lock = Lock()
        self._published: dict[str, StateDict] = {}
        self._shared: StateDict = {}
        self._digest = ""

    def get_shared(self) -> StateDict:
        """The entries that the server averages."""
        with self._lock:
            if not self._shared:
                module = self.build_module("")
                self._shared = copy_entries(module, self.method.shared(module))
            return self._shared

    def compute_digest(self) -> str:
        """Of the shared entries: two processes that draw other ones would understand nothing of each other."""
        if not self._digest:
            sum = hashlib.sha256()
            for name, value in sorted(self.get_shared().items()):
                sum.update(name.encode())
                sum.update(value.cpu().reshape(-1).view(torch.uint8).numpy().data)
            self._digest = sum.hexdigest()
        return self._digest

    def get_published(self, client: str) -> StateDict:
        """What a client published before it trained, as it was."""
        with self._lock:
            key = "" if self.is_common else client
            if key not in self._published:
                module = self.build_module(key)
                names: EntryNames = frozenset(
                    name for name in module.state_dict() if name.startswith(f"{self.method.published}.")
                )
                self._published[key] = extract_published(self.method, copy_entries(module, names))
            return self._published[key]
