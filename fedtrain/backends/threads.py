"""All clients in this process, several at a time: each on a thread and a trainer of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from queue import SimpleQueue

import torch

from fedtrain.backends.serial import SerialBackend, T
from fedtrain.config.schema import ServerSettings
from fedtrain.data.client_data import ClientData
from fedtrain.federated.client import ClientTrainer, OffloadFunction


class ThreadsBackend(SerialBackend):
    """Clients of a round are independent: two that have a core each are done before two that share both in turn.

    Torch lets go of the interpreter while it computes, so threads are enough, and nothing is copied between processes.
    On CUDA every trainer has a stream of its own.
    """

    def __init__(
        self,
        benches: Sequence[ClientTrainer],
        clients: Sequence[ClientData],
        *,
        skip_failures: bool = False,
        keep: OffloadFunction = dict,
        delivery: ServerSettings | None = None,
    ) -> None:
        super().__init__(benches[0], clients, skip_failures=skip_failures, keep=keep, delivery=delivery)
        self.trainers = list(benches)
        cuda = self.trainer.device.type == "cuda"
        self.streams = {trainer: torch.cuda.Stream(trainer.device) for trainer in self.trainers} if cuda else {}

    def request_stop(self) -> None:
        """From another thread: end all turns at the next batch."""
        for trainer in self.trainers:
            trainer.stop_requested.set()

    def map_clients(self, work: Callable[[ClientTrainer, str], T], names: Sequence[str]) -> list[T]:
        """A core for each client, the largest first, and those beyond a multiple of the cores from the beginning.

        Five clients on two cores are three at a time and then two: the system divides two cores among three more
        evenly than they would be used by two, two and one. Fewer clients than cores have several each.
        """
        cores = torch.get_num_threads()
        at_once = max(1, min(len(names), len(self.trainers), cores + len(names) % cores))
        try:
            return self._run_concurrently(work, names, at_once, max(1, cores // at_once))
        finally:
            torch.set_num_threads(cores)

    def _run_concurrently(
        self, work: Callable[[ClientTrainer, str], T], names: Sequence[str], workers: int, threads: int
    ) -> list[T]:
        free: SimpleQueue[ClientTrainer] = SimpleQueue()
        for trainer in self.trainers[:workers]:
            free.put(trainer)

        def take_turn(name: str) -> T:
            torch.set_num_threads(threads)  # of the team that this thread leads
            trainer = free.get()
            try:
                with self._use_stream(trainer):
                    return work(trainer, name)
            finally:
                free.put(trainer)

        with ThreadPoolExecutor(workers) as pool:
            ranked = sorted(names, key=lambda name: -len(self.clients[name].train))
            turns = {name: pool.submit(take_turn, name) for name in ranked}
            try:
                done, _ = wait(turns.values(), return_when=FIRST_EXCEPTION)
                failed = [turn for turn in turns.values() if turn in done and turn.exception()]
                return [turn.result() for turn in failed or [turns[name] for name in names]]
            except BaseException:  # Ctrl-C too: nobody goes on with a round that is given up
                self.request_stop()
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                for trainer in self.trainers:
                    trainer.stop_requested.clear()

    @contextmanager
    def _use_stream(self, trainer: ClientTrainer) -> Iterator[None]:
        """On CUDA: begin when all that is handed in is there, end when all that is handed out is."""
        if trainer not in self.streams:
            yield
            return
        stream = self.streams[trainer]
        stream.wait_stream(torch.cuda.default_stream(trainer.device))
        with torch.cuda.stream(stream):
            yield
        stream.synchronize()
