"""Pickles: plain data come back, and what would run code, lie or explode is refused."""

import copyreg
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from dataset_files import GREY_IMAGES, RNG, PickledCall
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtrain.data.errors import DataError
from fedtrain.data.readers import (
    read_fedbn_digits,
    read_image_list,
)
from fedtrain.data.readers.safe_pickle import load_pickle, parse_pickle

dtypes = st.sampled_from(["u1", "<i8", ">i4", "<f4", ">f8", "?", "S3", "<U4", ">U2"])
arrays = st.builds(
    lambda dtype, shape, order: np.asarray(RNG.integers(0, 2, shape).astype(dtype), order=order),
    dtypes,
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from("CF"),
)
texts = st.lists(st.text(max_size=5), max_size=4).map(lambda t: np.array([*t, None], dtype=object)[:-1])
leaves: st.SearchStrategy[object] = (
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False) | st.text()
)
leaves |= st.binary() | arrays | texts | st.integers(0, 99).map(np.int64) | st.floats(0, 1).map(np.float32)
values = st.recursive(
    leaves,
    lambda v: st.lists(v) | st.lists(v).map(tuple) | st.dictionaries(st.text(max_size=9) | st.binary(max_size=9), v),
    max_leaves=12,
)


def is_same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


@settings(max_examples=60)
@given(values, st.integers(0, 5))
def test_plain_data_come_back_as_they_were(value: object, protocol: int) -> None:
    assert is_same(parse_pickle(pickle.dumps(value, protocol), "file"), value)


def test_one_array_named_twice_is_one_array() -> None:
    read = parse_pickle(pickle.dumps([GREY_IMAGES] * 2, 2), "file")
    assert isinstance(read, list)
    assert read[0] is read[1]


def test_pickles_of_python_2_give_bytes() -> None:
    data = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b"
        b"\x87Rq\x05(K\x01K\x02K\x02\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89U\x04\x00\x7f\x80\xfftbU\x06labelsq\x08]q\x09(K\x01K\x02eu."
    )
    read = parse_pickle(data, "file")
    assert isinstance(read, dict)
    assert list(read) == [b"data", b"labels"]
    assert read[b"data"].tolist() == [[0, 127], [128, 255]]
    assert read[b"labels"] == [1, 2]


UNBUILT = b"\x80\x03cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"


def build_malicious_pickles(mark: str) -> dict[str, bytes]:
    """Pickles that would create the file ``mark``, or use other powers, with the standard unpickler."""
    touch = f"open({mark!r}, 'w').close()"
    system = PickledCall(os.system, f"touch {mark}")
    evaluate = PickledCall(eval, touch)
    line = touch.encode()
    shell = struct.pack("<I", len(f"touch {mark}")) + f"touch {mark}".encode()
    array = pickle.dumps(GREY_IMAGES, 2)
    bad: dict[str, object] = {
        "eval": evaluate,
        "exec": PickledCall(exec, touch),
        "in a tuple": (GREY_IMAGES, evaluate),
        "in a dict": {b"data": GREY_IMAGES, b"labels": [1, evaluate]},
        "getattr": PickledCall(getattr, PickledCall(__import__, "os"), "system"),
        "nested": PickledCall(eval, PickledCall(str, touch)),
        "object array": np.array([evaluate, "b"], dtype=object),
        "state": PickledCall(np.dtype, "u1", state=evaluate),
        "memmap": PickledCall(np.memmap, mark, "u1", "w+", 0, (3,)),
        "numpy load": PickledCall(np.load, mark),
        "set": {1, 2},
        "class": Path("a"),
        "complex": 1j,
    }
    pickles = {f"{name} {p}": pickle.dumps(value, p) for name, value in bad.items() for p in (0, 2, 4)}
    return (
        pickles
        | {f"system {p}": pickle.dumps(system, p) for p in range(6)}
        | {
            "inst": b"(S'" + line.replace(b"'", b'"') + b"'\nibuiltins\nexec\n.",
            "obj": b"(cbuiltins\nexec\nX" + struct.pack("<I", len(line)) + line + b"o.",
            "newobj": b"\x80\x02cbuiltins\nobject\n)\x81.",
            "newobj_ex": b"\x80\x04cbuiltins\nobject\n)}\x92.",
            "memo": b"\x80\x04(\x8c\x02os\x94\x8c\x06system\x94h\x00h\x01\x93X" + shell + b"\x85Rt.",
            "memo overwritten": UNBUILT + b"q\x01cos\nsystem\nq\x01h\x01X" + shell + b"\x85R\x86.",
            "dotted": b"\x80\x04\x8c\x05numpy\x8c\x0ef2py.os.system\x93\x8c\x04true\x85R.",
            "persistent id": b"P" + line + b"\n.",
            "binary persistent id": b"\x80\x02U\x01aQ.",
            "extension": b"\x80\x02\x82\xf0X" + struct.pack("<I", len(line)) + line + b"\x85R.",
            "extension 4": b"\x80\x02\x84\xf0\0\0\0).",
            "build on dict": b"\x80\x02}X\x01\0\0\0aK\x01\x85b.",
            "build twice": array[:-1] + b"(K\x01K\x00\x85Nb.",
            "call an array": array[:-1] + b")R.",
            "call text": b"\x80\x02U\x06system)R.",
            "encode by hex": b"c_codecs\nencode\n(X\x02\0\0\0abX\x03\0\0\0hextR.",
            "encode by zlib": b"c_codecs\nencode\n(C\x02abX\x04\0\0\0zlibtR.",
            "subclass": array.replace(b"cnumpy\nndarray\n", b"cnumpy\nmatrix\n"),
            "dtype name": b"cnumpy\ndtype\n(X\x03\0\0\0O,OtR.",
            "unbuilt array": UNBUILT + b"\x85.",
            "next buffer": b"\x80\x05\x97.",
        }
    )


def test_malicious_pickles_do_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    copyreg.add_extension("builtins", "exec", 0xF0)
    try:
        for name, data in build_malicious_pickles(str(mark)).items():
            file = tmp_path / "test.pkl"
            file.write_bytes(data)
            with pytest.raises(DataError, match=r"test\.pkl: "):
                read_fedbn_digits(tmp_path, "test")
            if name != "unbuilt array":  # which is harmless, and no pair
                with pytest.raises(DataError, match="not a readable pickle"):
                    parse_pickle(data, "file")
            assert not mark.exists(), name
            assert sorted(p.name for p in tmp_path.iterdir()) == ["test.pkl"], name
    finally:
        copyreg.remove_extension("builtins", "exec", 0xF0)


@pytest.mark.parametrize("name", ["system 4", "exec 2", "inst", "obj", "extension", "memo", "memo overwritten"])
def test_the_malicious_pickles_are_malicious(name: str, tmp_path: Path) -> None:
    copyreg.add_extension("builtins", "exec", 0xF0)
    try:
        pickle.loads(build_malicious_pickles(str(tmp_path / "mark"))[name])
    finally:
        copyreg.remove_extension("builtins", "exec", 0xF0)
        copyreg.clear_extension_cache()
    assert (tmp_path / "mark").exists()


def test_what_a_pickle_asks_for_is_named() -> None:
    with pytest.raises(DataError, match=r"builtins\.eval"):
        parse_pickle(pickle.dumps(PickledCall(eval, "1"), 4), "file")
    for name in ("memo", "memo overwritten"):
        with pytest.raises(DataError, match=r"asks for os\.system"):
            parse_pickle(build_malicious_pickles("mark")[name], "file")
    with pytest.raises(DataError, match=r"file: .*posix\.system"):
        parse_pickle(b"\x80\x04\x8c\x05posix\x8c\x06system\x93.", "file")
    with pytest.raises(DataError, match="PERSID"):
        parse_pickle(b"Pa\n.", "file")
    with pytest.raises(DataError, match="EXT1"):
        parse_pickle(b"\x80\x02\x82\x01.", "file")
    with pytest.raises(DataError) as caught:
        parse_pickle(b"\x80\x04X" + struct.pack("<I", 9999) + b"\n\x1b" * 4999 + b"a\x8c\x01x\x93.", "file")
    assert len(str(caught.value)) < 600


def build_claimed_array(shape: bytes, data: bytes = b"C\x04abcd", code: bytes = b"u1") -> bytes:
    """A pickled array whose state is what one says; ``shape`` as opcodes."""
    return (
        UNBUILT
        + b"(K\x01"
        + shape
        + b"cnumpy\ndtype\nX"
        + struct.pack("<I", len(code))
        + code
        + b"K\x00K\x01\x87R(K\x03X\x01\0\0\0|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + data
        + b"tb."
    )


def test_the_claim_is_an_array() -> None:
    assert parse_pickle(build_claimed_array(b"K\x04\x85"), "file").tolist() == list(b"abcd")  # type: ignore[attr-defined]
    texts = parse_pickle(build_claimed_array(b"K\x01\x85", b"]X\x01\0\0\0aa", b"O8"), "file")
    assert texts.tolist() == ["a"]  # type: ignore[attr-defined]


HUGE = b"\x8a\x08" + b"\xff" * 7 + b"\x7f"  # 2^63 - 1
NEST = b"\x80\x02]" + b"]".join([b""] * 50_000) + b"a" * 49_999 + b"."


@pytest.mark.parametrize(
    "data",
    [
        build_claimed_array(HUGE + b"\x85"),
        build_claimed_array(HUGE + HUGE + HUGE + b"\x87"),
        build_claimed_array(b"K\x00" + HUGE + b"\x86"),
        build_claimed_array(b"K\x05\x85"),
        build_claimed_array(b"K\x03\x85"),
        build_claimed_array(b"J\xff\xff\xff\xffJ\xfc\xff\xff\xff\x86"),
        build_claimed_array(b"(" + b"K\x01" * 65 + b"t"),
        build_claimed_array(b"X\x01\0\0\0a\x85"),
        build_claimed_array(b"N"),
        build_claimed_array(b"K\x04\x85", b"K\x07"),
        build_claimed_array(b"K\x04\x85", code=b"O8"),
        build_claimed_array(b"K\x01\x85", b"](K\x01e", b"O8"),
        build_claimed_array(b"K\x01\x85", b"]](a", b"O8"),
        build_claimed_array(HUGE + b"\x85", b"]X\x01\0\0\0aa", b"O8"),
        build_claimed_array(b"K\x04\x85", code=b"V4"),
        build_claimed_array(b"K\x04\x85", code=b"S0"),
        build_claimed_array(b"K\x04\x85", code=b"U99999999"),
        build_claimed_array(b"K\x04\x85", code=b"u1,u1"),
        b"\x80\x05\x96" + struct.pack("<Q", 2**62) + b"a.",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"a.",
        b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b".",
        b"\x80\x02Nr\xff\xff\xff\x7f.",
        b"Np" + b"9" * 4000 + b"\n.",
        b"I" + b"9" * 100_000 + b"\n.",
        b"\x80\x02\x8b" + struct.pack("<i", 2**20) + b"\x7f" * 2**20 + b".",
        b"\x80\x02\x8b\xff\xff\xff\xff.",
        b"\x80\x02}(((((((((((tttttttttttK\x01u.",
        b"\x80\x02})" + b"\x85" * 20_000 + b"K\x01s.",
        b"\x80\x02})" + b"q\x01h\x01\x86" * 60 + b"K\x01s.",
        b"\x80\x02}K\x01K\x02s.",
        b"\x80\x02}(X\x01\0\0\0au.",
        b"\x80\x02cnumpy\ndtype\n(" + b"K\x01" * 20_000 + b"tR.",
        b"\x80\x02h\x05.",
        b"\x80\x02a.",
        b"\x80\x02t.",
        b"\x80\x02(.",
        b"\x80\x02NN.",
        b"\x80\x02N",
        b".",
        b"",
    ],
)
def test_false_claims_and_bombs_are_refused(data: bytes) -> None:
    with pytest.raises(DataError, match=r"^file: not a readable pickle: .*; fetch"):
        parse_pickle(data, "file")


def test_deep_and_endless_values_are_no_pair(tmp_path: Path) -> None:
    for data in (NEST, b"\x80\x02]q\x01h\x01a.", b"\x80\x02]q\x01(h\x01h\x01e."):
        assert isinstance(parse_pickle(data, "file"), list)
        (tmp_path / "test.pkl").write_bytes(data)
        for read in (read_fedbn_digits, lambda folder, _: read_image_list(folder / "test.pkl")):
            with pytest.raises(DataError):
                read(tmp_path, "test")


def test_the_same_data_again_and_again_is_refused() -> None:
    long = b"X" + struct.pack("<I", 100_000) + b"a" * 100_000 + b"q\x01"
    encode = b"\x80\x02c_codecs\nencode\nq\x02X\x06\0\0\0latin1q\x03" + long
    with pytest.raises(DataError, match="again and again"):
        parse_pickle(encode + b"h\x02h\x01h\x03\x86R" * 1000 + b".", "file")
    items = b"](" + b"X\x01\0\0\0a" * 10_000 + b"eq\x09"
    once = build_claimed_array(b"M\x10\x27\x85", b"h\x09", b"O8")[2:-1]
    with pytest.raises(DataError, match="again and again"):
        parse_pickle(b"\x80\x02" + items + once * 500 + b".", "file")


def test_too_many_opcodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtrain.data.readers.safe_pickle.MAX_STEPS", 1000)
    with pytest.raises(DataError, match="1000 opcodes"):
        parse_pickle(b"](" + b"N" * 2000 + b"e.", "file")


def test_too_large_a_pickle_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fedtrain.data.readers.safe_pickle.MAX_BYTES", 100)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(GREY_IMAGES))
    with pytest.raises(DataError, match="more than the 100 allowed"):
        load_pickle(tmp_path / "a.pkl")
