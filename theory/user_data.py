"""The user's own data: read as untrusted input, centred as batch norm does, and checked against Assumption 4.1."""

from __future__ import annotations

import io
import math
import sys
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from theory.errors import InputError
from theory.problem import Problem, check_data, find_singularity

MAX_UNPACKED_BYTES = 2**31
"""Bytes that the arrays may take once unpacked."""
MAX_UNPACK_RATIO, ALWAYS_ALLOWED_BYTES = 200, 2**24
"""Zip-bomb limits: arrays may unpack to this many times the file's size, or to this many bytes in any case."""
MAX_ABS_VALUE = 1e100
MAX_COVARIANCE_BYTES = 2**30
"""Bytes of all clients' covariances: even a file with 12 rows may have a million columns."""
MAX_NAME_LENGTH = 40
ARRAYS_SOURCE = "the arrays"
"""How errors and reports call data that come from no file."""
DEFAULT_RIDGE = 1e-3
"""Added to empirical covariances, as a share of the mean variance: enough to make them positive definite."""


@dataclass(frozen=True, eq=False)
class UserData:
    """The problem built from the user's data, and the paper's assumptions that they violate."""

    problem: Problem
    violated_assumptions: list[str]
    """Those that still do not hold; inputs are centred, so that is not among them."""
    offsets: list[tuple[str, float]]
    """The clients whose inputs had to be centred, each with its mean over its standard deviation."""
    ridge: float
    file_rows: list[int]
    """The row of X that each sample of the problem comes from."""
    client_names: list[str]
    """The clients' names, safe to print."""
    source: str = ARRAYS_SOURCE
    """The file that the data come from."""

    @property
    def centring(self) -> str | None:
        """What was done to inputs that were not centred; None if they were."""
        if not self.offsets:
            return None
        return (
            "inputs were centred for each client, as batch norm does (mean over standard deviation before: "
            f"{format_offsets(self.offsets)})"
        )

    def describe_sample(self, sample: int) -> str:
        """Name a sample of the problem by its row in the user's data."""
        return _format_sample(self.file_rows[sample], self.client_names[int(self.problem.owner[sample])])


def load_user_data(path: Path, ridge: float = DEFAULT_RIDGE) -> UserData:
    """Load X (n, d), y (n), owner (n) from an .npz file; see `build_user_data`."""
    _check_ridge(ridge)
    arrays = _load_arrays(path)
    missing = [name for name in ("X", "y", "owner") if name not in arrays]
    if missing:
        raise InputError(f"{path} has no array {missing[0]!r}; it needs X (n, d), y (n) and owner (n)")
    return build_user_data(**arrays, ridge=ridge, source=str(path))


def build_user_data(
    X: ArrayLike, y: ArrayLike, owner: ArrayLike, *, ridge: float = DEFAULT_RIDGE, source: str = ARRAYS_SOURCE
) -> UserData:
    """Build a problem from X (n, d), y (n) and owner (n), centring the inputs of each client as batch norm does.

    ``owner`` names the client of each row, by number or text. S_i is client i's covariance + ridge · mean variance · I.
    """
    _check_ridge(ridge)
    x, y, owners = _parse_numbers(np.asarray(X), source), _parse_numbers(np.asarray(y), source), np.asarray(owner)
    if owners.ndim != 1:
        raise InputError(f"{source}: owner has shape {owners.shape}; expected one client for each row of X")
    names, number = _parse_clients(owners, source)
    client = torch.from_numpy(number.astype(np.int64))
    check_data(x, y, client)
    size = len(names) * x.shape[1] ** 2 * 8
    if size > MAX_COVARIANCE_BYTES:
        raise InputError(
            f"{source}: the covariances of {len(names)} clients in {x.shape[1]} dimensions take {size / 2**30:.1f} "
            f"GiB; at most {MAX_COVARIANCE_BYTES / 2**30:.0f} GiB: project X to fewer dimensions, or give fewer clients"
        )
    order = torch.argsort(client, stable=True)
    x, y, client = x[order], y[order], client[order]
    means = torch.stack([x[client == i].mean(0) for i in range(len(names))])
    centred = _center_by_client(x, means, client)
    S = torch.stack([compute_covariance(centred[client == i], ridge, names[i]) for i in range(len(names))])
    zero = (centred == 0).all(dim=1).nonzero().flatten().tolist()
    if zero:
        which = _format_sample(int(order[zero[0]]), names[client[zero[0]]])
        raise InputError(
            f"{source}: {which} equals its client's mean: centred, it and its kernel row are zero, so λ_min = 0; "
            "drop it"
        )
    return UserData(
        Problem(centred, y, client, S),
        _find_violated_assumptions(x, S, client, names),
        _find_offsets(means, S, names),
        ridge,
        order.tolist(),
        names,
        source,
    )


def _check_ridge(ridge: float) -> None:
    if not 0 <= ridge < 1:
        raise InputError(f"ridge is {ridge}; it is a share of the mean variance: choose it in [0, 1)")


def _format_sample(row: int, client: str) -> str:
    return f"X[{row}] (client {client})"


def _center_by_client(x: Tensor, means: Tensor, owner: Tensor) -> Tensor:
    """x minus its client's mean; a sample that equals the mean up to rounding becomes exactly zero."""
    centred = x - means[owner]
    largest = torch.stack([x[owner == i].abs().max() for i in range(len(means))])
    rounding = 16 * torch.finfo(x.dtype).eps * largest[owner]
    centred[centred.abs().amax(1) <= rounding] = 0
    return centred


def _load_arrays(path: Path) -> dict[str, np.ndarray]:
    """Load the arrays of an .npz: no pickles, no zip bombs, and one error for whatever a damaged file raises."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PK\x03\x04":
                raise ValueError("not a zip archive from its first byte on")
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > MAX_UNPACKED_BYTES:
                raise InputError(
                    f"{path} unpacks to {size / 2**30:.1f} GiB; at most {MAX_UNPACKED_BYTES / 2**30:.0f} GiB"
                )
            if size > max(ALWAYS_ALLOWED_BYTES, MAX_UNPACK_RATIO * path.stat().st_size):
                raise InputError(
                    f"{path} unpacks to over {MAX_UNPACK_RATIO} times its size; save it with np.savez, uncompressed"
                )
            present = set(archive.namelist())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about headers that Python 2 wrote, or that cannot be read anyway
                wanted = [name for name in ("X", "y", "owner") if f"{name}.npy" in present]
                return {name: _load_array(archive, f"{name}.npy") for name in wanted}
    except InputError:
        raise
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except Exception as error:
        raise InputError(
            f"{path} is not a readable .npz ({type(error).__name__}); "
            "make one with np.savez(path, X=..., y=..., owner=...)"
        ) from None


def _load_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Load one member, whose header must match its bytes: numpy would allocate whatever the header claims."""
    with archive.open(name) as file:
        content = io.BytesIO(file.read(MAX_UNPACKED_BYTES))
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[np.lib.format.read_magic(content)]
    shape, _, dtype = read_header(content)
    if dtype.hasobject:
        raise InputError(f"{name} holds Python objects, which are not read; save it as numbers or with .astype(str)")
    if math.prod(shape) * dtype.itemsize != len(content.getbuffer()) - content.tell():
        raise ValueError("the header does not fit the data")
    content.seek(0)
    return np.lib.format.read_array(content, allow_pickle=False)


def _parse_numbers(array: np.ndarray, source: str) -> Tensor:
    """X or y as float64, small enough that squares do not overflow."""
    if array.dtype.kind not in "fiub":
        raise InputError(f"{source}: X and y must be numbers, not {array.dtype}")
    values = torch.from_numpy(array.astype(np.float64))
    largest = values[values.isfinite()].abs().max().item() if values.isfinite().any() else 0.0
    if largest > MAX_ABS_VALUE:
        raise InputError(f"{source} holds {largest:.3g}; scale the data down to at most {MAX_ABS_VALUE:g}")
    return values


def _parse_clients(owner: np.ndarray, source: str) -> tuple[list[str], np.ndarray]:
    """The sorted client names and the client number of each row; text that is not valid Unicode would crash Python."""
    text = owner.dtype.kind == "U"
    if owner.dtype.kind not in "biufSU" or (
        text and (np.frombuffer(owner.tobytes(), f"{owner.dtype.byteorder}u4") > sys.maxunicode).any()
    ):
        raise InputError(f"{source}: owner must be numbers or text, not {owner.dtype if not text else 'broken text'}")
    found, number = np.unique(owner, return_inverse=True)
    return [_sanitize_name(str(name)) for name in found], number


def _sanitize_name(name: str) -> str:
    """A client's name made safe to print: no control characters for the terminal, and not too long."""
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name[: MAX_NAME_LENGTH + 1])
    return plain if len(plain) <= MAX_NAME_LENGTH else f"{plain[: MAX_NAME_LENGTH - 3]}..."


def compute_covariance(x: Tensor, ridge: float, name: str) -> Tensor:
    """The covariance of a client's centred samples plus ridge · mean variance · I; refused if still singular."""
    S = x.T @ x / len(x)
    level = S.diagonal().mean().item()
    if level == 0:
        raise InputError(f"client {name}: its {len(x)} samples are all the same, so it has no variance; give it more")
    S = (S + S.T) / 2 + ridge * level * torch.eye(x.shape[1], dtype=x.dtype)
    if find_singularity(S) is not None:
        raise InputError(
            f"client {name}: {len(x)} samples in {x.shape[1]} dimensions give a covariance that is not positive "
            f"definite; raise ridge (now {ridge:g}) or give more samples",
            options=["ridge"],
        )
    return S


def _find_offsets(means: Tensor, S: Tensor, names: list[str]) -> list[tuple[str, float]]:
    """The clients whose inputs are not centred, with the mean over the standard deviation."""
    offsets = (means.square().sum(1) / S.diagonal(dim1=1, dim2=2).sum(1)).sqrt().tolist()
    return [(name, offset) for name, offset in zip(names, offsets, strict=True) if offset > 1e-6]


def format_offsets(offsets: list[tuple[str, float]]) -> str:
    """The first few clients that were not centred, each with its offset."""
    return ", ".join(f"{name} ({offset:.2g})" for name, offset in offsets[:5]) + (", ..." if len(offsets) > 5 else "")


def _find_violated_assumptions(x: Tensor, S: Tensor, owner: Tensor, names: list[str]) -> list[str]:
    """Describe each way in which the centred data violate Assumption 4.1."""
    found = []
    equal = [
        f"{names[i]} and {names[j]}"
        for i in range(len(S))
        for j in range(i)
        if (S[i] - S[j]).norm() <= 1e-6 * S[i].norm()
    ]
    if equal:
        found.append("covariances do not differ: " + ", ".join(equal[:5]) + (", ..." if len(equal) > 5 else ""))
    too_few = [names[i] for i, size in enumerate(owner.bincount().tolist()) if size <= x.shape[1]]
    if too_few:
        found.append(
            f"not more samples than dimensions on {', '.join(too_few[:5])}{', ...' if len(too_few) > 5 else ''}: "
            "the empirical covariance is singular without the ridge"
        )
    return found
