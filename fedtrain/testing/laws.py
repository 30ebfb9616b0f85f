"""The laws of a method, one function each: it trains a small federation and raises `LawBroken` with what to do."""

from __future__ import annotations

from collections.abc import Callable

import torch
from safetensors.torch import load, save

from fedtrain.backends.vmap.backend import VmapBackend
from fedtrain.config.method_tables import parse_method, serialize_method
from fedtrain.extensions.errors import ExtensionError
from fedtrain.federated.aggregate import aggregate
from fedtrain.federated.messages import Broadcast, Update
from fedtrain.federated.server import federate
from fedtrain.federated.try_method import try_method
from fedtrain.methods.base import AnyMethod, ModelFactory
from fedtrain.parameters import all_entries
from fedtrain.testing.small_federation import (
    CLASSES,
    DIM,
    NAMES,
    SmallRun,
    build_clients,
    build_network,
    clone_run_state,
    copy_states,
    find_difference,
    train,
)

VMAP_TOLERANCE = 1e-9
"""In float64: rounding is 1e-16, and batch norm on few samples makes up to 1e-12 of it."""
LEARNING_ROUNDS, LEAST_ACCURACY = 10, 0.6


class LawBroken(AssertionError):  # noqa: N818 - a failed check, said to the method's author
    """A law does not hold: what was seen, and what the method's author can do."""


def options_are_serialisable(method: AnyMethod) -> None:
    """Its options go into a configuration and come back."""
    again = parse_method(type(method), serialize_method(method))
    if again != method:
        raise LawBroken(f"read back from a configuration, {method} is {again}; keep __post_init__ from changing fields")


def meta_device(method: AnyMethod) -> None:
    """Its module can be built without memory, to count what a round costs."""
    with torch.device("meta"):
        module = method.build(ModelFactory(build_network, 0))
    if unknown := sorted(method.shared(module) - all_entries(module)):
        raise LawBroken(f"shared names {', '.join(unknown)}, which build's module does not have in its state_dict")
    if method.published and method.published not in dict(module.named_modules()):
        raise LawBroken(f"published is {method.published!r}, and build's module has no such submodule")


def loss_and_predictions(method: AnyMethod) -> None:
    """The loss is one finite number, and every branch has a logit for each class."""
    try:
        try_method(method, build_network, CLASSES, (DIM,))
    except ExtensionError as error:
        raise LawBroken(str(error)) from error
    run = train(method, 1)
    data = run.backend.clients["a"]
    found = run.backend.trainer.predict(data, run.backend.client_states["a"], run.message, data.test.inputs)
    for name, logits in found.items():
        if tuple(logits.shape) != (len(data.test), CLASSES):
            raise LawBroken(f"branch {name} has shape {tuple(logits.shape)}; give logits (samples, classes)")


def shared_entries_agree(method: AnyMethod) -> None:
    """After a round all clients predict with the same shared entries, those that the server sent."""
    if method.phases_before_prediction():  # it says openly that it trains a copy before it predicts
        return
    run = train(method)
    for client in NAMES:
        entries = run.load_entries(client)
        mine = {name: entries[name] for name in run.message.shared}
        if name := find_difference(mine, run.message.shared):
            raise LawBroken(f"client {client} does not predict with the server's {name}; branches must change no entry")


def personal_entries_do_not_travel(method: AnyMethod) -> None:
    """A client sends what is shared and what is published, and nothing else."""
    run = train(method, 1)
    for update in (one for one in run.history[0].updates if isinstance(one, Update)):
        if extra := sorted(update.shared.keys() - run.backend.trainer.shared_names):
            raise LawBroken(f"client {update.client} sends {', '.join(extra)}, which shared does not name")
        if method.published and not update.published:
            raise LawBroken(f"published is {method.published!r}, and nothing lies under it")


def absent_clients_keep_theirs(method: AnyMethod) -> None:
    """A round changes nothing of the clients that were not in it."""
    backend = train(method, 1).backend
    message = backend.initial_broadcast()
    before = copy_states(backend.client_states)
    backend.train(message, ["a"])
    for client in ("b", "c"):
        if name := find_difference(backend.client_states[client], before[client]):
            raise LawBroken(f"{name} of the absent client {client} has changed; keep no tensor outside the module")


def order_does_not_matter(method: AnyMethod) -> None:
    """Neither the order in which clients are listed nor that in which they answer changes a bit."""
    one, other = train(method), train(method, clients=build_clients()[::-1])
    if name := _compare_runs(one, other):
        raise LawBroken(f"{name} depends on who trained before; keep nothing on the method or its module's attributes")
    updates = [one for one in one.history[0].updates if isinstance(one, Update)]
    forth, back = (aggregate(one.start, answers, "size") for answers in (updates, updates[::-1]))
    if name := find_difference(forth.shared, back.shared):
        raise LawBroken(f"the mean of {name} depends on the order of the answers")


def resume(method: AnyMethod) -> None:
    """A run that was stopped after a round and goes on in a new process makes the same bits."""
    whole, first = train(method, 2), train(method, 1)
    message, kept = clone_run_state(first)
    peers = {name: load(save(head)) if head else {} for name, head in message.peers.items()}
    stored = Broadcast(message.round, load(save(message.shared)) if message.shared else {}, peers)
    fresh = train(method, 0).backend
    fresh.client_states = {name: load(save(state)) if state else {} for name, state in kept.items()}
    again = SmallRun(fresh, stored, list(federate(fresh, stored, 2)))
    if name := _compare_runs(whole, again):
        raise LawBroken(
            f"{name} differs when the second round is made from the saved entries; what a method remembers must be a "
            "parameter or a buffer of its module"
        )


def no_global_randomness(method: AnyMethod) -> None:
    """Torch's global generator is neither read nor moved."""
    before = torch.get_rng_state()
    try:
        torch.manual_seed(1)
        one = train(method, 1)
        if not torch.equal(torch.get_rng_state(), torch.Generator().manual_seed(1).get_state()):
            raise LawBroken("the global random generator was used; draw weights with factory, and nothing in a loss")
        torch.manual_seed(2)
        if name := _compare_runs(one, train(method, 1)):
            raise LawBroken(f"{name} depends on torch.manual_seed; draw weights with factory, and nothing in a loss")
    finally:
        torch.set_rng_state(before)


def vmap(method: AnyMethod) -> None:
    """All clients in one computation (backend vmap) come to the same as one after the other."""
    one, other = train(method, dtype=torch.float64), train(method, kind=VmapBackend, dtype=torch.float64)
    if name := _compare_runs(one, other, VMAP_TOLERANCE):
        raise LawBroken(
            f"{name} is another one on the backend vmap; use no Python number taken from a tensor (item, float, if)"
        )


def it_learns(method: AnyMethod) -> None:
    """After some rounds it predicts far better than chance, which is a third."""
    run = train(method, LEARNING_ROUNDS)
    scores = run.backend.evaluate(run.message, ["test"])
    found = min(score["test"]["fused"].accuracy for score in scores.values())
    if not found > LEAST_ACCURACY:
        raise LawBroken(
            f"after {LEARNING_ROUNDS} rounds on easy data a client's accuracy is {found:.2f}, and chance is "
            f"{1 / CLASSES:.2f}; does the loss lead to the labels?"
        )


def _compare_runs(one: SmallRun, other: SmallRun, tolerance: float = 0.0) -> str | None:
    """The first entry in which two runs differ."""
    pairs = [(one.message.shared, other.message.shared)]
    pairs += [(one.message.peers[name], other.message.peers.get(name, {})) for name in one.message.peers]
    pairs += [(one.backend.client_states[name], other.backend.client_states[name]) for name in NAMES]
    return next((name for a, b in pairs if (name := find_difference(a, b, tolerance))), None)


LAWS: dict[str, Callable[[AnyMethod], None]] = {
    law.__name__.replace("_", " "): law
    for law in (
        options_are_serialisable,
        meta_device,
        loss_and_predictions,
        shared_entries_agree,
        personal_entries_do_not_travel,
        absent_clients_keep_theirs,
        order_does_not_matter,
        resume,
        no_global_randomness,
        vmap,
        it_learns,
    )
}
"""By what they are called in a report."""
PREREQUISITES = (meta_device,)
"""Without these the others say nothing."""
