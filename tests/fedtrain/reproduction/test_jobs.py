"""The folders of runs: which are used, which are left alone, and how long the rest will take."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from fake_reproduction import STANDIN_REQUEST, make_plan, make_published_data, write_fake_run

from fedtrain.reproduction import paper_numbers
from fedtrain.reproduction.data_match import find_impossible_runs, make_clients_preview
from fedtrain.reproduction.estimate import estimate_total_seconds
from fedtrain.reproduction.jobs import build_jobs, find_stored_runs, load_adopted_runs
from fedtrain.reproduction.owned_files import check_owned, write_owned
from fedtrain.reproduction.paper_item import PAPER_ITEM_NAMES
from fedtrain.reproduction.plan import make_dataset_finder
from fedtrain.runs.folder import SUMMARY_FILE
from theory.errors import InputError


def test_finished_runs_are_found_by_what_they_are_not_by_their_names(tmp_path):
    one = make_plan("T7", methods=("fedavg",), rounds=20, seeds="1")
    ((identity, job),) = build_jobs([one], tmp_path / "runs").items()
    write_fake_run(replace(job, folder=tmp_path / "elsewhere"))
    adopt = load_adopted_runs([tmp_path / "elsewhere"])
    assert adopt == load_adopted_runs([tmp_path]) == find_stored_runs(tmp_path)
    assert build_jobs([one], tmp_path / "runs", adopt)[identity].folder == tmp_path / "elsewhere"
    curve = make_plan("F2", methods=("fedavg",), rounds=20, dataset="digits")
    assert (
        build_jobs([curve], tmp_path / "runs", adopt)[identity].folder.parent == tmp_path / "runs"
    )  # evaluated too seldom
    (tmp_path / "elsewhere" / SUMMARY_FILE).unlink()
    with pytest.raises(InputError, match="not finished"):
        load_adopted_runs([tmp_path / "elsewhere"])
    assert build_jobs([one], tmp_path)[identity].build_arguments(2) == [
        "train",
        "--resume",
        str(tmp_path / "elsewhere"),
        "--threads",
        "2",
    ]


def test_runs_of_other_data_are_not_used(tmp_path):
    """The same settings on a subset, or on a replacement of the same size, are other numbers."""

    def replaced(name):
        return replace(make_published_data(name), notes=("MNIST-M (re-created) stands for MNIST-M",))

    def smaller(name):
        found = make_published_data(name)
        return replace(found, pools=[replace(pool, test=pool.test[:70]) for pool in found.pools])

    asked = {"methods": ("fedavg",), "rounds": 20, "seeds": "1"}
    one = make_plan("T7", **asked)
    ((identity, job),) = build_jobs([one], tmp_path / "runs").items()
    write_fake_run(replace(job, folder=tmp_path / "here"))
    adopt = load_adopted_runs([tmp_path / "here"])
    assert build_jobs([one], tmp_path / "runs", adopt)[identity].finished
    write_fake_run(job)
    for look in (replaced, smaller):
        other = make_plan("T7", look, **asked)
        assert other.run_specs[0, 0, 1].identity == identity
        assert not build_jobs([other], tmp_path / "new", adopt)[identity].begun
        with pytest.raises(InputError, match="other data than are here now; choose another folder"):
            build_jobs([other], tmp_path / "runs")


def test_a_folder_that_holds_another_run_is_not_used(tmp_path):
    one, other = (make_plan("T7", methods=("fedavg",), rounds=rounds, seeds="1") for rounds in (2, 3))
    ((_, job),), ((_, wrong),) = (build_jobs([each], tmp_path).items() for each in (one, other))
    write_fake_run(replace(wrong, folder=job.folder))
    with pytest.raises(InputError, match="holds another run"):
        build_jobs([one], tmp_path)


def finished_run(name, path):
    job = next(iter(build_jobs([make_plan(name, methods=("fedavg",))], path).values()))
    write_fake_run(replace(job, folder=path))
    return path


def test_what_cannot_be_run_on_the_data_at_hand_is_known_before(tmp_path):
    def few(name):
        found = make_published_data(name)
        return replace(found, pools=[replace(found.pools[0], train=found.pools[0].train[:1000])])

    one = make_plan("T13", few, methods=("fedavg", "fedbn"))
    there = load_adopted_runs([finished_run("T13", tmp_path / "whole")])
    assert not any(job.begun for job in build_jobs([one], tmp_path / "new", there).values())
    why = find_impossible_runs(one.run_specs.values(), make_clients_preview([one]))
    assert set(why.values()) == {2}  # both methods of a column
    assert any("150 clients" in reason for reason in why), why
    assert find_impossible_runs(one.run_specs.values(), make_clients_preview([make_plan("T13")])) == {}


def test_our_files_are_made_anew_and_others_are_left_alone(tmp_path):
    write_owned(tmp_path / "T7", "table.md", "one")
    write_owned(tmp_path / "T7", "table.md", "two")
    write_owned(tmp_path / "T7", "figure.png", b"\x89")
    assert (tmp_path / "T7" / "table.md").read_text() == "two"
    (tmp_path / "T7" / "table.md").write_text("my own words")
    for act in (
        lambda: write_owned(tmp_path / "T7", "table.md", "x"),
        lambda: check_owned(tmp_path / "T7", ["table.md"]),
    ):
        with pytest.raises(InputError, match="not overwritten"):
            act()
    assert (tmp_path / "T7" / "table.md").read_text() == "my own words"
    assert sorted(path.name for path in (tmp_path / "T7").iterdir()) == [".written.json", "figure.png", "table.md"]


def test_time_is_estimated_in_proportion():
    few, many = (
        make_plan("T7", lambda name: make_dataset_finder(STANDIN_REQUEST)(name), rounds=r, methods=("fedavg",))
        for r in (20, 200)
    )
    some, more = (estimate_total_seconds(one.run_specs.values(), one.sources) for one in (few, many))
    assert 0 < some < more < 12 * some


def test_experiments_are_data():
    folder = Path(paper_numbers.__file__).parent / "experiments"
    assert sorted(path.stem for path in folder.iterdir()) == sorted(PAPER_ITEM_NAMES)
    for path in folder.iterdir():
        assert tomllib.loads(path.read_text(encoding="utf-8"))["title"].partition(" ")[2].startswith(path.stem[1:])
