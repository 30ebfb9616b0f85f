"""What a verification is predicted to cost, and what is refused for want of memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from theory import InputError
from theory.config import TheoryConfig
from theory.cost import predict_cost, refuse_if_too_large

ROOT = Path(__file__).resolve().parents[2]


def predict_cost_of(claims=frozenset({"O2", "K3", "D2"}), **options):
    return predict_cost(TheoryConfig(**options), set(claims))


@pytest.mark.parametrize("option", ["clients", "samples", "dim", "width"])
def test_memory_grows_with_every_size(option):
    small = {"clients": 2, "samples": 5, "dim": 4, "width": 512}
    assert predict_cost_of(**small | {option: 8 * small[option]}).bytes > predict_cost_of(**small).bytes


@pytest.mark.parametrize("option", ["clients", "samples", "dim", "width", "steps", "draws"])
def test_time_grows_with_every_size(option, monkeypatch):
    """On a machine whose speed does not waver."""
    monkeypatch.setattr("theory.cost._measure_compute_rates", lambda dtype: (1e10, 1e9))
    small = {"clients": 2, "samples": 10, "dim": 4, "width": 512, "steps": 50, "draws": 1}
    assert predict_cost_of(**small | {option: 8 * small[option]}).seconds > 1.1 * predict_cost_of(**small).seconds


def test_time_is_predicted_by_the_speed_of_this_machine():
    assert 0 < predict_cost_of(clients=2, samples=5, dim=4, width=512).seconds < 600


MEASURE = """
import json, re, sys
from pathlib import Path
from theory.claims import check_claims, select_claims
from theory.config import TheoryConfig
from theory.cost import predict_cost
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])

claims, options = select_claims(sys.argv[1]), json.loads(sys.argv[2])
small = {"clients": 2, "samples": 3, "dim": min(options["dim"], 3), "width": 64, "steps": 2}
check_claims(TheoryConfig(**small).build_study(), claims)  # what is loaded once is not counted
setting = TheoryConfig(**options)
predicted = predict_cost(setting, {claim.id for claim in claims}, figures=False).bytes
before = peak()
check_claims(setting.build_study(), claims)
print(peak() - before, predicted)
"""
HEAVY = {
    "many samples": ("O1,O2,O3,D2,D3", {"clients": 3, "samples": 160, "dim": 10, "width": 2048, "steps": 3}),
    "many clients": ("O2", {"clients": 300, "samples": 1, "dim": 3, "width": 1024}),
    "the limit in the plane": ("K4", {"clients": 1, "samples": 400, "dim": 2, "width": 64}),
    "a deep network": ("X1", {"clients": 2, "samples": 60, "dim": 300, "width": 64, "covariance": "scaled"}),
    "many dimensions": ("O2", {"clients": 2, "samples": 2, "dim": 1200, "width": 64, "covariance": "scaled"}),
}


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize(("claims", "options"), HEAVY.values(), ids=HEAVY)
def test_the_predicted_memory_is_not_below_what_a_run_takes(claims, options):
    command = [sys.executable, "-c", MEASURE, claims, json.dumps(options)]
    environment = os.environ | {"MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}  # glibc keeps nothing
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    measured, predicted = map(int, done.stdout.split())
    assert 2**20 < measured <= predicted


@pytest.mark.parametrize(
    ("options", "cure"),
    [
        ({"samples": 10**9}, "lower samples or clients"),
        ({"clients": 10**6}, "lower samples or clients"),
        ({"dim": 10**5, "width": 64}, "lower dim or clients"),
    ],
)
def test_what_is_far_too_large_is_refused_without_drawing_it(options, cure, monkeypatch):
    monkeypatch.setattr("theory.config.draw_synthetic_problem", None)
    cost = predict_cost_of({"O2"}, **options)
    assert cost.bytes > 2**38
    assert cost.remedy == cure


@pytest.mark.parametrize(("claims", "needed"), [({"K4"}, True), ({"D2"}, True), ({"O2"}, False)])
def test_the_limit_takes_hours_in_many_dimensions_where_it_is_needed(claims, needed, monkeypatch):
    """Every node of the quadrature inverts a d x d matrix for every pair of clients."""
    monkeypatch.setattr("theory.cost._measure_compute_rates", lambda dtype: (4e10, 4e9))
    general, known = (predict_cost_of(claims, dim=784, covariance=kind).seconds for kind in ("anisotropic", "scaled"))
    assert (general - known > 3600) == needed
    assert (general == known) != needed


def test_claims_that_descend_need_more_memory():
    assert predict_cost_of({"O2"}).bytes < predict_cost_of({"O2", "D2"}).bytes


def test_single_precision_needs_less_memory():
    assert predict_cost_of(dtype="float32").bytes < predict_cost_of().bytes


def test_a_few_matrices_and_weights_are_the_least_that_is_counted():
    """No prediction may lie below what V_on, G_on and the weights take by themselves."""
    n, m, d, N = 100, 4096, 10, 5
    assert predict_cost_of({"O2"}).bytes >= 8 * (4 * n * n + N * m * d)


@pytest.mark.parametrize(
    ("options", "largest"), [({"samples": 400, "width": 8}, "samples"), ({"width": 10**6}, "width")]
)
def test_the_option_to_lower_is_the_one_that_weighs_most(options, largest):
    cost = predict_cost_of({"O2", "D2"}, clients=2, dim=3, **options)
    assert cost.remedy.startswith(f"lower {largest}")
    assert cost.options[0] == largest


def test_what_does_not_fit_is_refused_with_the_way_out():
    with pytest.raises(InputError, match=r"needs about 10\.0 GiB and 4\.0 GiB are free; lower --width"):
        refuse_if_too_large(10 * 2**30, 4 * 2**30, "lower --width")


def test_the_way_out_for_own_data_names_no_option_that_contradicts_them(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", X=rng.normal(size=(900, 3)), y=rng.normal(size=900), owner=np.arange(900) % 2)
    assert (
        predict_cost_of({"O2"}, dataset=str(tmp_path / "mine.npz"), width=8).remedy == "give fewer samples in your data"
    )


def test_what_fits_is_not_refused():
    refuse_if_too_large(2**30, 4 * 2**30, "width")


def test_a_tenth_of_the_memory_is_left_to_others():
    refuse_if_too_large(899, 1000, "width")
    with pytest.raises(InputError):
        refuse_if_too_large(901, 1000, "width")
