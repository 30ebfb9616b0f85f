"""How fast closed-form kernels of two-layer networks are: python benchmarks/two_layer_kernels.py [--json, --plot FILE].

Three roads to the same V_on and G_on at NM = 200, d = 50, m = 4096, interleaved:
  closed     theory.compute_kernel, streamed over hidden units
  analytic   the exact Jacobian (n, m·d) written down, then one matrix product
  autograd   vmap(jacrev) of torch.func and the same contraction, at its best chunk of samples
and the closed form at NM = 2000, d = 64, m = 65536 in float32, in a process of its own for its peak memory, beside a
plain sgemm. Useful flops: the two products over hidden units (the symmetric one counted once), the projections of the
inputs and G's client blocks; nothing elementwise.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from theory import (
    Kernel,
    Problem,
    TwoLayerBN,
    Weights,
    compute_federated_kernel,
    compute_jacobian,
    compute_kernel,
    draw_initial_weights,
    draw_synthetic_problem,
)
from theory.kernels.federated import keep_client_blocks
from theory.network import HIDDEN_KEY, compute_covariance_norms


def time_call(job: Callable[[], object], at_least: float = 0.0) -> float:
    """Seconds per call, over as many consecutive calls as together take ``at_least`` seconds."""
    start, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() - start < at_least:
        job()
        calls += 1
    return (time.perf_counter() - start) / calls


def compute_analytic_kernel(problem: Problem, weights: Weights) -> Kernel:
    """∂f/∂v written out for every sample and unit, contracted by one product."""
    rows, scales = [], []
    for i, block in enumerate(problem.blocks):
        v, gamma, c = weights.get_client_weights(i)
        x, size, Sv = problem.x[block], compute_covariance_norms(v, problem.S[i]), v @ problem.S[i]
        h = x @ v.T
        gate = (h * gamma >= 0) * (c / weights.width**0.5)
        moved = x[:, None, :] - (h / size.square())[:, :, None] * Sv
        rows.append(((gate * gamma / size)[:, :, None] * moved).flatten(1))
        scales.append(gate * h / size)
    J, E = torch.cat(rows), torch.cat(scales)
    return Kernel(weights.alpha**2 * (J @ J.T), keep_client_blocks(E @ E.T, problem.owner), weights.alpha)


def compute_autograd_kernel(problem: Problem, weights: Weights, chunk: int) -> torch.Tensor:
    """Λ_on by torch.func."""
    nets = [
        TwoLayerBN(problem.dim, weights.width, covariance=S).load_weights(*weights.get_client_weights(i))
        for i, S in enumerate(problem.S)
    ]
    return compute_federated_kernel(
        compute_jacobian(nets, [problem.x[b] for b in problem.blocks], chunk=chunk), problem.owner, {HIDDEN_KEY}
    )


def compare_methods(repeats: int) -> dict[str, Any]:
    """The three roads, interleaved; medians of the ratios."""
    problem = draw_synthetic_problem(clients=5, samples=40, dim=50)
    weights = draw_initial_weights(problem, 4096, 0.5)
    chunks = (5, 10, 20, 40)
    best = min(
        chunks, key=lambda c: min(time_call(lambda: compute_autograd_kernel(problem, weights, c)) for _ in range(2))
    )
    roads: dict[str, Callable[[], object]] = {
        "closed": lambda: compute_kernel(problem, weights),
        "analytic": lambda: compute_analytic_kernel(problem, weights),
        "autograd": lambda: compute_autograd_kernel(problem, weights, best),
    }
    closed = compute_kernel(problem, weights).Lambda
    apart = {
        "analytic": ((compute_analytic_kernel(problem, weights).Lambda - closed).norm() / closed.norm()).item(),
        "autograd": ((compute_autograd_kernel(problem, weights, best) - closed).norm() / closed.norm()).item(),
    }
    times: dict[str, list[float]] = {name: [] for name in roads}
    for _ in range(repeats):
        for name, job in roads.items():
            times[name].append(time_call(job, at_least=1.0))  # as long for the quick one: else it is timed cold
    ratios = {
        name: [slow / fast for slow, fast in zip(times[name], times["closed"], strict=True)]
        for name in ("analytic", "autograd")
    }
    return {
        "n": 200, "d": 50, "m": 4096, "dtype": "float64", "autograd_chunk": best,
        "seconds": {name: statistics.median(t) for name, t in times.items()},
        "ratio": {name: statistics.median(r) for name, r in ratios.items()},
        "ratio_low": {name: min(r) for name, r in ratios.items()},
        "ratio_high": {name: max(r) for name, r in ratios.items()},
        "relative_difference": apart,
    }  # fmt: skip


def measure_sgemm_rate(size: int = 4096) -> float:
    """Flops a second of a square float32 product."""
    a = torch.randn(size, size)
    _ = a @ a
    return 2.0 * size**3 / min(time_call(lambda: a @ a) for _ in range(3))


def measure_large_case(clients: int, width: int = 65536) -> dict[str, Any]:
    """The large case in this process: run it in one of its own."""
    n, d = 2000, 64
    problem = draw_synthetic_problem(clients=clients, samples=n // clients, dim=d).to(torch.float32)
    weights = draw_initial_weights(problem, width, 0.5)
    shares, times = [], []
    useful = 3.0 * n * n * width + 2.0 * n * width * d * (1 + clients) + n * (n / clients) * width
    compute_kernel(problem, Weights(weights.v[:4096], weights.c[:4096], weights.gamma[:, :4096], 0.5))
    for _ in range(3):
        before = measure_sgemm_rate()
        took = time_call(lambda: compute_kernel(problem, weights))
        times.append(took)
        shares.append(useful / took / ((before + measure_sgemm_rate()) / 2))
    return {
        "n": n, "d": d, "m": width, "clients": clients, "dtype": "float32", "seconds": statistics.median(times),
        "sgemm_share": statistics.median(shares), "sgemm_share_low": min(shares), "sgemm_share_high": max(shares),
        "gflops": useful / statistics.median(times) / 1e9,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip


def measure_growth() -> dict[str, list[tuple[int, float]]]:
    """Seconds against width (at d = 50) and against dimension (at m = 4096), n = 200."""

    def cost(dim: int, width: int) -> float:
        problem = draw_synthetic_problem(clients=5, samples=40, dim=dim)
        weights = draw_initial_weights(problem, width, 0.5)
        compute_kernel(problem, weights)
        return min(time_call(lambda: compute_kernel(problem, weights)) for _ in range(3))

    return {
        "width": [(m, cost(50, m)) for m in (1024, 2048, 4096, 8192, 16384, 32768, 65536)],
        "dim": [(d, cost(d, 4096)) for d in (2, 5, 10, 20, 50, 100, 200, 400)],
    }


def plot_growth(found: dict[str, list[tuple[int, float]]], path: Path) -> None:
    """Both growths, log-log, with their guides."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    m, t = zip(*found["width"], strict=True)
    left.loglog(m, t, "o-", color="#0072B2", label="measured")
    left.loglog(m, [t[-1] * x / m[-1] for x in m], "--", color="#999999", label="proportional to m")
    left.set(xlabel="hidden units m (n = 200, d = 50)", ylabel="seconds", title="Linear in the width")
    d, t = zip(*found["dim"], strict=True)
    right.loglog(d, t, "s-", color="#D55E00", label="measured")
    right.axhline(t[0], ls="--", color="#999999", label="flat")
    right.set(xlabel="dimension d (n = 200, m = 4096)", title="Flat in the dimension until projections rule")
    for axes in (left, right):
        axes.legend(frameon=False)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clients", type=int, default=5, help="clients of the large case")
    parser.add_argument("--plot", type=Path, help="write the growth figure here (takes a minute)")
    parser.add_argument("--large-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.large_only:
        print(json.dumps(measure_large_case(options.clients)))
        return
    alone = [sys.executable, __file__, "--large-only", "--clients", str(options.clients)]
    result: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "compare": compare_methods(options.repeats),
    }
    result["large"] = json.loads(subprocess.run(alone, check=True, capture_output=True, text=True).stdout)
    if options.plot:
        result["growth"] = measure_growth()
        plot_growth(result["growth"], options.plot)
    if options.json:
        print(json.dumps(result))
        return
    both, big = result["compare"], result["large"]
    print(f"n = 200, d = 50, m = 4096, float64, {result['threads']} threads; medians of {options.repeats}")
    for name, took in both["seconds"].items():
        low, ratio, high = (both[key].get(name, 1.0) for key in ("ratio_low", "ratio", "ratio_high"))
        print(f"  {name:9} {1e3 * took:8.1f} ms  {ratio:6.1f} x closed ({low:.1f} to {high:.1f})")
    print(
        f"n = 2000, d = 64, m = 65536, float32, {big['clients']} clients: {big['seconds']:.2f} s, "
        f"{100 * big['sgemm_share']:.0f} % of sgemm ({100 * big['sgemm_share_low']:.0f} to "
        f"{100 * big['sgemm_share_high']:.0f}), peak {big['peak_mb']:.0f} MB"
    )


if __name__ == "__main__":
    main()
