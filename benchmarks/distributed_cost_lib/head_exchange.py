"""Heads of all clients to all clients: what one round is to the server, for so many clients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from fedtrain.analysis.method_summary import PRESET_FOR_MODEL
from fedtrain.config.presets import resolve_preset
from fedtrain.data.datasets import get_dataset_info
from fedtrain.federated.communication import measure_exchange
from fedtrain.federated.delivery import draw_heads
from fedtrain.federated.messages import Broadcast, Failure, extract_published
from fedtrain.methods.base import ModelFactory
from fedtrain.parameters import StateDict, copy_entries
from fedtrain.runs.experiment import get_model_builder
from fedtrain.serialization.message_codec import encode_broadcast

HeadCost = dict[str, float]


def fill_with_random(state: StateDict) -> StateDict:
    """Tensors of these forms, in memory of their own and different from all others."""
    return {
        name: torch.rand(value.shape) if value.is_floating_point() else torch.zeros(value.shape, dtype=value.dtype)
        for name, value in state.items()
    }


def build_meta_states(network: str) -> tuple[StateDict, StateDict]:
    """What Fed-CO2 averages and what a client publishes, without memory; CIFAR's preset publishes nothing by itself."""
    config = resolve_preset(PRESET_FOR_MODEL[network], {"method": {"name": "fedco2", "inter": "both"}})
    data, method = get_dataset_info(config.data.dataset), config.method
    with torch.device("meta"):
        module = method.build(ModelFactory(get_model_builder(config.model, method, len(data.classes)), 0))
    return copy_entries(module, method.shared(module)), extract_published(method, module.state_dict())


def build_broadcast(clients: int, megabytes: float = 0.0) -> Broadcast:
    """Fed-CO2's after a round on the network for CIFAR, or with heads of so many MB and nothing else."""
    shared, head = build_meta_states("cifar")
    if megabytes:
        shared, head = {}, {"weight": torch.empty(int(megabytes * 1e6 / 4), device="meta")}
    return Broadcast(1, fill_with_random(shared), {f"client{i:04}": fill_with_random(head) for i in range(clients)})


def build_messages(message: Broadcast, peers: int) -> Iterator[tuple[dict[str, object], dict[str, StateDict]]]:
    """The message to each client, as the server on Flower has it."""
    for name in message.peers:
        sent = draw_heads(message, name, peers, 0)
        yield encode_broadcast(replace(sent, peers={peer: head for peer, head in sent.peers.items() if peer != name}))


def measure_point(clients: int, peers: int, megabytes: float = 0.0) -> HeadCost:
    """In this process: counted bytes, memory, and seconds of packing."""
    from fedtrain.flower.records import NOTE_RECORD, RecordPacker

    bare = read_resident_memory()
    message = build_broadcast(clients, megabytes)
    held = read_resident_memory()
    begun = time.perf_counter()
    packing = RecordPacker()
    packed = [packing.pack(*one) for one in build_messages(message, peers)]
    seconds = time.perf_counter() - begun
    return {
        "clients": clients,
        "peers": peers,
        "head_mb": megabytes,
        "down_mb": count_downlink_bytes(message, peers) / 1e6,
        "notes_mb": sum(len(str(one.config_records[NOTE_RECORD]["json"])) for one in packed) / 1e6,
        "held_mb": held - bare,
        "packed_mb": read_resident_memory() - held,
        "packing_s": seconds,
    }


def count_downlink_bytes(message: Broadcast, peers: int) -> int:
    """Counted bytes to all clients."""
    messages = ((name, draw_heads(message, name, peers, 0)) for name in message.peers)
    return sum(measure_exchange(sent, Failure(name, ""), frozenset()).down.total for name, sent in messages)


def read_resident_memory() -> float:
    """Memory of this process, in MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1000
