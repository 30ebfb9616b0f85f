"""What each client is sent of the server's message: in which rounds, how many heads, and in how many bytes."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedtrain.config.codec import parse_codec
from fedtrain.config.schema import ServerSettings
from fedtrain.federated.codec.states import BuildStart, decode_model, encode_model
from fedtrain.federated.messages import Broadcast
from fedtrain.parameters import StateDict
from fedtrain.rng import make_generator

DEFAULT_SETTINGS = ServerSettings()


class Delivery:
    """The averaged entries are encoded once for all clients, and decoded once by those of one process.

    The server averages on with the entries in full: what one message leaves out, a later one has.
    """

    def __init__(self, build_start: BuildStart, settings: ServerSettings = DEFAULT_SETTINGS, seed: int = 0) -> None:
        self.build_start, self.settings, self.seed = build_start, settings, seed
        self._encoded: tuple[StateDict | None, StateDict] = None, {}
        self._decoded: tuple[StateDict | None, StateDict] = None, {}

    @property
    def needs_start(self) -> bool:
        """Whether something travels as what was added to the entries that training began with."""
        return any(parse_codec(word).has_memory for word in (self.settings.codec, self.settings.broadcast_codec))

    def encode_for(self, message: Broadcast, client: str) -> Broadcast:
        """What one client is sent to train with, as it travels."""
        return self._encode(self.choose_for_training(message, client))

    def encode_for_prediction(self, message: Broadcast, client: str) -> Broadcast:
        """The same for who predicts, which takes heads in every round."""
        return self._encode(self.choose_heads(message, client))

    def receive_for_training(self, message: Broadcast, client: str) -> Broadcast:
        """What one client trains with."""
        return self.receive(self.encode_for(message, client), message.shared)

    def receive_for_prediction(self, message: Broadcast, client: str) -> Broadcast:
        """What one client predicts with."""
        return self.receive(self.encode_for_prediction(message, client), message.shared)

    def receive(self, sent: Broadcast, forms: StateDict) -> Broadcast:
        """What a client makes of this, whose entries are of these forms; ValueError if they are not."""
        if parse_codec(self.settings.broadcast_codec).is_none:
            return sent
        if self._decoded[0] is not sent.shared:
            found = decode_model(sent.shared, forms, self.build_start, self.settings.broadcast_codec)
            self._decoded = sent.shared, found
        return replace(sent, shared=self._decoded[1])

    def choose_for_training(self, message: Broadcast, client: str) -> Broadcast:
        """With heads, or in the rounds between without any."""
        if message.peers and message.round % self.settings.heads_every:
            return replace(message, peers={})
        return self.choose_heads(message, client)

    def choose_heads(self, message: Broadcast, client: str) -> Broadcast:
        """With the heads of as many others as the settings have it."""
        return draw_heads(message, client, self.settings.peers, self.seed)

    def _encode(self, message: Broadcast) -> Broadcast:
        if parse_codec(self.settings.broadcast_codec).is_none:
            return message
        if self._encoded[0] is not message.shared:
            payload = encode_model(message.shared, self.build_start, self.settings.broadcast_codec)
            self._encoded = message.shared, payload
        return replace(message, shared=self._encoded[1])


def draw_heads(message: Broadcast, client: str, peers: int, seed: int) -> Broadcast:
    """The message with the heads of all others, or of so many of them, drawn afresh each round (0 for all)."""
    if not peers or peers >= len(message.peers):
        return message
    others = sorted(name for name in message.peers if name != client)
    drawn = torch.randperm(len(others), generator=make_generator(seed, "peers", client, message.round))[:peers]
    chosen = {others[i] for i in drawn.tolist()}
    return replace(message, peers={name: head for name, head in message.peers.items() if name in chosen})
