"""How fast `theory.ntk` is on networks that are trained, as ratios in one run: python benchmarks/kernels.py [--json].

Three roads to the same kernel of the Digits network (14.2 million parameters), ten outputs, float32, interleaved:
  layerwise    theory.ntk
  contraction  torch.func: the Jacobian of every sample by vmap(jacrev), contracted entry by entry
  products     torch.func: for each pair of samples a vjp followed by a jvp, for each output
and two cases that torch.func cannot do here, each in a process of its own for its peak memory: the Digits network with
200 samples, whose Jacobian is 114 GB, and AlexNet at 256 x 256 pixels with 50 samples, whose Jacobian is as large.
Seconds are of the clock and of the processor; on a busy machine the second is the one to look at.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, jvp, vjp, vmap

from fedtrain.models import build_alexnet, build_digits_net
from theory import ntk

CASES: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "digits": (build_digits_net, 28, 200),
    "alexnet": (build_alexnet, 256, 50),
}
"""Network, pixels a side, samples."""


def build_case(name: str, samples: int) -> tuple[nn.Module, Tensor]:
    """The network with random weights, and noise for images: values do not matter for speed."""
    build, side, _ = CASES[name]
    torch.manual_seed(0)
    return build().eval(), torch.randn(samples, 3, side, side)


def make_function(net: nn.Module) -> tuple[dict[str, Tensor], Callable[[dict[str, Tensor], Tensor], Tensor]]:
    """The network as torch.func wants it: its parameters, and the outputs of one sample."""

    def run(values: dict[str, Tensor], sample: Tensor) -> Tensor:
        return functional_call(net, values, (sample[None],)).reshape(-1)

    return {name: p.detach() for name, p in net.named_parameters()}, run


def contract_jacobian(net: nn.Module, x: Tensor) -> Tensor:
    """The recipe of Jacobian contraction."""
    values, run = make_function(net)
    with torch.no_grad():
        rows = vmap(jacrev(run), in_dims=(None, 0))(values, x)
    first = next(iter(rows.values()))
    size = first.shape[0] * first.shape[1]
    total = first.new_zeros(size, size)
    for name in list(rows):
        flat = rows.pop(name).reshape(size, -1)
        total += flat @ flat.T
    return total


def multiply_vectors(net: nn.Module, x: Tensor) -> Tensor:
    """The recipe of NTK-vector products; one sample on the left at a time, or it would not fit into memory."""
    values, run = make_function(net)

    def compare(left: Tensor, right: Tensor) -> Tensor:
        output, pull_back, *_ = vjp(lambda own: run(own, left), values)

        def push(direction: Tensor) -> Tensor:
            (moved,) = pull_back(direction)
            return jvp(lambda own: run(own, right), (values,), (moved,))[1]

        return vmap(push)(torch.eye(output.numel(), dtype=output.dtype))

    with torch.no_grad():
        blocks = [vmap(compare, in_dims=(None, 0))(left, x) for left in x]
    n, K = len(x), blocks[0].shape[1]
    return torch.stack(blocks).transpose(1, 2).reshape(n * K, n * K)  # (left, right, K, K) to rows and columns


def time_call(job: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    job()
    return time.perf_counter() - clock, time.process_time() - processor


def compare_roads(samples: int, repeats: int) -> dict[str, Any]:
    """All three, taking turns; medians of the ratios to the layer-by-layer kernel."""
    net, x = build_case("digits", samples)
    roads: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
        "layerwise": ntk,
        "contraction": contract_jacobian,
        "products": multiply_vectors,
    }
    exact = ntk(net, x)
    apart = {name: ((road(net, x) - exact).norm() / exact.norm()).item() for name, road in roads.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in roads}
    for _ in range(repeats):
        for name, road in roads.items():
            times[name].append(time_call(partial(road, net, x)))
    found: dict[str, Any] = {"samples": samples, "outputs": 10, "relative_difference": apart}
    for place, clock in enumerate(("clock", "processor")):
        base = [t[place] for t in times["layerwise"]]
        ratios = {name: [t[place] / b for t, b in zip(times[name], base, strict=True)] for name in roads}
        found[clock] = {
            name: {
                "seconds": statistics.median(t[place] for t in times[name]),
                "ratio": statistics.median(ratios[name]), "low": min(ratios[name]), "high": max(ratios[name]),
            }
            for name in roads
        }  # fmt: skip
    return found


def read_peak_memory() -> int:
    """Bytes of this process at most so far; getrusage would count what its parent had when it was started."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def measure_case(name: str) -> dict[str, Any]:
    """One large kernel in this process: run it in one of its own."""
    samples = CASES[name][2]
    net, x = build_case(name, samples)
    clock, processor = time_call(lambda: ntk(net, x))
    parameters = sum(p.numel() for p in net.parameters())
    return {
        "samples": samples, "outputs": 10, "parameters": parameters, "jacobian_gb": samples * 10 * parameters * 4e-9,
        "clock": clock, "processor": processor,
        "peak_gib": read_peak_memory() / 2**30,
    }  # fmt: skip


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--samples", type=int, default=8, help="of the comparison")
    parser.add_argument("--threads", type=int, help="of torch; by default its own choice")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.case:
        print(json.dumps(measure_case(options.case)))
        return
    threads = torch.get_num_threads()
    result: dict[str, Any] = {"threads": threads, "torch": torch.__version__}
    result["compare"] = compare_roads(options.samples, options.repeats)
    for name in CASES:
        alone = [sys.executable, __file__, "--case", name, "--threads", str(threads)]
        result[name] = json.loads(subprocess.run(alone, check=True, capture_output=True, text=True).stdout)
    if options.json:
        print(json.dumps(result))
        return
    both = result["compare"]
    print(
        f"Digits network, n = {both['samples']}, ten outputs, float32, {threads} threads; medians of {options.repeats}"
    )
    for name, apart in both["relative_difference"].items():
        words = [
            f"{kind} {one['seconds']:6.2f} s, {one['ratio']:5.1f} x ({one['low']:.1f} to {one['high']:.1f})"
            for kind, one in ((kind, both[kind][name]) for kind in ("clock", "processor"))
        ]
        print(f"  {name:12} {'; '.join(words)}; differs by {apart:.0e}")
    for name in CASES:
        big = result[name]
        print(
            f"{name}, n = {big['samples']}: {big['clock']:.1f} s, processor {big['processor']:.1f} s, peak "
            f"{big['peak_gib']:.2f} GiB; the Jacobian would be {big['jacobian_gb']:.0f} GB"
        )


if __name__ == "__main__":
    main()
