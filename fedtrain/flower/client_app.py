"""The Flower app of a client: it answers who it is, and does its half of a round."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedtrain.flower.client_session import ClientSession
from fedtrain.flower.records import build_record, parse_record
from fedtrain.flower.sites import hash_schema
from fedtrain.runs.manifest import describe_data
from fedtrain.serialization.message_codec import EncodedMessage


def describe_client(message: Message, context: Context) -> Message:
    """Which client this is, and what its data are like."""

    def answer() -> EncodedMessage:
        note, _ = parse_record(message.content)
        site = find_session(context, note)
        data = describe_data(site.experiment.federation)
        return {"client": site.name, "place": site.client_index, "data": data, "schema": hash_schema(data)}, {}

    return Message(build_reply(answer), reply_to=message)


def run_client_round(message: Message, context: Context) -> Message:
    """Evaluate and train, as the message says; what is personal stays in the node's folder.

    Nothing goes into ``context.state``. Flower hands that back in a single request while the process of the app
    exits, and kills the process after five seconds: with a large network the request is cut off, the node takes the
    app for crashed a minute later, and blames the turn that it has in hand by then.
    """

    def answer() -> EncodedMessage:
        note, entries = parse_record(message.content)
        message.content = RecordDict()  # a second copy of all networks, which the process would keep to its end
        return find_session(context, note).run_round(note, entries)

    return Message(build_reply(answer), reply_to=message)


def find_session(context: Context, note: Mapping[str, Any]) -> ClientSession:
    """The one of the last message, if this is of the same run; its data are read already."""
    query = {"config": note["config"], "run": note["run"]}
    return open_session(context.run_id, json.dumps(dict(context.node_config)), json.dumps(query))


@lru_cache(maxsize=1)
def open_session(run_id: int, node_config: str, query: str) -> ClientSession:
    """A client's data and experiment; in another run the data may have changed."""
    return ClientSession.from_node_config(json.loads(node_config), json.loads(query))


def build_reply(answer: Callable[[], EncodedMessage]) -> RecordDict:
    """The answer, or what went wrong, in words that the server can pass on."""
    try:
        return build_record(*answer())
    except Exception as error:
        return build_record({"error": type(error).__name__, "text": str(error)}, {})


app = ClientApp()
app.query()(describe_client)
app.train()(run_client_round)
