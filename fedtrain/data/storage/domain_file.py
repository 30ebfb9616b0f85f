"""The file of one domain: its images decoded to bytes, its labels, and what they are, each with a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import Tensor

from fedtrain.data.datasets import DatasetInfo
from fedtrain.data.errors import DataError
from fedtrain.data.partition.indices import Indices
from fedtrain.data.readers.labelled_images import Split
from fedtrain.data.readers.safe_read import summarise_error
from fedtrain.utils.atomic_files import replace_atomically

FORMAT = "fedco2 domain 1"
SPLITS: tuple[Split, Split] = ("train", "test")


@dataclass(frozen=True, eq=False)
class StoredImages:
    """Inputs, images (n, C, H, W) of bytes or numbers, and the class of each."""

    images: NDArray[np.uint8] | NDArray[np.float32]
    labels: Indices


@dataclass(frozen=True)
class DomainInfo:
    """What the data are: said when they are imported, kept with them."""

    dataset: str
    domain: str
    title: str
    origin: str
    """Names and SHA-256 of the files that they come from."""
    split: str
    """Who split them into training and test, and the order of the training list."""
    counts: str
    """Images to train on and to test with, as in ``7438 + 1860``."""


def write_domain_file(path: Path, about: DomainInfo, blocks: Mapping[Split, StoredImages]) -> None:
    """Write the file in one go: until it is whole it has another name."""
    tensors = {f"{part}_{kind}": getattr(blocks[part], kind) for part in SPLITS for kind in ("images", "labels")}
    header = {"format": FORMAT, **asdict(about)}
    header |= {f"sha256 {name}": _hash_array(np.ascontiguousarray(array)) for name, array in tensors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_atomically(path) as part:
        save_file(tensors, part, {**header, "seal": _hash_header(header)})


def read_domain_info(path: Path) -> DomainInfo:
    """What the file says of itself; of the data only the size is looked at."""
    header = _read_header(path)
    with _wrap_file_errors(path):
        if (header["dataset"], header["domain"]) != (path.parent.name, path.stem):
            raise ValueError(f"it holds {header['domain']} of {header['dataset']}")
        return DomainInfo(**{field.name: header[field.name] for field in fields(DomainInfo)})


def read_labels(path: Path, split: Split, data: DatasetInfo) -> Indices:
    """The class of each image of a part."""
    found: Indices = _read_tensor(path, f"{split}_labels").numpy()
    with _wrap_file_errors(path):
        if found.ndim != 1 or found.dtype != np.int64 or not len(found):
            raise ValueError("its labels are not a list of whole numbers")
        if found.min() < 0 or found.max() >= len(data.classes):
            raise ValueError(f"its labels are not all within 0..{len(data.classes) - 1}")
    return found


def read_images(path: Path, split: Split, data: DatasetInfo) -> Tensor:
    """The images of a part, mapped from the file; reading them all once for the checksum is the price."""
    found = _read_tensor(path, f"{split}_images")
    with _wrap_file_errors(path):
        if str(found.dtype) != f"torch.{data.input_type}" or found.shape[1:] != data.input_shape:
            raise ValueError(
                f"its inputs are {tuple(found.shape[1:])} of {found.dtype}, not "
                f"{' x '.join(map(str, data.input_shape))} of {data.input_type}"
            )
        if len(found) != len(_read_tensor(path, f"{split}_labels")):
            raise ValueError("it does not hold a label for each image")
    return found


def _read_header(path: Path) -> dict[str, str]:
    with _wrap_file_errors(path), safe_open(path, framework="pt") as file:
        header: dict[str, str] = file.metadata() or {}
        if header.get("format") != FORMAT:
            raise ValueError(f"it is not in the format {FORMAT!r}")
        if header.pop("seal", None) != _hash_header(header):
            raise ValueError("what it says of itself was altered")
        return header


def _read_tensor(path: Path, name: str) -> Tensor:
    wanted = _read_header(path).get(f"sha256 {name}")
    with _wrap_file_errors(path), safe_open(path, framework="pt") as file:
        tensor: Tensor = file.get_tensor(name)
        if _hash_array(tensor.numpy()) != wanted:
            raise ValueError(f"the checksum of {name} is wrong: it was damaged or altered")
        return tensor


def _hash_array(array: NDArray[np.generic]) -> str:
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(array.data)
    return digest.hexdigest()


def _hash_header(header: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(header), sort_keys=True).encode()).hexdigest()


@contextmanager
def _wrap_file_errors(path: Path) -> Iterator[None]:
    """Whatever is wrong with the file, say which it is and how to get another."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        way = f"import it again: fedco2 data add {path.parent.name} PATH --domain {path.stem} --replace"
        raise DataError(f"{path}: cannot be used: {summarise_error(error)}; {way}") from error
