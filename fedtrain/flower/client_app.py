"""The Flower app of a client: it answers who it is, and does its half of a round."""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedtrain.flower.client_session import ClientSession
from fedtrain.flower.records import build_record, parse_record
from fedtrain.runs.manifest import describe_data
from fedtrain.serialization.message_codec import EncodedMessage


def describe_client(message: Message, context: Context) -> Message:
    """Which client this is, and what its data are like."""

    def answer() -> EncodedMessage:
        note, _ = parse_record(message.content)
        site = ClientSession.from_node_config(context.node_config, note)
        return {"client": site.name, "place": site.client_index, "data": describe_data(site.experiment.federation)}, {}

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
        return ClientSession.from_node_config(context.node_config, note).run_round(note, entries)

    return Message(build_reply(answer), reply_to=message)


def build_reply(answer: Callable[[], EncodedMessage]) -> RecordDict:
    """The answer, or what went wrong, in words that the server can pass on."""
    try:
        return build_record(*answer())
    except Exception as error:
        return build_record({"error": type(error).__name__, "text": str(error)}, {})


app = ClientApp()
app.query()(describe_client)
app.train()(run_client_round)
