"""One rank of a process group: its clients, and what it does when it is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedtrain.backends.distributed.tensor_channel import TensorChannel
from fedtrain.backends.serial import SerialBackend
from fedtrain.errors import TrainingError
from fedtrain.federated.messages import Broadcast
from fedtrain.parameters import StateDict
from fedtrain.runs.folder import RunFolder
from fedtrain.serialization.message_codec import EncodedMessage, decode_broadcast, encode_replies, encode_scores
from theory.errors import InputError


class RankWorker:
    """Holds what its clients became in their last two turns: a round that is given up can be made again."""

    def __init__(self, backend: SerialBackend, folder: RunFolder) -> None:
        self.backend, self.folder = backend, folder
        self.states_by_round: dict[str, dict[int, StateDict]] = {
            name: {0: own} for name, own in backend.client_states.items()
        }
        self.persisted_rounds: dict[str, int] = {}
        """The turns that are on the disk, as this process has put them there."""
        self.message: Broadcast | None = None
        self.halted = False

    def request_stop(self) -> None:
        """End the turn at hand, and with it the run: a client that was stopped has not failed."""
        self.halted = True
        self.backend.request_stop()

    def serve(self, channel: TensorChannel) -> None:
        """Do what rank 0 says until it says that this is the end."""
        while True:
            note, entries = channel.receive_broadcast()
            if note["do"] == "end":
                channel.wait_for_all()
                return
            channel.send(0, *self.execute(note, entries))

    def execute(self, note: Mapping[str, Any], entries: StateDict) -> EncodedMessage:
        """What came of it; an error is told, not raised."""
        try:
            done = self._run_command(note, entries)
        except Exception as error:
            done = {"error": type(error).__name__, "text": str(error)}, {}
        if self.halted and note["do"] in ("train", "evaluate"):
            return {"error": "Halted", "text": "a rank was interrupted; go on from the last checkpoint"}, {}
        return done

    def _run_command(self, note: Mapping[str, Any], entries: StateDict) -> EncodedMessage:
        """``do``: train or evaluate with the message at hand, keep what clients became, go back to what was kept.

        ``turns`` says of each client in which round it trained last.
        """
        turns: dict[str, int] = {name: turn for name, turn in note["turns"].items() if name in self.states_by_round}
        if note["do"] == "keep":
            self._persist(turns)
        elif note["do"] == "restore":
            self._restore_states(turns)
        elif note["do"] == "evaluate":
            return {
                "scores": encode_scores(
                    self._rewind(turns).evaluate(
                        self._receive_broadcast(note, entries), note["splits"], set(note["clients"])
                    )
                )
            }, {}
        else:
            message = self._receive_broadcast(note, entries)
            cohort = [name for name in note["cohort"] if name in self.states_by_round]
            answers = self._rewind(turns).train(message, cohort)
            for name in cohort:
                self.states_by_round[name] = {
                    turns[name]: self.states_by_round[name][turns[name]],
                    message.round + 1: self.backend.client_states[name],
                }
            return encode_replies(answers)
        return {}, {}

    def _receive_broadcast(self, note: Mapping[str, Any], entries: StateDict) -> Broadcast:
        """The server's message, which is sent but once."""
        if "round" in note:
            self.message = decode_broadcast(note, entries)
        if self.message is None:
            raise TrainingError("a rank was told to work before it was told with what")
        return self.message

    def _rewind(self, turns: Mapping[str, int]) -> SerialBackend:
        """The clients as they were after these turns."""
        self.backend.client_states |= {name: self.states_by_round[name][turn] for name, turn in turns.items()}
        return self.backend

    def _persist(self, turns: Mapping[str, int]) -> None:
        for name, turn in turns.items():
            if turn and self.persisted_rounds.get(name) != turn:
                self.folder.client_state_store.save(name, turn, self.states_by_round[name][turn])
                self.persisted_rounds[name] = turn

    def _restore_states(self, turns: Mapping[str, int]) -> None:
        state = self.folder.load_checkpoint()
        if state is None:
            raise InputError(f"{self.folder.path}: rank 0 sees a checkpoint here and another rank does not")
        self.backend.resume(state, self.folder)
        self.states_by_round = {name: {turns[name]: own} for name, own in self.backend.client_states.items()}
