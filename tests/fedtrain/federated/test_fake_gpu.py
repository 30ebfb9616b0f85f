"""Every method, backend and codec makes its rounds on a GPU of fake tensors: what stays on the CPU is an error here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.utils.backend_registration

from fedtrain.methods import METHODS

SCRIPT = Path(__file__).with_name("fake_gpu_rounds.py")
ROOT = SCRIPT.parents[3]
CAN_PRETEND = hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend")


@pytest.mark.skipif(not CAN_PRETEND, reason="this torch has no devices that Python defines")
def test_nothing_is_left_on_the_cpu_and_what_is_left_is_found():
    """In one process of its own, for it takes seconds to load what fake tensors need."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    forgotten = {f"a forgotten tensor, {backend}" for backend in ("serial", "threads", "vmap")}
    assert found["played"] > 3 * len(METHODS)
    assert found["wrong"].keys() == forgotten, found["wrong"]
    assert all("gpu:0 and cpu" in reason for reason in found["wrong"].values())
