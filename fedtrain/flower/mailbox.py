"""Flower's grid for a server that outlives an overloaded SuperLink: what failed in passing is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import httpx
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedtrain.errors import TrainingError

RETRY_PAUSES = (1.0, 3.0, 9.0, 27.0)
"""Seconds before each further try."""
PUSH_ERROR = "ObjectPushError"
"""Flower's name for an upload that took so long that the SuperLink gave it up; the class has no settled place."""
Result = TypeVar("Result")


@dataclass
class Mailbox:
    """Sends requests to nodes and fetches their replies."""

    grid: Grid
    tell: Callable[[str], None]

    def list_nodes(self) -> set[int]:
        """Those that are online."""
        return set(self._retry("list nodes", self.grid.get_node_ids))

    def send(self, kind: str, requests: Sequence[tuple[RecordDict, int]], ttl: float | None = None) -> list[str]:
        """Their numbers, "" for one that was not taken. All in one go: what several of them hold alike moves once."""

        def push() -> Iterable[str | None]:
            # made anew for each try, for half of the last one may be there already
            messages = [Message(request, dst_node_id=node, message_type=kind, ttl=ttl) for request, node in requests]
            return self.grid.push_messages(messages)

        return [str(number or "") for number in self._retry("send", push)] if requests else []

    def fetch(self, numbers: Sequence[str]) -> list[Message]:
        """What was replied to these requests."""
        return list(self._retry("fetch", lambda: self.grid.pull_messages(numbers))) if numbers else []

    def _retry(self, what: str, call: Callable[[], Result]) -> Result:
        for pause in RETRY_PAUSES:
            try:
                return call()
            except Exception as error:
                if not is_passing(error):
                    raise
                self.tell(f"the SuperLink could not {what} ({type(error).__name__}); trying again in {pause:g} s")
                time.sleep(pause)
        try:
            return call()
        except Exception as error:
            if not is_passing(error):
                raise
            tries = 1 + len(RETRY_PAUSES)
            raise TrainingError(f"the SuperLink could not {what} in {tries} tries ({error}); see its log") from error


def is_passing(error: Exception) -> bool:
    """Whether another try may succeed; a run that was stopped is refused with 401 or 403, and ends."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR
    return type(error).__name__ == PUSH_ERROR
