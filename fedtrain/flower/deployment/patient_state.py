"""What a node knows of its requests, so that it never waits for a dead app.

A node takes one request at a time and gives it to an app, a process of its own. Flower knows which requests have no
reply yet and which apps have ended, but not which app had which request. So an app that dies before it has fetched its
request, or in the midst of its reply, leaves a node that waits for ever. One that dies after its reply is missed a
minute later, and the next request is blamed for it: that one gets two replies, the second of which lies on the node
until another request comes, and so do all replies from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from flwr.app import Message
from flwr.proto.task_pb2 import Task
from flwr.supercore.constant import TaskType
from flwr.supercore.date import now
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.object_store import ObjectStore
from flwr.supernode.nodestate.in_memory_nodestate import CLIENT_APP_CRASHED_ERROR, InMemoryNodeState

START_LIMIT = 120.0
"""Seconds in which an app has started on the slowest of machines. Flower starts a second one beside it after 30."""
REMEMBERED_REQUESTS = 100
"""Requests that were answered, and whose further replies are refused."""


class PatientNodeState(InMemoryNodeState):
    """Which app has which request: when an app ends without a whole reply, its own request gets an error for one."""

    def __init__(self, object_store: ObjectStore) -> None:
        super().__init__(object_store)
        self.newest_task: int | None = None
        self.requests: dict[int, str] = {}
        """By their tasks, which is what Flower calls the process of an app."""
        self.answered: deque[str] = deque(maxlen=REMEMBERED_REQUESTS)

    def create_task(self, *args: Any, **kwargs: Any) -> int | None:
        """Make the task of the request that is stored next."""
        self.newest_task = super().create_task(*args, **kwargs)
        return self.newest_task

    def has_request(self, task_id: int) -> bool:
        """Whether the request of a task is there; it comes a moment after the task itself."""
        return task_id in self.requests

    def claim_task(self, task_id: int) -> str | None:
        """Let an app start; it has more time for that than Flower gives it."""
        token = super().claim_task(task_id)
        with self.lock_task_store:
            if token is not None and task_id in self.task_token_store:
                self.task_token_store[task_id].active_until = now() + timedelta(seconds=START_LIMIT)
        return token

    def store_message(self, message: Message) -> str | None:
        """A request, or a reply unless its request has had one."""
        request = message.metadata.reply_to_message_id
        if request and request in self.answered:
            return None
        if not request and self.newest_task is not None:
            self.requests[self.newest_task] = message.metadata.message_id
            self.newest_task = None
        return super().store_message(message)

    def delete_messages(self, *, message_ids: Sequence[str] | None = None) -> None:
        """Forget a request and its reply, once that was sent."""
        self.answered.extend(message_ids or ())
        super().delete_messages(message_ids=message_ids)

    def finish_task(self, task_id: int, sub_status: str, details: str) -> bool:
        """An app says that it ends."""
        finished = super().finish_task(task_id, sub_status, details)
        if finished:
            self._end_turn(task_id)
        return finished

    def _on_task_tokens_expired(self, tasks: list[Task]) -> None:
        """Apps that have not been heard of for too long."""
        for task in tasks:
            if task.type == TaskType.CLIENT_APP:
                self._end_turn(task.task_id)
        super()._on_task_tokens_expired([task for task in tasks if task.type != TaskType.CLIENT_APP])

    def _end_turn(self, task_id: int) -> None:
        """Nothing more comes from this app: if its request has no whole reply, there will be none."""
        request_id = self.requests.pop(task_id, None)
        with self.lock_msg_store:
            if request_id is None or request_id not in self.msg_store:
                return  # answered, and sent
            for reply_id, entry in list(self.msg_store.items()):
                if entry.message.metadata.reply_to_message_id != request_id:
                    continue
                if self._is_whole(reply_id):
                    return
                self.object_store.delete(reply_id)
                if entry.is_retrieved:
                    return  # the node is sending it, and ends that with an error now
                del self.msg_store[reply_id]
            self._reply_crashed(self.msg_store[request_id].message)

    def _is_whole(self, message_id: str) -> bool:
        tree = self.object_store.get_object_tree(message_id)
        return all(self.object_store.get(part.object_id) != b"" for part in iterate_object_tree(tree))

    def _reply_crashed(self, request: Message) -> None:
        reply = Message(CLIENT_APP_CRASHED_ERROR, reply_to=request)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        self._store_generated_message(reply)
        if request.metadata.message_id not in self.time_store:
            self.record_message_processing_start(request.metadata.message_id)
        self.record_message_processing_end(request.metadata.message_id)
        self.store_message(reply)
