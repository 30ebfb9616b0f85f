"""What a run says of every sample, in a file: ``predictions.npz``, which `numpy.load` reads too.

Its arrays have a row for each sample: ``client`` and ``split`` (places in the lists of ``about``), ``sample`` (an
identity), ``label``, and ``logits_fused`` and so on for each branch. ``about`` is a text of JSON as bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtrain.data.client_data import Samples
from fedtrain.data.errors import DataError
from fedtrain.data.readers.npz import read_arrays
from fedtrain.utils.atomic_files import replace_atomically

PREDICTIONS_FILE = "predictions.npz"
LOGITS = "logits_"
FORMAT = 1


@dataclass(frozen=True, eq=False)
class SavedPredictions:
    """Logits of every branch for samples of every client."""

    round: int
    clients: tuple[str, ...]
    splits: tuple[str, ...]
    client: NDArray[np.int64]
    """Of each sample, the place of its client in the list of clients."""
    split: NDArray[np.int64]
    sample: NDArray[np.uint64]
    """Equal for equal inputs with equal labels."""
    label: NDArray[np.int64]
    logits: dict[str, NDArray[np.float32]]
    """By branch, (samples, classes)."""

    def select(self, client: str, split: str = "test") -> SavedPredictions:
        """Those of one client and split."""
        if client not in self.clients or split not in self.splits:
            rows = np.zeros(len(self.label), bool)
        else:
            rows = (self.client == self.clients.index(client)) & (self.split == self.splits.index(split))
        return self.take(np.flatnonzero(rows))

    def take(self, rows: NDArray[np.int64]) -> SavedPredictions:
        """Those of these samples."""
        return replace(
            self,
            client=self.client[rows],
            split=self.split[rows],
            sample=self.sample[rows],
            label=self.label[rows],
            logits={branch: each[rows] for branch, each in self.logits.items()},
        )

    def compute_probabilities(self, branch: str = "fused") -> NDArray[np.float64]:
        """Softmax of the logits."""
        z = self.logits[branch].astype(np.float64)
        e = np.exp(z - z.max(1, keepdims=True))
        p: NDArray[np.float64] = e / e.sum(1, keepdims=True)
        return p

    def is_right(self, branch: str = "fused") -> NDArray[np.bool_]:
        """Whether the likeliest class is the label."""
        right: NDArray[np.bool_] = self.logits[branch].argmax(1) == self.label
        return right


def identify_samples(samples: Samples) -> NDArray[np.uint64]:
    """A number for each: the first eight bytes of SHA-256 over its input and its label."""
    inputs = samples.inputs.cpu().contiguous().numpy()
    labels = samples.labels.cpu().numpy().astype("<i8")
    digests = (hashlib.sha256(x.tobytes() + y.tobytes()).digest() for x, y in zip(inputs, labels, strict=True))
    return np.array([int.from_bytes(digest[:8], "little") for digest in digests], np.uint64)


def save_predictions(path: Path, found: SavedPredictions) -> None:
    """Write the file; it is complete or absent."""
    about = {"format": FORMAT, "round": found.round, "clients": found.clients, "splits": found.splits}
    arrays: dict[str, NDArray[Any]] = {
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
        **{name: getattr(found, name) for name in ("client", "split", "sample", "label")},
        **{f"{LOGITS}{branch}": logits for branch, logits in found.logits.items()},
    }
    with replace_atomically(path) as part, part.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load_predictions(path: Path) -> SavedPredictions:
    """Read the file, every number of it checked; nothing in it is unpickled."""
    arrays = read_arrays(path)
    try:
        about = dict(json.loads(arrays.pop("about").tobytes()))
        if about["format"] != FORMAT:
            raise ValueError("it is of another version")
        client, split, label = (_read_places(arrays, name) for name in ("client", "split", "label"))
        sample = arrays["sample"]
        logits = {name.removeprefix(LOGITS): each for name, each in arrays.items() if name.startswith(LOGITS)}
        classes = logits["fused"].shape[1]
        _check_below(client, len(about["clients"]))
        _check_below(split, len(about["splits"]))
        _check_below(label, classes)
        if sample.dtype != np.uint64 or len({len(one) for one in (client, split, label, sample)}) > 1:
            raise ValueError("its arrays do not fit together")
        if any(each.dtype != np.float32 or each.shape != (len(label), classes) for each in logits.values()):
            raise ValueError("its logits do not fit the samples")
        names = [tuple(str(one) for one in about[key]) for key in ("clients", "splits")]
        return SavedPredictions(int(about["round"]), names[0], names[1], client, split, sample, label, logits)
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise DataError(f"{path}: not predictions of fedco2, or damaged ({error}); save them again") from None


def join_predictions(parts: Sequence[SavedPredictions]) -> SavedPredictions:
    """Those of several clients or splits as one; they are of one run and round."""
    return replace(
        parts[0],
        client=np.concatenate([part.client for part in parts]),
        split=np.concatenate([part.split for part in parts]),
        sample=np.concatenate([part.sample for part in parts]),
        label=np.concatenate([part.label for part in parts]),
        logits={branch: np.concatenate([part.logits[branch] for part in parts]) for branch in parts[0].logits},
    )


def _read_places(arrays: dict[str, NDArray[Any]], name: str) -> NDArray[np.int64]:
    found = arrays[name]
    if found.dtype != np.int64 or found.ndim != 1:
        raise ValueError(f"{name} is not a list of whole numbers")
    return found


def _check_below(places: NDArray[np.int64], end: int) -> None:
    if len(places) and not (places.min() >= 0 and places.max() < end):
        raise ValueError("it speaks of what is not there")
