"""Small valid files that fedco2 or its users write: settings, checkpoints, caches, results, arrays."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import safetensors.torch
import tomli_w
import torch

from fedtrain.config import presets
from fedtrain.config.schema import Config, format_config
from fedtrain.data.storage.domain_file import DomainInfo, StoredImages, write_domain_file
from fedtrain.federated.codec.states import encode_update
from fedtrain.federated.communication import CommunicationCost, PayloadBytes
from fedtrain.federated.messages import Broadcast
from fedtrain.runs import checkpoint
from fedtrain.serialization.checked_file import compute_checksum
from fuzzing.containers import build_safetensors, build_safetensors_seed, build_zip_seed, encode_npy
from fuzzing.seed_file import Seed, build_plain_seed

TOML_WORDS = [
    *(b"nan", b"inf", b"-inf", b"1e999", b"true", b'"none"', b"[]", b"{}", b"[[local]]\n", b"[method]\n", b"\n", b"="),
    *(b"9" * 400, b"0x" + b"f" * 300, b"9" * 5000, b"1979-05-27T07:32:00Z", b'"\\u001b[31m"', b'"\\uD800"', b"'''"),
    *(
        b"[" * 600,
        b"{a=" * 600,
        b"a." * 600,
        b"seed = -1\n",
        b'name = "fedbn"\n',
        b"[data]\nclients = 0\n",
        b"[when]\n",
    ),
    b'"' + b"x" * 9000 + b'"',
]
JSON_WORDS = [
    *(
        b"NaN",
        b"Infinity",
        b"-1",
        b"1e999",
        b"null",
        b"true",
        b"[]",
        b"{}",
        b'""',
        b'"\\ud800"',
        b'"\\u001b[31m"',
        b"\n",
    ),
    *(
        b"[" * 3000,
        b'{"a":' * 3000,
        b"9" * 400,
        b"9" * 5000,
        b'"' + b"x" * 9000 + b'"',
        b'"shape":[0]',
        b"18446744073709551615",
    ),
    *(b'"U8"', b'"F64"', b'"I64"', b'"BOOL"', b'"BF16"', b'"F8_E4M3"', b"[0,0]", b"[9223372036854775807,2]"),
]


def capture_file(make: Callable[[Path], None]) -> bytes:
    """The bytes of a file that something writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        make(path)
        return path.read_bytes()


def build_config_seeds() -> list[Seed]:
    """The defaults in full, and all presets, line by line."""
    texts = [format_config(Config()), *(_dump_preset(name) for name in presets.list_presets())]
    return [Seed(tuple(line.encode() + b"\n" for line in text.splitlines())) for text in texts if text]


def _dump_preset(name: str) -> str:
    """As a user may copy it: without what only presets have."""
    return tomli_w.dumps({k: v for k, v in presets.load_preset_chain(name)[-1].items() if k not in ("title", "when")})


def build_checkpoint_seeds() -> list[Seed]:
    """Two clients and published heads."""
    shared = {"w": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(3), "half": torch.ones(2, dtype=torch.float16)}
    message = Broadcast(3, shared, {"b": {"head": torch.ones(2)}})
    counted = CommunicationCost(PayloadBytes(1, 2, 3), PayloadBytes(4, 5, 6))
    state = checkpoint.RunState(message, {"a": {"p": torch.zeros(1)}, "b": {"p": torch.ones(1)}}, counted)
    return build_checked_seeds(capture_file(lambda path: checkpoint.save_checkpoint(state, path)))


def build_checked_seeds(content: bytes) -> list[Seed]:
    """Tensors with an account of themselves and a sum; also with the account as a part, and the sum made right."""
    whole = build_safetensors_seed(content)
    about = json.loads(whole.parts[0])["__metadata__"]["about"].encode()
    return [whole, Seed((about, *whole.parts), _rebuild_checked)]


def _rebuild_checked(parts: Sequence[bytes]) -> bytes:
    """A file whose account of itself is the first part, and whose checksum is right."""
    header, data, about = json.loads(parts[1]), parts[-1], parts[0].decode("latin-1")
    header["__metadata__"] = {"about": about}
    try:
        held = safetensors.torch.load(build_safetensors([json.dumps(header).encode(), data]))
        header["__metadata__"]["sha256"] = compute_checksum(held, about)
    except (safetensors.SafetensorError, KeyError, TypeError):
        raise ValueError("nothing to sum up") from None
    return build_safetensors([json.dumps(header).encode(), data])


PAYLOAD_FORMS = {"w": torch.zeros(4, 6), "b": torch.zeros(3), "n": torch.tensor(0)}
PAYLOAD_CODECS = ("none", "float16", "bfloat16", "int8", "topk:0.3+int8", "lowrank:1", "lowrank:1+bfloat16")


def build_payload_seeds() -> list[Seed]:
    """What a client sends, in every codec; also with damage to the tensors alone."""
    entries = {"w": torch.arange(24.0).reshape(4, 6) - 9, "b": torch.ones(3), "n": torch.tensor(3)}
    payloads = [encode_update(entries, PAYLOAD_FORMS, {}, codec)[0] for codec in PAYLOAD_CODECS]
    whole = [build_safetensors_seed(safetensors.torch.save(payload)) for payload in payloads]
    return [*whole, *(Seed(seed.parts[1:], partial(_join_to_header, seed.parts[0])) for seed in whole)]


def _join_to_header(header: bytes, parts: Sequence[bytes]) -> bytes:
    return build_safetensors([header, *parts])


def build_domain_seeds() -> list[Seed]:
    """A cache of USPS; also with all checksums made right again after the damage."""
    rng = np.random.default_rng(0)
    blocks = [StoredImages(rng.integers(0, 256, (n, 3, 28, 28), dtype=np.uint8), np.arange(n)) for n in (3, 2)]
    about = DomainInfo("digits", "usps", "USPS", "usps.bz2", "split of its source", "3 + 2")
    seed = build_safetensors_seed(
        capture_file(lambda path: write_domain_file(path, about, {"train": blocks[0], "test": blocks[1]}))
    )
    return [seed, Seed(seed.parts, _rebuild_domain_file)]


DTYPES = {"U8": "|u1", "I64": "<i8", "F64": "<f8", "BOOL": "|b1", "F32": "<f4"}


def _rebuild_domain_file(parts: Sequence[bytes]) -> bytes:
    header = json.loads(parts[0])
    metadata = header["__metadata__"]
    if not isinstance(metadata, dict):
        raise ValueError("nothing to seal")
    for name, entry in header.items():
        if f"sha256 {name}" in metadata and isinstance(entry, dict) and entry.get("dtype") in DTYPES:
            start, end = entry["data_offsets"]
            head = f"{DTYPES[entry['dtype']]}{tuple(entry['shape'])}".encode()
            metadata[f"sha256 {name}"] = hashlib.sha256(head + parts[1][start:end]).hexdigest()
    metadata.pop("seal", None)
    metadata["seal"] = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()
    return build_safetensors([json.dumps(header).encode(), *parts[1:]])


def build_result_seeds() -> list[Seed]:
    """Rows of metrics.jsonl, and a manifest or a summary."""
    row = {"round": 1, "client": "a", "split": "test", "branch": "fused", "accuracy": 0.5, "loss": 1.25, "n": 8}
    rows = [json.dumps({**row, "round": number, "client": name}) for number in (1, 2) for name in "ab"]
    client = {"name": "a", "train": [4, 4], "val": [0, 0], "test": [2, 2], "noise": 0.0}
    data = {"title": "Digits", "standin": True, "sha256": "ab", "classes": ["0", "1"], "notes": [], "clients": [client]}
    manifest = {"command": "fedco2 train", "finished": True, "data": data}
    return [Seed(tuple(line.encode() + b"\n" for line in rows)), build_plain_seed(json.dumps(manifest).encode())]


def build_found_npz_seeds() -> list[Seed]:
    """X, y, owner, split, and names: numbers and pixels, packed and stored."""
    rng = np.random.default_rng(1)
    split = np.tile(["train", "train", "test"], 4)
    owner, names = np.repeat([0, 1], 6), {"clients.npy": encode_npy(np.array(["ward", "lab"]))}
    inputs: list[np.ndarray] = [rng.standard_normal((12, 2)), rng.integers(0, 255, (12, 4, 3)).astype(np.uint8)]
    files = [
        {
            "X.npy": encode_npy(x, fortran=bool(n)),
            "y.npy": encode_npy(np.tile([0, 1], 6)),
            "owner.npy": encode_npy(owner),
            "split.npy": encode_npy(split),
            **names,
        }
        for n, x in enumerate(inputs)
    ]
    return [build_zip_seed(one, method) for one in files for method in (0, 8)]


CSV_TEXT = b"""site,age,pain,ill,part
ward,40.5,some,0,train
ward,,much,1,train
ward,51,none,0,test
"lab",33,"so, so",1,train
lab,1e1,NA,0,train
lab,77,some,1,test
"""


CSV_WORDS = [
    b"nan",
    b"inf",
    b"1e999",
    b'"',
    b"\x00",
    b"\xff",
    b",,",
    b"\n",
    b"1_0",
    b"../x",
    b"\x1b[2J",
    b"site",
    b"9" * 400,
]


def build_csv_seeds() -> list[Seed]:
    """Commas, semicolons and tabs; line ends of two kinds; a byte order mark."""
    texts = [CSV_TEXT, CSV_TEXT.replace(b",", b";"), b"\xef\xbb\xbf" + CSV_TEXT.replace(b"\n", b"\r\n")]
    return [Seed(tuple(line for line in text.splitlines(keepends=True))) for text in texts]


def build_theory_npz_seeds() -> list[Seed]:
    """theory's X, y and owner: names, numbers; packed, stored."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((12, 2)), rng.standard_normal(12)
    owners = [np.repeat(["ward", "lab"], 6), np.repeat([0, 1], 6), np.repeat([0.5, 2.0], 6), np.repeat([b"a", b"b"], 6)]
    files = [
        {"X.npy": encode_npy(x, fortran=bool(n % 2)), "y.npy": encode_npy(y), "owner.npy": encode_npy(o)}
        for n, o in enumerate(owners)
    ]
    return [build_zip_seed(one, method) for one in files for method in (0, 8)]
