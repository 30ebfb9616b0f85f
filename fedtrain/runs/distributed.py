"""An experiment on several ranks: rank 0 leads, the others follow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fedtrain.backends.distributed.backend import DistributedBackend
from fedtrain.backends.distributed.process_group import Rank, join_process_group
from fedtrain.backends.distributed.rank_worker import RankWorker
from fedtrain.backends.distributed.tensor_channel import TensorChannel
from fedtrain.runs.experiment import Experiment
from fedtrain.runs.folder import RunFolder
from fedtrain.utils.signals import handle_signals
from theory.errors import InputError


@contextmanager
def open_distributed_backend(work: Experiment, place: Rank, folder: RunFolder) -> Iterator[DistributedBackend]:
    """On rank 0: the backend of all ranks, which are let go at the end."""
    part = select_rank_clients(work, place)
    channel = TensorChannel(part.config.machine.resolve_device())
    with join_process_group(place, channel.device):
        channel.broadcast({"folder": str(folder.path.absolute())}, {})
        backend = DistributedBackend(
            RankWorker(part.build_backend(folder.path), folder),
            [client.name for client in work.federation.clients],
            channel,
        )
        try:
            yield backend
        finally:
            backend.release_ranks()


def serve_rank(work: Experiment, place: Rank) -> RunFolder:
    """On any other rank: do what rank 0 says, until it is over; the folder of the run.

    An interruption is for rank 0 to answer; here it ends the turn at hand.
    """
    part = select_rank_clients(work, place)
    channel = TensorChannel(part.config.machine.resolve_device())
    with join_process_group(place, channel.device):
        folder = RunFolder(Path(channel.receive_broadcast()[0]["folder"]))
        worker = RankWorker(part.build_backend(folder.path), folder)
        with handle_signals(lambda number, frame: worker.request_stop()):
            worker.serve(channel)
    return folder


def select_rank_clients(work: Experiment, place: Rank) -> Experiment:
    """The part of an experiment that is one rank's: every so many-th client, on a device of its own."""
    clients, config = work.federation.clients, work.config
    check_rank_count(work, place.world_size)
    device = str(place.select_device(config.machine.resolve_device()))
    return replace(
        work,
        config=replace(config, machine=replace(config.machine, device=device)),
        federation=replace(work.federation, clients=clients[place.rank :: place.world_size]),
    )


def check_rank_count(work: Experiment, ranks: int) -> None:
    """A rank without a client would cost memory and do nothing."""
    if ranks > (clients := len(work.federation.clients)):
        raise InputError(f"{ranks} ranks for {clients} clients: some would idle; start fewer")
