"""What a user with a GPU runs once: make test-gpu, or python benchmarks/gpu.py [--json] [--no-speed].

fedco2 was never run on a GPU by its authors. This page says whether it works on yours:

  equality   two rounds of every method in float64, on the CPU and on the GPU, by the serial, threads (a stream each)
             and vmap backends: the largest difference of any entry, relative to the largest entry of its tensor
  amp        two rounds with mixed precision: finite, and accuracies near those without
  nccl       with two GPUs or more, a run on two processes against one process
  speed      seconds of a round of Fed-CO2 on the workloads W1 to W3, on the CPU and by the backends on the GPU

With --device cpu it compares the CPU with itself: that shows that this program works, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn
from training_speed_lib.workloads import TOY_WORKLOADS, WORKLOADS, Workload

import fedtrain
from fedtrain.backends.serial import SerialBackend
from fedtrain.backends.threads import ThreadsBackend
from fedtrain.backends.vmap.backend import VmapBackend
from fedtrain.config.local import LocalSettings
from fedtrain.data.client_data import ClientData, Preprocessing, Samples
from fedtrain.federated.client import ClientTrainer, Precision
from fedtrain.federated.messages import Scores
from fedtrain.federated.server import federate
from fedtrain.methods import METHODS
from fedtrain.models import Net
from fedtrain.parameters import StateDict

TOLERANCE = 1e-6
"""Of float64: sums are added in another order, and two rounds of training with momentum let that grow."""
AMP_TOLERANCE = 0.15
"""Of accuracies on 72 test samples with three digits of precision."""
BACKENDS = ("serial", "threads", "vmap")
CLASSES, SIDE = 3, 16
States = dict[str, StateDict]


@dataclass(frozen=True)
class Line:
    """One line of the page."""

    name: str
    value: str
    ok: bool = True


def main() -> int:
    """Print the page; 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu to try this program (default: cuda)")
    parser.add_argument("--no-speed", action="store_true", help="only whether it is right")
    parser.add_argument("--small", action="store_true", help="toy sizes of the workloads")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("no GPU: this torch sees no CUDA; on a machine that has one, install torch with CUDA", file=sys.stderr)
        return 2
    lines = [describe_machine(device), *compare_methods(device), check_amp(device), check_nccl(device)]
    if not asked.no_speed:
        lines += measure_speed(device, TOY_WORKLOADS if asked.small else WORKLOADS)
    if asked.json:
        print(json.dumps([vars(line) for line in lines], indent=1))
    else:
        for line in lines:
            print(f"{'ok' if line.ok else 'WRONG':<6} {line.name:<22} {line.value}")
    return int(not all(line.ok for line in lines))


def describe_machine(device: torch.device) -> Line:
    """What it ran on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU with itself: shows nothing of a GPU"
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    return Line("machine", f"{name}; {versions}; {torch.get_num_threads()} threads")


def build_network() -> Net:
    """Convolution, batch norm of both kinds, linear layers."""
    features = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    head = [nn.Linear(8 * 49, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES)]
    return Net(nn.Sequential(*features), nn.Sequential(*head))


def build_clients() -> list[ClientData]:
    """Three clients that see the same classes in other colours."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(256, (CLASSES, 3, SIDE, SIDE), generator=generator)

    def draw(count: int, tint: int) -> Samples:
        labels = torch.arange(count) % CLASSES
        noise = torch.randint(-40, 41, (count, 3, SIDE, SIDE), generator=generator)
        return Samples((patterns[labels] + noise + tint).clamp(0, 255).to(torch.uint8), labels)

    return [ClientData(name, draw(48, tint), draw(24, tint)) for name, tint in (("a", -60), ("b", 0), ("c", 60))]


def train_rounds(
    method: str, device: torch.device, backend: str = "serial", precision: Precision | None = None
) -> tuple[States, dict[str, Scores]]:
    """What every client holds after two rounds, and its scores."""
    local = LocalSettings(lr=0.05, momentum=0.5, weight_decay=1e-4, epochs=1, batch_size=16)
    trainer = ClientTrainer(
        METHODS[method](),
        build_network,
        CLASSES,
        local=local,
        preprocessing=Preprocessing((0.5, 0.5, 0.5), (0.3, 0.3, 0.3)),
        device=device,
        precision=precision or Precision(torch.float64),
        fast_path=backend != "vmap",
    )
    clients = build_clients()
    here: SerialBackend
    match backend:
        case "threads":
            here = ThreadsBackend([trainer, trainer.clone()], clients)
        case "vmap":
            here = VmapBackend(trainer, clients)
        case _:
            here = SerialBackend(trainer, clients)
    message = here.initial_broadcast()
    for done in federate(here, message, 2):
        message = done.message
    states = {name: {**here.client_states[name], **message.shared} for name in here.client_names}
    moved = {name: {key: value.cpu() for key, value in state.items()} for name, state in states.items()}
    return moved, here.evaluate(message, ["test"])


def compare_methods(device: torch.device) -> list[Line]:
    """Every method by every backend, against the CPU."""
    lines = []
    for method in METHODS:
        expected, _ = train_rounds(method, torch.device("cpu"))
        for backend in BACKENDS:
            try:
                found, _ = train_rounds(method, device, backend)
                worst = measure_difference(expected, found)
                lines.append(Line(f"{method}, {backend}", f"differs by {worst:.1e}", worst <= TOLERANCE))
            except Exception as error:  # the page is to say all that is wrong, not the first of it
                lines.append(Line(f"{method}, {backend}", f"{type(error).__name__}: {str(error)[:200]}", False))
    return lines


def measure_difference(expected: States, found: States) -> float:
    """The largest of any entry, relative to the largest entry of its tensor."""
    worst = 0.0
    for client, state in expected.items():
        for name, value in state.items():
            if value.is_floating_point() and value.numel():
                gap = (value - found[client][name]).abs().max() / value.abs().max().clamp(min=1e-12)
                worst = max(worst, gap.item())
            elif not torch.equal(value, found[client][name]):
                return float("inf")
    return worst


def check_amp(device: torch.device) -> Line:
    """Mixed precision is finite and near."""

    def average(precision: Precision) -> float:
        _, scores = train_rounds("fedco2", device, precision=precision)
        return statistics.fmean(one["test"]["fused"].accuracy for one in scores.values())

    plain, mixed = average(Precision()), average(Precision(amp=True))
    return Line("amp", f"accuracy {mixed:.2f}, without {plain:.2f}", abs(plain - mixed) <= AMP_TOLERANCE)


def check_nccl(device: torch.device) -> Line:
    """Two processes, a GPU each, against one process."""
    if device.type != "cuda" or torch.cuda.device_count() < 2:
        return Line("nccl", "not tried: it needs two GPUs")

    def train(folder: str, **how: object) -> float:
        settings = {"data.percent": 0.02, "model.width": 32, "machine.dtype": "float64"}
        options = {"dataset": "digits", "data": "standin", "model": "two-layer", "method": "fedco2", "rounds": 2}
        run = fedtrain.train(**options, settings=settings, device="cuda", quiet=True, out=folder, **how)  # type: ignore[arg-type]
        return statistics.fmean(row["loss"] for row in run.rows)

    with tempfile.TemporaryDirectory() as folder:
        try:
            one, two = train(f"{folder}/one", backend="serial"), train(f"{folder}/two", nproc=2)
        except (fedtrain.TrainingError, fedtrain.InputError, subprocess.CalledProcessError) as error:
            return Line("nccl", str(error), False)
    return Line("nccl", f"mean loss {two:.6f}, of one process {one:.6f}", abs(one - two) <= TOLERANCE * abs(one))


def measure_speed(device: torch.device, workloads: Mapping[str, Workload]) -> list[Line]:
    """Seconds of the second round of Fed-CO2: the first one warms up, and does not distil."""
    lines = []
    for name, workload in workloads.items():
        cpu = time_round(workload, "cpu", "auto")
        times = {backend: time_round(workload, str(device), backend) for backend in BACKENDS}
        shown = ", ".join(f"{backend} {seconds:.2f} s ({cpu / seconds:.1f} x)" for backend, seconds in times.items())
        lines.append(Line(name, f"CPU {cpu:.2f} s; {device}: {shown}"))
    return lines


def time_round(workload: Workload, device: str, backend: str) -> float:
    """One round: training, averaging, evaluation."""
    machine = {"device": device, "backend": backend}
    experiment = workload.build_experiment("fedco2", {"machine": machine})
    here, server = experiment.build_backend(), experiment.config.server
    rounds = federate(here, here.initial_broadcast(), 2, participation=server.participation, weights=server.weights)
    wait: Callable[[], None] = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    seconds = 0.0
    for _ in range(2):
        begun = time.perf_counter()
        here.evaluate(next(rounds).message, workload.splits)
        wait()
        seconds = time.perf_counter() - begun
    return seconds


if __name__ == "__main__":
    sys.exit(main())
