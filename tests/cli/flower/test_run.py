"""``fedco2 flower run`` where the server has no data: what it tells the nodes, and what it refuses."""

from __future__ import annotations

import os
import shutil
import tomllib

import pytest
from found_files import write_table

pytest.importorskip("flwr", reason="Flower is not installed: make test-all")

from cli.main import main
from fedtrain.flower.replies import build_client_error

RUN = ["flower", "run", "--dataset", "digits", "--rounds", "5"]


@pytest.fixture
def written(tmp_path):
    """Write an app with these words; the configuration in it, and how many clients."""

    def made(*words):
        places = ["--data-dir", str(tmp_path), "--out", str(tmp_path / "run"), "--write-app", str(tmp_path / "app")]
        code = main([*RUN, *words, *places])
        if code:
            return code
        told = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
        return tomllib.loads(told["config"]), told["clients"]

    return made


def test_real_data_are_the_nodes_own(written, capsys):
    config, clients = written("--data", "real")
    assert config["data"]["source"] == "real"
    assert config["server"]["rounds"] == 5
    assert clients == 5
    assert "STAND-IN" not in capsys.readouterr().err


def test_without_a_word_on_the_data_those_of_the_server_decide_and_that_is_said(written, capsys):
    config, _ = written()
    assert config["data"]["source"] == "standin"
    assert "nodes that have real ones use them with --data real" in " ".join(capsys.readouterr().err.split())


def test_data_of_ones_own_are_named_by_path_or_as_they_were_kept(written, tmp_path, capsys):
    table, how = str(write_table(tmp_path / "t.csv")), ["--client-column", "site", "--target", "ill"]
    assert main(["data", "add", "cases", table, *how, "--data-dir", str(tmp_path)]) == 0
    for named, clients in ((["--dataset", table, *how], 2), (["--dataset", "cases"], 2)):
        shutil.rmtree(tmp_path / "app", ignore_errors=True)
        config, found = written(*named)
        assert (config["data"]["dataset"], found) == (named[1], clients)
    assert written("--dataset", "cases", "--skew", "pachinko", "--clients", "2") == 2
    assert "skew 'pachinko' does not fit t" in capsys.readouterr().err


def test_more_answers_than_clients_are_refused(written, capsys):
    assert written("--min-clients", "9") == 2
    assert (
        "9 clients cannot be required: there are 5 clients; choose from 1 to 5 (--min-clients)"
        in capsys.readouterr().err
    )


def test_simulated_nodes_look_where_they_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCO2_DATA", "elsewhere")
    seen = []

    def simulate(nodes, workers, conduct, halt):
        seen.append(os.environ["FEDCO2_DATA"])
        raise KeyboardInterrupt

    monkeypatch.setattr("fedtrain.flower.simulation.simulate", simulate)
    assert main(["flower", "simulate", *RUN[2:], "--data-dir", str(tmp_path), "--out", str(tmp_path / "run")]) == 130
    assert seen == [str(tmp_path)]


def test_what_a_node_lacks_ends_with_the_exit_code_of_missing_data():
    assert type(build_client_error("node 7", {"error": "DataError", "text": "lacks mnist"})).__name__ == "DataError"
    assert type(build_client_error("node 7", {"error": "InputError", "text": "no"})).__name__ == "InputError"
    assert type(build_client_error("node 7", {"error": "KeyError", "text": "no"})).__name__ == "TrainingError"
