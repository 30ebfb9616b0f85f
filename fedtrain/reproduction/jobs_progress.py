"""The terminal view of a reproduction: a line for each run that ends, and what is at work."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from fedtrain.reproduction.jobs import Job
from fedtrain.reproduction.runner import JobOutcome, RunningJob, read_last_log_line, read_rounds_done
from fedtrain.utils.terminal import print_paragraph
from fedtrain.utils.text import format_duration


def make_stderr_console() -> Console:
    """Results go to stdout, what is said meanwhile does not."""
    return Console(stderr=True, markup=False, highlight=False, emoji=False)


def show_notes(notes: Iterable[str]) -> None:
    """What is to be known before hours are spent."""
    for note in notes:
        print_paragraph(make_stderr_console(), f"note: {note}", "yellow", indent=len("note: "))


class JobsProgress:
    """Looks on while cells run."""

    def __init__(self, weights: Mapping[Job, float]) -> None:
        self.screen, self.weights, self.start = make_stderr_console(), weights, time.monotonic()
        self.reported_count, self.first = 0, {job: read_rounds_done(job) for job in weights}
        self.live = Live(console=self.screen, transient=True, auto_refresh=False) if self.screen.is_terminal else None

    def __enter__(self) -> JobsProgress:
        self.screen.print(f"{len(self.weights)} runs to make; Ctrl-C is safe, and the same again goes on")
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, running: Sequence[RunningJob], done: Sequence[JobOutcome], waiting: int) -> None:
        """A line for each run that ended, and on a terminal what is at work."""
        for outcome in done[self.reported_count :]:
            end = "finished" if not outcome.code else f"FAILED ({read_last_log_line(outcome.job)})"
            self.reported_count += 1
            self.screen.print(
                f"[{self.reported_count}/{len(self.weights)}] {outcome.job.folder.name} {end}, "
                f"{format_duration(outcome.seconds)}",
                style="" if not outcome.code else "bold red",
                soft_wrap=True,
            )
        if self.live:
            self.live.update(Text("\n".join(self.format_state(running, done, waiting))), refresh=True)

    def format_state(self, running: Sequence[RunningJob], done: Sequence[JobOutcome], waiting: int) -> list[str]:
        """What is at work, how much waits, when it will be over."""
        lines, worked = [], sum(self.weights[outcome.job] for outcome in done)
        left = sum(self.weights.values()) - worked
        for one in running:
            rounds, made = one.job.spec.config.server.rounds, read_rounds_done(one.job)
            worked += self.weights[one.job] * max(0, made - self.first[one.job]) / rounds
            left -= self.weights[one.job] * made / rounds
            where = "" if one.process else "  (another program is at work on it)"
            lines.append(f"  {one.job.folder.name}  round {made}/{rounds}{where}")
        spent = time.monotonic() - self.start
        eta = left * spent / worked if worked else left
        head = f"{len(done)} of {len(self.weights)} runs ended, {len(running)} at work, {waiting} wait"
        return [f"{head}; roughly {format_duration(max(eta, 0))} left", *lines]
