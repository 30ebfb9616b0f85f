"""Both sides train the same, start their rounds on a signal, and their times are judged correctly."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))  # where its scripts look for each other

from training_speed_lib.measure_sides import summarise_times
from training_speed_lib.published_data import (
    convert_to_tensor,
    load_from_file,
    load_through_pillow,
    write_client_images,
)
from training_speed_lib.report import format_table, plot
from training_speed_lib.sides import run_backend_rounds, run_reference_rounds
from training_speed_lib.timing import FlopRate, count_useful_flops
from training_speed_lib.workloads import TOY_WORKLOADS, WORKLOADS

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "training_speed.py"


def test_the_script_prints_one_object():
    command = [sys.executable, str(SCRIPT), "--workload", "w3", "--method", "fedbn", "--small"]
    done = subprocess.run([*command, "--repeats", "1", "--threads", "1", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ratio_low"] <= found["ratio"] <= found["ratio_high"]
    assert found["ratio"] == pytest.approx(found["plain_s"] / found["fast_s"])
    assert 0 < found["plain_gemm_share"] < 1
    assert 0 < found["gemm_share"] < 1
    assert 100 < found["peak_mb"] < 5000
    assert found["fast_cpu_s"] > 0
    assert len(found["rounds"]["plain"]) == len(found["rounds"]["fast"]) == 1  # the first is not counted
    assert sum(found["time_goes"].values()) == pytest.approx(1)
    assert min(found["time_goes"].values()) >= 0
    assert found["time_goes"]["convolution"] > 0.05


@pytest.mark.parametrize("method", ["fedbn", "fedco2"])
def test_both_sides_come_to_the_same_scores(method):
    work = TOY_WORKLOADS["w3"].build_experiment(method)
    begun = {"plain": [], "backend": []}
    literal = run_reference_rounds(work, TOY_WORKLOADS["w3"].splits, 2, begun["plain"].append, published=False)
    ours = run_backend_rounds(work, TOY_WORKLOADS["w3"].splits, 2, begun["backend"].append)
    assert begun == {"plain": [0, 1], "backend": [0, 1]}
    for one, other in zip(literal.scores, ours, strict=True):
        assert one.keys() == other.keys()
        for client, splits in one.items():
            assert splits.keys() == other[client].keys() == {"test"}
            for branch, score in splits["test"].items():
                assert score.loss == pytest.approx(other[client]["test"][branch].loss, rel=1e-3)


def test_digits_through_pillow_are_the_same_numbers():
    work = TOY_WORKLOADS["w1"].build_experiment("fedavg")
    images = work.federation.clients[0].train
    read = load_through_pillow(images, 3, training=True)
    assert read.dtype == torch.float32
    assert torch.equal(read, (images.inputs[3].float() / 255 - 0.5) / 0.5)
    assert work.federation.preprocessing.mean == work.federation.preprocessing.std == (0.5,)


def test_photographs_are_opened_resized_and_turned_while_training(tmp_path):
    client = TOY_WORKLOADS["w2"].build_experiment("fedavg").federation.clients[0]
    stored = write_client_images(client, tmp_path)
    assert len(list(tmp_path.iterdir())) == len(client.train) + len(client.val) + len(client.test)
    with Image.open(stored.train.paths[0]) as image:
        assert image.size == (300, 300)
        assert image.format == "JPEG"
    still = load_from_file(stored.train, 0, training=False)
    assert still.shape == (3, 256, 256)
    assert 0 <= still.min() < still.max() <= 1
    assert (still - client.train.inputs[0] / 255).abs().mean() < 0.03  # the same picture, but for JPEG
    assert torch.equal(still, load_from_file(stored.train, 0, training=False))
    assert not torch.equal(still, load_from_file(stored.train, 0, training=True))


def test_an_image_becomes_a_tensor():
    assert torch.equal(
        convert_to_tensor(Image.new("RGB", (2, 1), (255, 0, 51))),
        torch.tensor([1, 0, 0.2]).expand(1, 2, 3).permute(2, 0, 1),
    )


def test_workloads_are_those_of_the_paper():
    assert {name: len(work.train) for name, work in WORKLOADS.items()} == {"w1": 5, "w2": 4, "w3": 100}
    assert set(WORKLOADS["w1"].train) == {743}
    assert set(WORKLOADS["w2"].train) == {62}
    assert sum(WORKLOADS["w3"].train) / 100 == pytest.approx(500, rel=0.1)
    assert WORKLOADS["w2"].splits == ["train", "val", "test"]
    config = TOY_WORKLOADS["w3"].build_experiment("fedco2").config
    assert (config.local.epochs, config.local.batch_size, config.local.momentum) == (5, 64, 0.9)
    assert (config.method.intra, config.method.inter, config.method.start) == ("none", "none", "own")
    assert TOY_WORKLOADS["w2"].build_experiment("fedbn").federation.preprocessing.augment


def test_useful_flops_by_hand():
    """Without batch norm: two convolutions and three linear layers; no gradient of the images."""
    conv1, conv2 = 2 * 3 * 25 * 16 * 28**2, 2 * 16 * 25 * 32 * 10**2
    dense = 2 * (800 * 120 + 120 * 84 + 84 * 10)
    forward, backward = conv1 + conv2 + dense, conv1 + 2 * (conv2 + dense)
    work = TOY_WORKLOADS["w3"].build_experiment("fedavg")
    sizes = {sum(pair) for pair in ((20, 20), (20, 30), (30, 30))}
    found = count_useful_flops(work, ["test"], 2)
    assert found[0] in [5 * n * (forward + backward) + 200 * forward for n in sizes]


def test_rounds_are_judged_in_pairs(tmp_path):
    plain = [{"wall": wall, "cpu": 2 * wall, "peak_mb": 900.0} for wall in (6.0, 8.0, 30.0)]
    fast = [{"wall": wall, "cpu": wall, "peak_mb": peak} for wall, peak in ((3.0, 500.0), (2.0, 700.0), (10.0, 600.0))]
    found = summarise_times(
        plain, fast, [100.0, 100.0, 100.0], [FlopRate(100.0, 50.0), FlopRate(100.0, 50.0), FlopRate(20.0, 10.0)]
    )
    assert (found["ratio_low"], found["ratio"], found["ratio_high"]) == (2, 3, 4)
    assert found["ratio_cpu"] == 6
    assert (found["plain_s"], found["fast_s"], found["peak_mb"], found["plain_peak_mb"]) == (8, 3, 700, 900)
    assert found["gemm_share"] == 0.5
    assert found["gemm_share_cpu"] == 1
    assert found["ratio_limit"] == 6
    goes = {"convolution": 0.5, "data": 0.3, "rest": 0.2}
    case = found | {"workload": "w1", "method": "fedco2", "what": "toy", "plain_data": "memory", "fast_path": True}
    case |= {
        "small": False,
        "backend": "auto",
        "repeats": 3,
        "load_before": 0.5,
        "threads": 2,
        "torch": "2",
        "cpu": "a processor",
        "time_goes": goes,
    }
    assert "| W1 Fed-CO2 | 8.00 | 3.00 | 3.00 (2.00 to 4.00) | 3: met |" in format_table([case])
    assert "70%: **missed**" in format_table([case])
    plot([case, case | {"method": "fedavg"}], tmp_path / "ratios.png")
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")
