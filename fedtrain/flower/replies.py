"""What a node's reply says: an answer, an error that another try may mend, or one that it would not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from flwr.app import Message
from flwr.common.constant import ErrorCode

from fedtrain.data.errors import DataError
from fedtrain.errors import TrainingError
from fedtrain.flower.records import parse_record
from fedtrain.runs.json_types import NodeDescription
from fedtrain.serialization.message_codec import EncodedMessage
from theory.errors import InputError

PERMANENT_ERRORS = (ErrorCode.LOAD_CLIENT_APP_EXCEPTION, ErrorCode.CLIENT_APP_RAISED_EXCEPTION,
          ErrorCode.MOD_FAILED_PRECONDITION, ErrorCode.INVALID_FAB)  # fmt: skip
"""What another try would not mend."""
CRASH_ERRORS = (ErrorCode.UNKNOWN, ErrorCode.CLIENT_APP_CRASHED)
"""What it may mend, unless it happens again and again; all other errors mean that the node or the request was lost."""


def get_message_id(reply: Message) -> str:
    """Of the request that is answered; the sender's number does not do, for an error is the SuperLink's."""
    return str(reply.metadata.reply_to_message_id)


def is_lost(reply: Message) -> bool:
    """Whether node or request were lost, and another try may do."""
    return reply.has_error() and reply.error.code not in PERMANENT_ERRORS


def is_crash(reply: Message) -> bool:
    """Whether the app ended without a word."""
    return reply.has_error() and reply.error.code in CRASH_ERRORS


def is_node_gone(reply: Message) -> bool:
    """Whether the node itself went away; it may come back with another number."""
    return reply.has_error() and reply.error.code == ErrorCode.NODE_UNAVAILABLE


def parse_reply(reply: Message) -> EncodedMessage:
    """What a node says; an app that failed, or one that is not ours, says what kind of error that is."""
    if reply.has_error():
        return {"error": "TrainingError", "text": f"its app failed ({reply.error.reason}); see the node's log"}, {}
    try:
        return parse_record(reply.content)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        return {"error": "TrainingError", "text": f"its answer is none of fedco2's ({error}); update its node"}, {}


def is_client_description(note: Mapping[str, Any]) -> TypeGuard[NodeDescription]:
    """Whether a node says in it which client it has."""
    kinds = {"client": str, "place": int, "data": dict}
    return all(isinstance(note.get(key), kind) for key, kind in kinds.items())


def build_client_error(whose: str, note: Mapping[str, Any]) -> InputError | TrainingError:
    """The error that a note speaks of."""
    kinds = {kind.__name__: kind for kind in (InputError, DataError)}
    return kinds.get(note["error"], TrainingError)(f"{whose}: {note['text']}")
