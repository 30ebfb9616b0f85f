"""What a fault costs a run on a real deployment: a part of it is killed while clients train, and the run goes on."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from distributed_cost_lib.cases import Case
from fedtrain.config.schema import EvaluationSettings
from fedtrain.flower.deployment.local_deployment import Deployment
from fedtrain.flower.deployment.processes import Process, find_descendants
from fedtrain.flower.deployment.state_file import load_deployment_state
from fedtrain.flower.deployment.supervisor import LOGS_DIR
from fedtrain.runs.experiment import Experiment, build_experiment
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.loop import run_rounds
from fedtrain.runs.manifest import build_manifest, describe_data
from fedtrain.utils.signals import defer_interrupts

FaultTiming = dict[str, Any]
ROUNDS_BEFORE_FAULT, RUN_TIMEOUT, CLIENT_TIMEOUT, POLL_INTERVAL = 2, 1800.0, 30.0, 0.1
"""Rounds before the fault; seconds for a run, for a client that never answers, and between two looks."""


@dataclass(frozen=True)
class Fault:
    """``find_victims`` lists the processes to kill; ``repair`` happens at once, or only when the run is over."""

    find_victims: Callable[[Deployment], Iterable[Process]] = lambda deployment: ()
    repair: Callable[[Deployment], None] = lambda deployment: None
    repair_at_once: bool = True
    resubmit: bool = False
    """Whether the run must be submitted again."""
    absent_clients: int = 0
    """How many clients need not answer."""


def list_process_tree(root: Process | None) -> list[Process]:
    """With all that it has started."""
    return [] if root is None else [root, *find_descendants([root])]


FAULTS = {
    "none": Fault(),
    "a SuperNode is killed, and started again": Fault(
        lambda deployment: list_process_tree(load_deployment_state(deployment.folder).nodes[2].process)[:1],
        lambda deployment: deployment.restart_node(2),
    ),
    "SuperLink and ServerApp are killed, the SuperLink is started again, the run resumed": Fault(
        lambda deployment: list_process_tree(load_deployment_state(deployment.folder).superlink.process),
        Deployment.restart_superlink,
        resubmit=True,
    ),
    f"a client never answers again (--min-clients 4 --timeout {CLIENT_TIMEOUT:g})": Fault(
        lambda deployment: list_process_tree(load_deployment_state(deployment.folder).nodes[4].process),
        lambda deployment: deployment.restart_node(4),
        repair_at_once=False,
        absent_clients=1,
    ),
}


def measure_faults(case: Case, scratch: Path) -> list[FaultTiming]:
    """All of them, one after the other, on one deployment."""
    config, found = case.config_and_source
    config = replace(
        config, evaluation=EvaluationSettings(every=case.rounds), server=replace(config.server, rounds=case.rounds)
    )
    work, alone = build_experiment(config, found), RunFolder(scratch / "alone")
    alone.begin(config, build_manifest(config, describe_data(work.federation), "benchmark"))
    run_rounds(work, alone)
    deployment, rows = Deployment(scratch / "deployment"), list[FaultTiming]()
    deployment.up(case.num_clients)
    try:
        for name, fault in FAULTS.items():
            timing = measure_fault(deployment, work, fault, scratch / f"run {len(rows)}")
            same = read_shared_bytes(RunFolder(scratch / f"run {len(rows)}")) == read_shared_bytes(alone)
            rows.append({"fault": name, "same": same, **timing})
    finally:
        with defer_interrupts():
            deployment.down()
    return rows


def measure_fault(deployment: Deployment, work: Experiment, fault: Fault, path: Path) -> FaultTiming:
    """A run that is struck in the round after the first ``ROUNDS_BEFORE_FAULT``."""
    log, clients, rounds = path.with_suffix(".log"), len(work.federation.clients), work.config.server.rounds
    least, patience = clients - fault.absent_clients, CLIENT_TIMEOUT if fault.absent_clients else RUN_TIMEOUT

    def submit(number: int) -> None:
        from fedtrain.flower.app_project import write_app
        from fedtrain.flower.server_plan import ServerPlan

        app = path.with_name(f"{path.name} app {number}")
        app.mkdir()
        plan = ServerPlan(work.config, RunFolder(path), clients, least, patience, "benchmark")
        write_app(app, plan, log)
        deployment.control.submit(app)

    submit(0)
    ends: list[tuple[int, float]] = []
    struck, limit = 0.0, time.monotonic() + RUN_TIMEOUT
    while not RunFolder(path).is_finished:
        if time.monotonic() > limit:
            raise SystemExit(f"{path}: not over after {RUN_TIMEOUT:g} s; see {log}")
        time.sleep(POLL_INTERVAL)
        ends += [(number, time.monotonic()) for number in read_logged_rounds(log)[len(ends) :]]
        if not struck and len(ends) == ROUNDS_BEFORE_FAULT and is_training(deployment):
            struck = time.monotonic()
            for process in fault.find_victims(deployment):
                process.signal(signal.SIGKILL)
            if fault.repair_at_once:
                fault.repair(deployment)
            if fault.resubmit:
                submit(1)
    ends += [(number, time.monotonic()) for number in read_logged_rounds(log)[len(ends) :]]
    if not fault.repair_at_once:
        fault.repair(deployment)
    return summarise_rounds(ends, struck, rounds)


def summarise_rounds(ends: Sequence[tuple[int, float]], struck: float, rounds: int) -> FaultTiming:
    """From when rounds ended: what one takes without a fault, when the next ended after it, and how many came twice."""
    times = [at for _, at in ends]
    before = [b - a for a, b in pairwise(times) if b <= struck]
    later_ones = [at for number, at in ends if at > struck and number > ROUNDS_BEFORE_FAULT]
    return {
        "round_s": median(before),
        "next_s": later_ones[0] - struck,
        "whole_s": times[-1] - times[0],
        "twice": len(ends) - rounds,
    }


def is_training(deployment: Deployment) -> bool:
    """Whether every node is at a turn: it says what it receives and sends."""
    told = [path.read_text(encoding="utf-8") for path in (deployment.folder / LOGS_DIR).glob("node-*.log")]
    return all(text.count("Receiving: train message") > text.count("Sending: train message") for text in told)


def read_logged_rounds(log: Path) -> list[int]:
    """The rounds that the server logged as finished."""
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    return [int(number) for number in re.findall(r"^round +(\d+)/", text, re.MULTILINE)]


def read_shared_bytes(folder: RunFolder) -> list[tuple[str, bytes]]:
    """The averaged entries at the end."""
    state = folder.load_checkpoint()
    assert state is not None
    return [
        (name, value.contiguous().view(torch.uint8).numpy().tobytes()) for name, value in state.message.shared.items()
    ]


def format_table(found: Sequence[FaultTiming]) -> str:
    """In Markdown."""
    heads = (
        "fault, in mid-round",
        "a round before it, s",
        "from it to the end of the next round, s",
        "rounds made twice",
    )
    rows = [
        f"| {one['fault']} | {one['round_s']:.0f} | {one['next_s']:.0f} | {one['twice']} | "
        f"{'yes' if one['same'] else 'no'} |"
        for one in found
    ]
    return "\n".join([f"| {' | '.join(heads)} | bits of one process |", "|---" * (len(heads) + 1) + "|", *rows])
