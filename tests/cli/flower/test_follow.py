"""Looking on while a run goes on: what is said, when it ends, and that a run nobody looks at is stopped."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-all")

from cli.flower import follow
from fedtrain.errors import TrainingError
from fedtrain.flower.deployment.superlink_control import SuperLinkRun
from fedtrain.runs.folder import RunFolder


class Control:
    """A SuperLink that tells of these states, one after the other; the last one stays."""

    def __init__(self, *states):
        self.states, self.stopped = [*states], []

    def get_run(self, run_id):
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return SuperLinkRun(run_id, *state, 0, 0)

    def stop_run(self, run_id):
        self.stopped.append(run_id)


@pytest.fixture
def look(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "LOG_INTERVAL", 0.0)
    monkeypatch.setattr(follow, "STATUS_INTERVAL", -1.0)

    def looked(control):
        said = []
        try:
            follow.follow_run(control, "7", RunFolder(tmp_path), tmp_path / "log", said.append)
        except TrainingError as error:
            return said, str(error)
        return said, None

    return looked


def test_a_run_that_starts_late_and_ends_well(look):
    control = Control(("pending", ""), ("starting", ""), ("running", ""), ("finished:completed", ""))
    said, error = look(control)
    assert error is None
    assert said == ["waiting for the SuperLink to start the run: 0 s"] * 2
    assert control.stopped == []


def test_a_run_that_is_never_started_is_stopped(look, monkeypatch):
    monkeypatch.setattr(follow, "START_LIMIT", 0.05)
    control = Control(("pending", ""))
    _, error = look(control)
    assert "the SuperLink has not started the run within 0 s; see its log" in error
    assert control.stopped == ["7"]


def test_a_run_that_cannot_be_followed_is_stopped_and_does_not_go_on_into_the_next(look):
    control = Control(("running", ""), TrainingError("flwr ls: no answer within 120 s"))
    assert "no answer within 120 s" in look(control)[1]
    assert control.stopped == ["7"]


def test_a_superlink_that_does_not_answer_for_a_while(look):
    silence = TrainingError("flwr ls: no answer within 120 s")
    control = Control(("running", ""), *[silence] * 4, ("running", ""), *[silence] * 4, ("finished:completed", ""))
    said, error = look(control)
    assert error is None
    assert said == [f"flwr ls: no answer within 120 s (asked {k} of 5 times)" for k in (1, 2, 3, 4)] * 2
    assert control.stopped == []


def test_a_run_that_failed_needs_no_stop(look):
    control = Control(("finished:failed", "ServerApp failed with exception: client svhn: no"))
    assert look(control)[1] == "the run did not end well: client svhn: no"
    assert control.stopped == []
