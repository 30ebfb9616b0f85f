"""The Flower app of a client: it answers who it is, and does its half of a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedtrain.flower.client_session import ClientSession
from fedtrain.flower.records import NOTE_RECORD, build_record, parse_record
from fedtrain.parameters import StateDict
from fedtrain.runs.manifest import describe_data
from fedtrain.serialization.message_codec import EncodedMessage, flatten_groups


def describe_client(message: Message, context: Context) -> Message:
    """Which client this is, and what its data are like."""

    def answer() -> EncodedMessage:
        note, _ = parse_record(message.content)
        site = ClientSession.from_node_config(context.node_config, note)
        return {"client": site.name, "place": site.client_index, "data": describe_data(site.experiment.federation)}, {}

    return Message(build_reply(answer), reply_to=message)


def run_client_round(message: Message, context: Context) -> Message:
    """Evaluate and train, as the message says; what is personal stays in the node's folder, and in its memory."""

    def answer() -> EncodedMessage:
        note, entries = parse_record(message.content)
        site = ClientSession.from_node_config(context.node_config, note)
        reply, kept = site.run_round(note, entries, get_cached_state(context.state, note))
        if kept is not None:
            about = {"run": note["run"], "turn": note["round"] + 1}
            context.state.clear()
            context.state.update(build_record(about, flatten_groups({"own/0": kept})))
        return reply

    return Message(build_reply(answer), reply_to=message)


def get_cached_state(state: RecordDict, note: dict[str, Any]) -> StateDict | None:
    """What the client kept after the turn that the server speaks of, if the node remembers just that."""
    if NOTE_RECORD not in state:
        return None
    about, entries = parse_record(state)
    if (about["run"], about["turn"]) != (note["run"], note["turn"]):
        return None
    return {key.removeprefix("own/0/"): value for key, value in entries.items()}


def build_reply(answer: Callable[[], EncodedMessage]) -> RecordDict:
    """The answer, or what went wrong, in words that the server can pass on."""
    try:
        return build_record(*answer())
    except Exception as error:
        return build_record({"error": type(error).__name__, "text": str(error)}, {})


app = ClientApp()
app.query()(describe_client)
app.train()(run_client_round)
