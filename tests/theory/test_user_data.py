"""The user's file: what is made of a good one, and that a bad one is refused in words, never by a crash."""

import io
import math
import os
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from theory import InputError
from theory.user_data import load_user_data

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((24, 3)) * [1.0, 2.0, 0.5], RNG.standard_normal(24)
OWNER = np.repeat(["ward", "clinic", "lab"], 8)


def encode_npz(**arrays):
    """The bytes of an .npz."""
    buffer = io.BytesIO()
    np.savez(buffer, **{"X": X, "y": Y, "owner": OWNER} | arrays)
    return buffer.getvalue()


def encode_npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def encode_archive(**members):
    """A zip of .npy members given as bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(name + ".npy", content)
    return buffer.getvalue()


GOOD = encode_npz()


@pytest.fixture
def reads(tmp_path):
    """Read these bytes as a file."""

    def read_bytes(content, ridge=1e-3):
        path = tmp_path / "mine.npz"
        path.write_bytes(content)
        return load_user_data(path, ridge)

    return read_bytes


# ---- what is made of a good file


def test_clients_are_numbered_by_their_sorted_names(reads):
    """Names are strings, rows come in any order; each client keeps the order of its own rows."""
    order = np.random.default_rng(1).permutation(24)
    problem = reads(encode_npz(X=X[order], y=Y[order], owner=OWNER[order])).problem
    assert problem.sizes == [8, 8, 8]
    for i, name in enumerate(["clinic", "lab", "ward"]):
        mine = OWNER[order] == name
        assert problem.y[problem.blocks[i]].tolist() == Y[order][mine].tolist()
        expected = X[order][mine] - X[order][mine].mean(0)
        assert np.allclose(problem.x[problem.blocks[i]].numpy(), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("names", [[5, -3, 100], [0.5, 1.5, -2.0], [True, False, True]], ids=str)
def test_clients_may_be_named_by_numbers(names, reads):
    owner = np.repeat(names, 8)
    assert reads(encode_npz(owner=owner)).problem.clients == len(set(names))


def test_numbers_of_any_kind_will_do(reads):
    for kind in (np.float32, ">f8", np.int16):
        values = (10 * X).astype(kind)
        expected = values.astype(float) - values.astype(float).reshape(3, 8, 3).mean(1).repeat(8, axis=0)
        found = reads(encode_npz(X=np.asfortranarray(values), owner=np.repeat([0, 1, 2], 8))).problem
        assert found.x.dtype == found.S.dtype == torch.float64
        assert np.allclose(found.x.numpy(), expected, rtol=0, atol=1e-12)


def test_a_compressed_file_is_the_same(reads):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, X=X, y=Y, owner=OWNER)
    assert torch.equal(reads(buffer.getvalue()).problem.x, reads(GOOD).problem.x)


def test_other_arrays_in_the_file_are_left_alone(reads):
    assert reads(encode_npz(names=np.array([None, {}], dtype=object))).problem.clients == 3


def test_the_covariance_is_the_empirical_one_with_a_ridge(reads):
    """S = x'x/M + ridge · mean variance · I, x centred."""
    for ridge in (0.0, 0.1):
        found = reads(encode_npz(owner=np.repeat([0, 1, 2], 8)), ridge)
        assert found.ridge == ridge
        for i in range(3):
            empirical = np.cov(X[8 * i : 8 * i + 8].T, bias=True)
            expected = empirical + ridge * np.trace(empirical) / 3 * np.eye(3)
            assert np.allclose(found.problem.S[i].numpy(), expected, rtol=0, atol=1e-13)


def test_a_row_of_zeros_is_a_sample_like_any_other(reads):
    """X is centred for each client, so zero means nothing before that."""
    assert reads(encode_npz(X=np.where(np.arange(24)[:, None] == 9, 0, X))).problem.sizes == [8, 8, 8]


def test_samples_are_named_as_the_file_has_them(reads):
    order = np.random.default_rng(1).permutation(24)
    found = reads(encode_npz(X=X[order], y=Y[order], owner=OWNER[order]))
    for sample in range(24):
        (row,) = np.flatnonzero(Y[order] == found.problem.y[sample].item())
        assert found.describe_sample(sample) == f"X[{row}] (client {OWNER[order][row]})"


# ---- assumptions that do not hold are reported


def test_sound_data_break_no_assumption(reads):
    centred = np.concatenate([part - part.mean(0) for part in X.reshape(3, 8, 3)])
    assert reads(encode_npz(X=centred)).violated_assumptions == []
    assert reads(encode_npz(X=centred)).centring is None


def test_inputs_that_are_not_centred_are_centred_and_reported(reads):
    centred = np.concatenate([part - part.mean(0) for part in X.reshape(3, 8, 3)])
    shifted = centred + 7 * (OWNER == "lab")[:, None]
    found = reads(encode_npz(X=shifted))
    assert found.violated_assumptions == []  # for they do not violate it any more
    assert [name for name, _ in found.offsets] == ["lab"]
    assert found.centring.startswith("inputs were centred for each client, as batch norm does")
    assert "lab" in found.centring
    assert "ward" not in found.centring
    assert torch.allclose(found.problem.x, reads(encode_npz(X=centred)).problem.x, rtol=0, atol=1e-13)


def test_covariances_that_do_not_differ_are_reported(reads):
    duplicated = X.copy()
    duplicated[8:16] = duplicated[:8]
    (message,) = [
        line for line in reads(encode_npz(X=duplicated)).violated_assumptions if "covariances do not differ" in line
    ]
    assert "ward" in message
    assert "clinic" in message
    assert "lab" not in message


def test_few_samples_are_reported_and_carried_by_the_ridge(reads):
    owner = np.array(["few"] * 3 + ["many"] * 21)
    found = reads(encode_npz(owner=owner))
    (message,) = [line for line in found.violated_assumptions if "not more samples than dimensions" in line]
    assert "few" in message
    assert "many" not in message
    with pytest.raises(InputError, match=r"client few: 3 samples in 3 dimensions.*raise ridge \(now 0\)"):
        reads(encode_npz(owner=owner), ridge=0.0)


# ---- what is refused

AT_MEAN = X.copy()
AT_MEAN[9] = np.delete(X[8:16], 1, axis=0).mean(0)  # up to rounding, and the clients are sorted otherwise than the file
SEVEN = np.where(np.arange(24) == 7, "lab", OWNER)  # the mean of seven 0.1 is not quite 0.1
BAD = {
    "no X": (encode_archive(y=encode_npy(Y), owner=encode_npy(OWNER)), "has no array 'X'"),
    "no y": (encode_archive(X=encode_npy(X), owner=encode_npy(OWNER)), "has no array 'y'"),
    "no owner": (encode_archive(X=encode_npy(X), y=encode_npy(Y)), "has no array 'owner'"),
    "words for X": (encode_npz(X=np.full((24, 3), "a")), "X and y must be numbers"),
    "records for X": (encode_npz(X=np.zeros((24, 3), dtype="i4,i4")), "X and y must be numbers"),
    "owner by row and column": (encode_npz(owner=OWNER[:, None]), r"owner has shape \(24, 1\)"),
    "a single owner": (encode_npz(owner=np.array("ward")), r"owner has shape \(\)"),
    "too few owners": (encode_npz(owner=OWNER[:20]), r"owner has shape \(20,\)"),
    "a vector for X": (encode_npz(X=Y), r"X has shape \(24,\)"),
    "a column of targets": (encode_npz(y=Y[:, None]), r"y has shape \(24, 1\)"),
    "nothing at all": (encode_npz(X=X[:0], y=Y[:0], owner=OWNER[:0]), r"X has shape \(0, 3\)"),
    "NaN in X": (encode_npz(X=np.where(np.arange(72).reshape(24, 3) == 5, np.nan, X)), r"X\[1, 2\] is nan"),
    "infinity in y": (encode_npz(y=np.where(np.arange(24) == 7, np.inf, Y)), r"y\[7\] is inf"),
    "a sample at the mean": (encode_npz(X=AT_MEAN), r"X\[9\] \(client clinic\) equals its client's mean"),
    "a client of one sample": (
        encode_npz(owner=np.array(["one"] + ["rest"] * 23)), "client one: its 1 samples are all",
    ),
    "a client of equal samples": (encode_npz(X=np.concatenate([np.ones((8, 3)), X[8:]])), "client ward: its 8 samples"),
    "a client equal but for rounding": (
        encode_npz(X=np.where(SEVEN[:, None] == "ward", 0.1, X), owner=SEVEN), "ward: its 7",
    ),
    "a text": (b"1,2,3\n4,5,6\n", "is not a readable .npz"),
    "nothing": (b"", "is not a readable .npz"),
    "a single array": (encode_npy(X), "is not a readable .npz"),
    "a shape that is not there": (
        encode_archive(X=encode_npy(X)[:-8], y=encode_npy(Y), owner=encode_npy(OWNER)), "is not a readable .npz",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "words"), BAD.values(), ids=BAD)
def test_bad_files_are_refused_and_named(content, words, reads):
    with pytest.raises(InputError, match=words) as caught:
        reads(content)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ridge", [-1e-3, 1.0, math.nan, math.inf])
def test_a_ridge_lies_between_nothing_and_one(ridge, reads):
    with pytest.raises(InputError, match="ridge is"):
        reads(GOOD, ridge)


def test_what_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*absent\.npz: No such file"):
        load_user_data(tmp_path / "absent.npz", 1e-3)
    with pytest.raises(InputError, match="cannot read"):
        load_user_data(tmp_path, 1e-3)


# ---- files that mean harm


def encode_header(shape, kind):
    """How an .npy begins."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": kind, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


class Trap:
    """Unpickling it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def encode_trap(path):
    """An .npy of objects in which all is in order, its length too, but for what the pickle does."""
    payload = pickle.dumps(Trap(path))
    return encode_header((len(payload),), "|O") + payload.ljust(8 * len(payload), b"\0")


@pytest.mark.parametrize("name", ["X", "y", "owner"])
def test_pickles_are_refused_unopened(name, tmp_path, reads):
    sprung = tmp_path / "sprung"
    with pytest.raises(InputError, match=r"holds Python objects"):
        reads(
            encode_archive(
                **{"X": encode_npy(X), "y": encode_npy(Y), "owner": encode_npy(OWNER)} | {name: encode_trap(sprung)}
            )
        )
    assert not sprung.exists()


def test_pickles_that_numpy_wrote_are_refused(reads):
    with pytest.raises(InputError, match=r"holds Python objects"):
        reads(encode_npz(owner=OWNER.astype(object)))


def test_the_trap_works(tmp_path):
    """Or the test above would prove nothing."""
    np.load(io.BytesIO(encode_trap(tmp_path / "sprung")), allow_pickle=True)
    assert (tmp_path / "sprung").exists()


def encode_false_header(shape, kind="<f8"):
    """An .npy that claims more than it holds."""
    return encode_header(shape, kind) + bytes(100)


def test_a_file_that_says_it_unpacks_to_terabytes_is_refused_unread(tmp_path):
    """Zeros pack a thousandfold; here the archive's own table of contents is believed when it warns."""
    content = bytearray(encode_archive(X=encode_npy(X), y=encode_npy(Y), owner=encode_npy(OWNER)))
    entry = content.rindex(b"PK\x01\x02")  # the size once unpacked is 24 bytes into a directory entry
    content[entry + 24 : entry + 28] = (0xFFFFFFF0).to_bytes(4, "little")
    path = tmp_path / "bomb.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"unpacks to 4\.0 GiB; at most 2 GiB"):
        load_user_data(path, 1e-3)


@pytest.mark.parametrize(
    "shape",
    [
        (2**50, 3),
        (2**62, 8),
        (10**30,),
        (-3, 3),
    ],
    ids=str,
)
def test_arrays_that_claim_more_than_they_hold_are_refused(shape, reads):
    with pytest.raises(InputError):
        reads(encode_archive(X=encode_false_header(shape), y=encode_npy(Y), owner=encode_npy(OWNER)))


def test_no_room_is_made_for_what_is_only_claimed(reads):
    """Half a gibibyte could be had, and numpy would take it before it looks for the data."""
    content = encode_archive(X=encode_false_header((2**26,)), y=encode_npy(Y), owner=encode_npy(OWNER))
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            reads(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**24


@pytest.mark.parametrize("name", ["X", "y", "owner"])
def test_a_text_in_place_of_an_array_is_refused(name, reads):
    with pytest.raises(InputError):
        reads(encode_archive(**{"X": encode_npy(X), "y": encode_npy(Y), "owner": encode_npy(OWNER)} | {name: b"hello"}))


def test_an_encrypted_member_is_refused(reads):
    content = bytearray(GOOD)
    content[content.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(InputError):
        reads(bytes(content))


def test_an_array_with_an_archive_behind_it_is_refused(reads):
    with pytest.raises(InputError):
        reads(encode_npy(X) + GOOD)


@pytest.mark.parametrize("size", [1e160, 1e300])
def test_values_whose_squares_overflow_are_refused(size, reads):
    with pytest.raises(InputError):
        reads(encode_npz(X=X * size))


def test_complex_values_are_refused(reads):
    with pytest.raises(InputError):
        reads(encode_npz(X=X + 1j))


def test_a_file_cut_anywhere_is_refused(reads):
    for length in range(0, len(GOOD), 7):
        with pytest.raises(InputError):
            reads(GOOD[:length])


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(1, 255)), min_size=1, max_size=6))
def test_flipped_bytes_give_data_or_are_refused(reads, flips):
    """What is read in spite of them is sound: flips in names and dates of the archive do no harm."""
    content = bytearray(GOOD)
    for place, mask in flips:
        content[place] ^= mask
    try:
        found = reads(bytes(content))
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert found.problem.x.isfinite().all()
