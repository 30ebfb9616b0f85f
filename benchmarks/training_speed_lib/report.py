"""Measurements as a table in Markdown and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

TITLES = {"fedavg": "FedAvg", "fedbn": "FedBN", "fedco2": "Fed-CO2"}
RATIO_GOALS = {"w1 fedbn": 2.0, "w1 fedco2": 3.0, "w2 fedbn": 2.0, "w2 fedco2": 2.2, "w3 fedbn": 2.0, "w3 fedco2": 2.5}
"""Ratios that were aimed at."""
SHARE_GOALS = {"w1 fedco2": 0.70, "w2 fedco2": 0.75}
"""Shares of sgemm that were aimed at."""
COLOURS = ("#0072B2", "#56B4E9", "#009E73", "#F0E442", "#E69F00", "#CC79A7", "#D55E00", "#BBBBBB")
"""Of Okabe and Ito, and grey."""
Measurement = dict[str, Any]


def format_table(cases: Sequence[Measurement]) -> str:
    """All cases in a table, then where the time of each goes."""
    rows = [
        "| | plain, s a round | backend, s a round | ratio (lowest to highest) | goal | ratio of CPU time | limit "
        "| share of sgemm: backend, plain | goal | peak memory: backend, plain |",
        "|---" * 10 + "|",
        *(f"| {' | '.join(format_cells(case))} |" for case in cases),
    ]
    kinds = list(cases[0]["time_goes"])
    goes = [f"| where the time goes | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for case in cases:
        shares = " | ".join(f"{100 * case['time_goes'][kind]:.0f} %" for kind in kinds)
        goes.append(f"| {format_case_name(case)} | {shares} |")
    machine = cases[0]
    about = (
        f"{machine['cpu']}, threads {machine['threads']}, torch {machine['torch']}, sgemm {machine['gemm_gflops']:.0f} "
        f"GFLOP/s; medians of {machine['repeats']}; the machine's load before: {machine['load_before']:.1f}; data of "
        f"the plain loop: {machine['plain_data']}; backend {machine['backend']}"
        f"{'' if machine['fast_path'] else ' without the fast path'}"
    )
    rival = machine.get("rival")
    if rival:
        about += f"; in the place of the plain loop: {rival}"
    what = sorted({case["what"] for case in cases})
    return "\n".join([*rows, "", *goes, "", about, *what])


def format_cells(case: Measurement) -> list[str]:
    """One row."""
    return [
        format_case_name(case),
        f"{case['plain_s']:.2f}",
        f"{case['fast_s']:.2f}",
        f"{case['ratio']:.2f} ({case['ratio_low']:.2f} to {case['ratio_high']:.2f})",
        format_goal(case["ratio"], RATIO_GOALS.get(get_goal_key(case)), "{:g}"),
        f"{case['ratio_cpu']:.2f}",
        f"{case['ratio_limit']:.1f}",
        f"{100 * case['gemm_share']:.0f} %, {100 * case['plain_gemm_share']:.0f} %",
        format_goal(case["gemm_share"], SHARE_GOALS.get(get_goal_key(case)), "{:.0%}"),
        f"{case['peak_mb'] / 1000:.1f} GB, {case['plain_peak_mb'] / 1000:.1f} GB",
    ]


def format_goal(value: float, goal: float | None, form: str) -> str:
    """Whether a goal was reached, if there is one."""
    return "" if goal is None else f"{form.format(goal)}: {'met' if value >= goal else '**missed**'}"


def get_goal_key(case: Measurement) -> str:
    """By which goals are found; for toys there are none."""
    return "" if case["small"] else f"{case['workload']} {case['method']}"


def format_case_name(case: Measurement) -> str:
    """Short, for a row."""
    return f"{case['workload'].upper()} {TITLES[case['method']]}"


def plot(cases: Sequence[Measurement], path: Path) -> None:
    """Ratios with their spread and goals, shares of sgemm, where the time goes: a row for each case."""
    from theory.report.plot_style import (
        FULL_WIDTH,
        MUTED_COLOUR,
        TEXT_COLOUR,
        create_canvas,
        save_figure,
        use_plot_style,
    )

    low, high = (pick(case["ratio"] for case in cases) for pick in (min, max))
    faster = f"{low:.1f} times" if high - low < 0.05 else f"{low:.1f} to {high:.1f} times"
    rows = range(len(cases))
    with use_plot_style():
        body = create_canvas(
            f"A round of the backend is {faster} as fast as one of the plain loop", FULL_WIDTH, 2.0 + 0.36 * len(cases)
        )
        ratio, share, goes = body.subplots(1, 3, sharey=True, width_ratios=(1, 0.7, 1.4))
        for row, case in zip(rows, cases, strict=True):
            spread = [[case["ratio"] - case["ratio_low"]], [case["ratio_high"] - case["ratio"]]]
            ratio.barh(row, case["ratio"], 0.62, color=COLOURS[0], xerr=spread, ecolor=TEXT_COLOUR)
            for axes, goal in (
                (ratio, RATIO_GOALS.get(get_goal_key(case))),
                (share, 100 * SHARE_GOALS.get(get_goal_key(case), 0)),
            ):
                if goal:
                    axes.plot([goal, goal], [row - 0.42, row + 0.42], color=COLOURS[6], lw=2.4)
            share.barh(row, 100 * case["gemm_share"], 0.62, color=COLOURS[0])
            share.plot(100 * case["plain_gemm_share"], row, "o", color="white", mec=TEXT_COLOUR, ms=6)
            left = 0.0
            for kind, colour in zip(case["time_goes"], COLOURS, strict=False):
                width = 100 * case["time_goes"][kind]
                goes.barh(row, width, 0.62, left=left, color=colour, edgecolor="white", lw=0.5, label="_" * row + kind)
                left += width
        ratio.set_yticks(list(rows), [format_case_name(case) for case in cases])
        ratio.invert_yaxis()
        ratio.axvline(1, color=MUTED_COLOUR, lw=0.8)
        ratio.set(title="plain / backend (red: goal)", xlabel="times as fast", xlim=(0, None))
        share.set(title="speed, of a matrix product's", xlabel="% of sgemm (ring: plain loop)", xlim=(0, 100))
        goes.set(title="where the backend's time goes", xlabel="% of a round", xlim=(0, 100))
        body.legend(*goes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8.5)
        save_figure(body, path)
