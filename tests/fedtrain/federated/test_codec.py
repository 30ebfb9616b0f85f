"""What clients send in half as many bytes: what is lost, what is counted, and that every backend loses the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtrain.analysis.model_summary import summarise_model
from fedtrain.backends.serial import SerialBackend
from fedtrain.backends.threads import ThreadsBackend
from fedtrain.backends.vmap.backend import VmapBackend
from fedtrain.config.schema import Config, EvaluationSettings, ServerSettings
from fedtrain.errors import TrainingError
from fedtrain.federated.codec import decode_shared, encode_head, encode_shared
from fedtrain.federated.communication import measure_exchange
from fedtrain.federated.messages import Broadcast, Update
from fedtrain.federated.server import federate, validate_update
from fedtrain.methods.copa import Copa
from fedtrain.methods.fedbn import FedBN
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.runs.callbacks import OnRoundEnd
from fedtrain.runs.loop import run_rounds

METHODS = pytest.mark.parametrize("method", [FedBN(), Copa(), FedCO2()], ids=lambda method: method.title)


def states(seed):
    chance = np.random.default_rng(seed)
    sent = {"w": torch.from_numpy(chance.normal(size=(3, 2))), "n": torch.tensor(3)}
    step = torch.from_numpy(chance.normal(size=(3, 2)) * 10.0 ** chance.integers(-3, 3))
    return sent, {"w": sent["w"] + step, "n": torch.tensor(5)}


@given(st.integers(0, 999))
@settings(max_examples=30)
def test_half_precision_is_that_of_numpy_and_rounds_the_difference(seed):
    sent, trained = states(seed)
    payload = encode_shared(trained, sent, "float16")
    difference = trained["w"].numpy() - sent["w"].numpy()
    np.testing.assert_array_equal(payload["w"].numpy(), difference.astype(np.float16))
    found = decode_shared(payload, sent, "float16")
    assert (found["w"].dtype, found["n"].item()) == (torch.float64, 5)
    lost = np.abs(found["w"].numpy() - trained["w"].numpy())
    assert (lost <= 2.0**-11 * np.abs(difference) + 2.0**-25 + 1e-12).all()  # half a unit of the last of 11 bits
    assert encode_head(trained, "float16")["w"].equal(trained["w"].half())


@given(st.integers(0, 999))
@settings(max_examples=5)
def test_without_a_codec_everything_is_as_it_was(seed):
    sent, trained = states(seed)
    assert encode_shared(trained, sent, "none") is trained
    assert decode_shared(trained, sent, "none") is trained
    assert encode_head(trained, "none") is trained


def rounds_on(kind, toy, method, codec="float16", rounds=2):
    trainers = [toy.build_client_trainer(method, fast_path=False) for _ in range(2)]
    for trainer in trainers:
        trainer.codec = codec
    backend = kind(trainers if kind is ThreadsBackend else trainers[0], toy.build_clients())
    return backend, list(federate(backend, backend.initial_broadcast(), rounds, codec=codec))


@METHODS
def test_backends_agree_in_what_they_lose(toy, method, same):
    serial, expected = rounds_on(SerialBackend, toy, method)
    _, threads = rounds_on(ThreadsBackend, toy, method)
    for one, other in zip(expected, threads, strict=True):
        assert same(one.message.shared, other.message.shared)
        assert same(one.message.peers, other.message.peers)
    _, vmapped = rounds_on(VmapBackend, toy, method)
    for name, value in expected[-1].message.shared.items():  # a rounding apart, which may change the last of 11 bits
        torch.testing.assert_close(vmapped[-1].message.shared[name], value, rtol=2e-3, atol=2e-3)
    _, full = rounds_on(SerialBackend, toy, method, "none")
    differences = [
        (value - full[-1].message.shared[name]).abs().max().item()
        for name, value in expected[-1].message.shared.items()
        if value.is_floating_point()
    ]
    assert 0 < max(differences) < 0.02
    assert all(
        value.dtype == torch.float16
        for head in expected[-1].message.peers.values()
        for value in head.values()
        if value.is_floating_point()
    )
    assert serial.evaluate(expected[-1].message, ["test"])


@METHODS
def test_bytes_are_counted_as_they_travel_and_foretold(toy, method):
    backend, history = rounds_on(SerialBackend, toy, method, rounds=1)
    foretold = summarise_model(method, toy.build_net, 3, codec="float16").traffic
    full = summarise_model(method, toy.build_net, 3).traffic
    first = backend.initial_broadcast()
    for update in history[0].updates:
        assert measure_exchange(first, update, backend.batch_norm_names) == foretold
    assert foretold.up.total < 0.6 * full.up.total  # but for counters
    assert foretold.down.shared == full.down.shared


def test_a_run_that_is_resumed_is_as_never_stopped(begin, same, no_figures):
    config = Config(
        method=Copa(),
        server=ServerSettings(rounds=3, codec="float16"),
        evaluation=EvaluationSettings(every=3),
    )

    def stop(progress):
        if progress.round == 2:
            raise KeyboardInterrupt

    work, folder = begin(config)
    run_rounds(work, folder)
    again, other = begin(config)
    with pytest.raises(KeyboardInterrupt):
        run_rounds(again, other, [OnRoundEnd(stop)])
    run_rounds(again, other)
    one, two = folder.load_checkpoint(), other.load_checkpoint()
    assert same(one.message.shared, two.message.shared)
    assert same(dict(one.message.peers), dict(two.message.peers))
    assert one.communication == two.communication


def test_answers_in_another_form_are_refused():
    message = Broadcast(0, {"w": torch.zeros(2)}, {})
    update = Update("a", {"w": torch.zeros(2)}, {}, 1, 0.0)
    half = replace(update, shared={"w": torch.zeros(2, dtype=torch.float16)})
    assert validate_update(update, "a", message) is None
    assert validate_update(half, "a", message, "float16") is None
    assert "not torch.float16" in validate_update(update, "a", message, "float16")
    assert "not torch.float32" in validate_update(half, "a", message)


def test_numbers_that_do_not_fit_are_told(toy):
    trainer = toy.build_client_trainer(FedBN(), lr=1e6, momentum=0.0, weight_decay=0.0, max_grad_norm=10.0)
    trainer.codec = "float16"
    backend = SerialBackend(trainer, toy.build_clients())
    with pytest.raises(TrainingError, match=r"too large for server.codec float16; lower local.lr"):
        next(federate(backend, backend.initial_broadcast(), 1, codec="float16"))
