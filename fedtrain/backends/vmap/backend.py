"""All clients in this process, all of a round at once: a step of every client is one computation (for GPUs)."""

from __future__ import annotations

from collections.abc import Collection

from fedtrain.backends.serial import SerialBackend, TrainedClient
from fedtrain.backends.vmap.stacked_clients import StackedClients
from fedtrain.errors import TrainingError
from fedtrain.federated.client import ClientTrainer
from fedtrain.federated.messages import Broadcast, Failure, Update


class VmapBackend(SerialBackend):
    """For a device that one client's small kernels leave idle. Its trainer must not use the fast path."""

    def train(self, message: Broadcast, cohort: Collection[str]) -> list[Update | Failure]:
        """Everyone named, together; if that fails they take turns, for in turn it shows whose fault it is."""
        names = list(cohort)
        try:
            sent = {name: self.delivery.receive_for_training(message, name) for name in names}
            own = {
                name: self.trainer.choose_fusion(self.clients[name], self.client_states[name], sent[name])
                for name in names
            }
            stack = StackedClients(self.trainer, [self.clients[name] for name in names], own, sent)
            losses = stack.train_phases()
        except Exception as error:
            before = dict(self.client_states)
            answers = super().train(message, names)
            if any(isinstance(answer, Failure) for answer in answers):
                return answers
            self.client_states = before
            first_line = (str(error).splitlines() or [""])[0]
            raise TrainingError(
                f"the clients cannot train together: {type(error).__name__}: {first_line}; one by one they can: "
                "set machine.backend = serial"
            ) from error

        def turn(trainer: ClientTrainer, name: str) -> TrainedClient:
            data = self.clients[name]
            trainer.check_has_batches(data)
            stack.load_client(name)
            trainer.method.finish(trainer.module, stack.get_context(name))
            return trainer.build_update(data, self.client_states[name], sent[name], losses[name])

        return self.collect_answers(turn, message.round + 1, names)
