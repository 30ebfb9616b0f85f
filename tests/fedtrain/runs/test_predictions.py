"""Predictions come back from the file as they were, and damaged ones are refused."""

import numpy as np
import pytest
import torch

from fedtrain.data.client_data import Samples
from fedtrain.data.errors import DataError
from fedtrain.runs.predictions import (
    SavedPredictions,
    identify_samples,
    join_predictions,
    load_predictions,
    save_predictions,
)


def build(n=5, client=0, clients=("a", "b"), seed=0):
    chance = np.random.default_rng(seed)
    return SavedPredictions(
        3, tuple(clients), ("val", "test"), np.full(n, client), np.ones(n, np.int64),
        chance.integers(2**63, size=n).astype(np.uint64), chance.integers(2, size=n),
        {"fused": chance.normal(size=(n, 2)).astype(np.float32)},
    )  # fmt: skip


def test_there_and_back(tmp_path):
    found = join_predictions([build(), build(4, client=1, seed=1)])
    save_predictions(tmp_path / "p.npz", found)
    back = load_predictions(tmp_path / "p.npz")
    assert (back.round, back.clients, back.splits) == (3, ("a", "b"), ("val", "test"))
    for name in ("client", "split", "sample", "label"):
        assert np.array_equal(getattr(back, name), getattr(found, name))
        assert getattr(back, name).dtype == getattr(found, name).dtype
    assert np.array_equal(back.logits["fused"], found.logits["fused"])
    assert [len(back.select(client).label) for client in ("a", "b", "c")] == [5, 4, 0]
    assert len(back.select("a", "val").label) == 0


def test_numpy_reads_it_without_pickle(tmp_path):
    save_predictions(tmp_path / "p.npz", build())
    with np.load(tmp_path / "p.npz", allow_pickle=False) as archive:
        assert set(archive) == {"about", "client", "split", "sample", "label", "logits_fused"}
    assert [path.name for path in tmp_path.iterdir()] == ["p.npz"]


def test_probabilities_are_softmax_and_right_is_the_likeliest():
    found = build()
    z = torch.tensor(found.logits["fused"]).double()
    assert np.allclose(found.compute_probabilities(), z.softmax(-1).numpy(), atol=1e-15)
    assert np.array_equal(found.is_right(), (z.argmax(-1) == torch.tensor(found.label)).numpy())


def test_samples_are_told_by_input_and_label():
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 3.0]])
    ids = identify_samples(Samples(x, torch.tensor([0, 0, 1, 0])))
    assert ids[0] == ids[1]
    assert len(set(ids.tolist())) == 3
    assert ids.dtype == np.uint64


@pytest.mark.parametrize(
    "change",
    [
        {"label": np.full(5, 2)},
        {"client": np.full(5, -1)},
        {"split": np.full(5, 7)},
        {"sample": np.zeros(4, np.uint64)},
        {"label": np.zeros(5)},
        {"logits_fused": np.zeros((5, 2))},
        {"logits_online": np.zeros((4, 2), np.float32)},
        {"about": np.zeros(3, np.uint8)},
    ],
)
def test_what_does_not_fit_together_is_refused(tmp_path, change):
    path = tmp_path / "p.npz"
    save_predictions(path, build())
    with np.load(path) as archive:
        arrays = dict(archive) | change
    np.savez_compressed(path, **arrays)
    with pytest.raises(DataError, match=r"p\.npz: not predictions of fedco2, or damaged"):
        load_predictions(path)


def test_a_cut_off_file_is_refused(tmp_path):
    path = tmp_path / "p.npz"
    save_predictions(path, build())
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"p\.npz"):
        load_predictions(path)
