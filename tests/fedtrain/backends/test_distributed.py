"""Clients divided among processes: the same bits as in one, stopped and resumed too; a rank that is lost is told."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress

import pytest
import rank_processes
import small_experiments
import torch

from fedtrain.backends.distributed.process_group import Rank
from fedtrain.backends.distributed.rank_worker import RankWorker
from fedtrain.federated.codec.states import get_entry_name
from fedtrain.federated.messages import Failure
from fedtrain.runs.checkpoint import read_last_trained_rounds
from fedtrain.runs.distributed import select_rank_clients
from fedtrain.runs.folder import CLIENT_STATES_FOLDER, RunFolder
from fedtrain.runs.loop import run_rounds
from fedtrain.utils.signals import defer_interrupts
from theory.errors import InputError

pytestmark = pytest.mark.usefixtures("no_figures")
WORLDS = (1, 2)


def in_process(case, path):
    """A run in this process, from its beginning to its end."""
    work, folder = small_experiments.experiment(case, learning=True), RunFolder(path)
    folder.begin(work.config, {})
    run_rounds(work, folder)
    return small_experiments.everything(work, folder)


@pytest.fixture(scope="module")
def alone(tmp_path_factory, no_figures):
    """All cases in one process: what came of each."""
    root = tmp_path_factory.mktemp("alone")
    return {case: in_process(case, root / case) for case in small_experiments.CASES}


MIXED, KEPT, KILLED = "fedco2 few bytes", "fedbn some", "fedco2 some"
"""Of which cases the runs are that have a fate of their own."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """All that ranks do here, in as few processes as it takes: each must load torch first."""
    root = tmp_path_factory.mktemp("ranks")
    cases = {
        world: [{"case": case, "folder": f"{world} {case}"} for case in small_experiments.CASES] for world in WORLDS
    }
    two = [
        *cases[2],
        {"case": MIXED, "folder": "mixed", "stop": 1},
        {"case": KEPT, "folder": "kept", "changes": {"checkpoints": {"every": 1, "keep": 2}}},
        {"case": KILLED, "folder": "killed", "stop": 1},
        {"case": KILLED, "folder": "killed", "die": 3},
    ]
    assert rank_processes.run_on_ranks(2, root, two) == [0, -signal.SIGKILL]
    one = [
        *cases[1],
        {"case": MIXED, "folder": "mixed", "stop": 2},
        {"case": "fedbn all", "folder": "damaged", "stop": 2},
    ]
    assert rank_processes.run_on_ranks(1, root, one) == [0]
    return root


@pytest.fixture(params=WORLDS, ids=lambda world: f"{world} ranks")
def divided(request, root):
    """All cases on so many ranks: the folder of each."""
    return {case: RunFolder(root / f"{request.param} {case}") for case in small_experiments.CASES}


def kept_files(folder):
    return sorted(folder.path.glob(f"{CLIENT_STATES_FOLDER}/*/*"))


def turns_kept(folder):
    """Client and round of each file; a client's folder is its name, but for the underscore, and a mark."""
    return {(path.parent.name.rsplit("-", 1)[0].replace("-", "_"), int(path.stem)) for path in kept_files(folder)}


# --- the same bits


def test_cases_are_worth_comparing(alone):
    """Clients of unequal size, absent ones, heads that learn and differ, and methods that differ from each other."""
    sizes = [len(client.train) for client in small_experiments.experiment("fedavg some").federation.clients]
    assert len(set(sizes)) == len(sizes) == 5
    assert len({everything["metrics"] for everything in alone.values()}) == len(alone)
    for case in ("copa all", "copa some", "fedco2 all", "fedco2 both"):
        start = small_experiments.experiment(case, learning=True).build_backend().initial_broadcast().peers
        heads = dict(alone[case]["heads"])
        assert len({str(head) for head in heads.values()}) == 5
        assert all(small_experiments.bits(start[name]) != heads[name] for name in heads)


def test_ranks_give_the_bits_of_one_process(divided, alone):
    """Every method, with everybody and with a part of them, clients of unequal size, on one rank and on two."""
    wrong = {
        case: found
        for case, folder in divided.items()
        if (
            found := small_experiments.different(
                small_experiments.everything(small_experiments.experiment(case), folder), alone[case]
            )
        )
    }
    assert not wrong


def test_what_clients_keep_stays_where_they_train(root):
    """Only what is shared or published is sent, by its names and by its bits."""
    for case in small_experiments.CASES:
        work, folder = small_experiments.experiment(case, learning=True), RunFolder(root / f"2 {case}")
        trainer, path = work.build_client_trainer(), f"{work.config.method.published}."
        published = {name for name in trainer.personal_names if path != "." and name.startswith(path)}
        heads = {name.removeprefix(path) for name in published}
        moved = rank_processes.read_sent_tensors(root, folder.path.name)
        assert bool(moved) == bool(trainer.shared_names), case
        for name, _ in moved:
            assert get_entry_name(plain(name)) in (
                heads if "peers/" in name or "/published/" in name else trainer.shared_names
            ), (
                case,
                name,
            )
        if case.startswith(("moon", "pfedme")):
            continue  # MOON keeps what it has just sent; pFedMe sends the statistics of the personal model
        state, digests = folder.load_checkpoint(), {digest for _, digest in moved}
        for client in (name for name, turn in state.last_trained_round.items() if turn):
            own = state.load_client_state(client, folder.client_state_store, trainer.initial_client_state)
            still = {name: own[name] for name in trainer.personal_names - published if own[name].numel() > 1}
            assert not [name for name, value in still.items() if rank_processes.compute_digest(value) in digests], (
                case,
                client,
            )


def plain(name):
    """Without the group that it travels in."""
    first, rest = name.split("/", 1)
    return rest if first == "shared" else rest.split("/", 1)[1]


def test_the_checkpoint_of_ranks_holds_nothing_personal_and_no_file_stays_that_it_does_not_need(divided):
    for case, folder in divided.items():
        state = folder.load_checkpoint()
        assert not state.client_states
        assert turns_kept(folder) == {item for item in state.last_trained_round.items() if item[1]}, case
        assert not list(folder.path.rglob("*.part"))
    turns = divided["fedbn some"].load_checkpoint().last_trained_round
    assert len(set(turns.values())) > 1  # absent clients have older turns


# --- stopped, resumed, killed


def test_stopped_and_killed_runs_go_on_with_other_ranks_and_in_one_process(root, alone):
    """2 ranks, 1 rank, in process, 2 ranks: as never stopped; so is a run that a rank was lost of, which is told."""
    work, mixed, killed = (
        small_experiments.experiment(MIXED, learning=True),
        RunFolder(root / "mixed"),
        RunFolder(root / "killed"),
    )
    assert (mixed.read_last_saved_round(), killed.read_last_saved_round()) == (2, 1)
    assert rank_processes.read_detection_seconds(root) < 10
    with suppress(KeyboardInterrupt):
        run_rounds(work, mixed, small_experiments.stop_after(3))
    assert mixed.read_last_saved_round() == 3
    assert set(mixed.load_checkpoint().client_states) == {client.name for client in work.federation.clients}
    assert not kept_files(mixed)  # they are in the checkpoint now
    jobs = [
        {"case": MIXED, "folder": "mixed", "stop": 4},
        {"case": MIXED, "folder": "mixed"},
        {"case": KILLED, "folder": "killed"},
    ]
    assert rank_processes.run_on_ranks(2, root, jobs) == [0, 0]
    assert mixed.is_finished
    assert killed.is_finished
    assert not small_experiments.different(small_experiments.everything(work, mixed), alone[MIXED])
    assert not small_experiments.different(
        small_experiments.everything(small_experiments.experiment(KILLED), killed), alone[KILLED]
    )


def test_kept_checkpoints_keep_what_clients_kept(root):
    work, folder = small_experiments.experiment(KEPT, learning=True), RunFolder(root / "kept")
    kept = sorted(folder.path.glob("checkpoints/round-*"))
    assert [path.name for path in kept] == ["round-000004.safetensors", "round-000005.safetensors"]
    assert turns_kept(folder) == {item for path in kept for item in read_last_trained_rounds(path).items() if item[1]}
    last = small_experiments.everything(work, folder)
    kept[0].replace(folder.path / "checkpoints/last.safetensors")
    assert folder.read_last_saved_round() == 4
    run_rounds(work, folder)
    assert not small_experiments.different(small_experiments.everything(work, folder), last)


# --- files that are not what they should be


def refused(folder, *words):
    with pytest.raises(InputError) as caught:
        run_rounds(small_experiments.experiment("fedbn all", learning=True), folder)
    said = str(caught.value)
    assert "\n" not in said
    for word in words:
        assert word in said, said


def test_a_damaged_a_foreign_and_a_missing_file_are_refused(root):
    folder = RunFolder(root / "damaged")
    path, second, *_ = kept_files(folder)
    good = path.read_bytes()
    for bad in (good[:-1], good[:-4] + b"abcd", b"", second.read_bytes()):
        path.write_bytes(bad)
        refused(folder, str(path), "damaged", "start the run anew")
    path.unlink()
    refused(
        folder,
        "what it kept after round 2 is not in",
        str(folder.path / CLIENT_STATES_FOLDER),
        "it is where it trained",
    )
    path.write_bytes(good)
    run_rounds(small_experiments.experiment("fedbn all", learning=True), folder)
    assert folder.is_finished


# --- ranks and places


def test_more_ranks_than_clients_are_refused():
    with pytest.raises(InputError, match="99 ranks for 5 clients: some would idle; start fewer"):
        select_rank_clients(small_experiments.experiment("fedavg all"), Rank(0, 99, 0))


def test_every_client_has_one_rank():
    work = small_experiments.experiment("fedavg all")
    names = [[c.name for c in select_rank_clients(work, Rank(i, 2, i)).federation.clients] for i in range(2)]
    assert [len(part) for part in names] == [3, 2]
    assert sorted(names[0] + names[1]) == sorted(client.name for client in work.federation.clients)


def test_a_place_is_what_the_environment_says(monkeypatch):
    for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(key, raising=False)
    assert Rank.from_environment() is None
    monkeypatch.setenv("RANK", "1")
    assert Rank.from_environment() is None
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert Rank.from_environment() == Rank(1, 3, 0)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert Rank.from_environment() == Rank(1, 3, 1)
    assert Rank(1, 3, 1).select_device(torch.device("cpu")) == torch.device("cpu")
    assert Rank(0, 1, 0).select_device(torch.device("cuda:0")) == torch.device("cuda:0")
    with pytest.raises(InputError, match="cuda:0 cannot be the GPU of 3 ranks"):
        Rank(1, 3, 1).select_device(torch.device("cuda:0"))


# --- to be stopped


def put_off(number, work):
    with defer_interrupts():
        signal.raise_signal(number)
        work()


def test_an_interruption_waits_for_what_must_not_be_torn():
    for number in (signal.SIGINT, signal.SIGTERM):
        done, before = [], signal.signal(number, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                put_off(number, lambda done=done: done.append(1))
            assert done == [1]
            with defer_interrupts():
                pass
            assert signal.getsignal(number) is signal.default_int_handler
        finally:
            signal.signal(number, before)


def test_an_interruption_does_not_hide_nor_is_hidden():
    with pytest.raises(ZeroDivisionError), defer_interrupts():
        _ = 1 / 0
    with pytest.raises(KeyboardInterrupt):
        put_off(signal.SIGINT, lambda: 1 / 0)


def test_other_threads_have_no_signals_to_put_off():
    done = []

    def work():
        with defer_interrupts():
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert done == [1]


def test_a_rank_that_is_stopped_says_so_and_no_client_of_its_has_failed(tmp_path):
    """Also when the server would put up with failures; what it holds can still be kept."""
    work = small_experiments.experiment("fedbn all", server={"on_client_failure": "skip"})
    folder = RunFolder(tmp_path / "run")
    folder.begin(work.config, {})
    worker = RankWorker(work.build_backend(), folder)
    names, message = worker.backend.client_names, worker.backend.initial_broadcast()
    note, entries = rank_processes.build_call(
        message, {"do": "train", "cohort": names, "turns": dict.fromkeys(names, 0)}
    )
    told, _ = worker.execute(note, entries)
    assert [answer["client"] for answer in told["answers"]] == list(names)
    worker.request_stop()
    assert isinstance(worker.backend.train(message, names[:1])[0], Failure)  # what the server must not take it for
    told, _ = worker.execute(note, entries)
    assert told == {"error": "Halted", "text": "a rank was interrupted; go on from the last checkpoint"}
    assert worker.execute({"do": "keep", "turns": dict.fromkeys(names, 1)}, {}) == ({}, {})
    assert len(kept_files(folder)) == 5
