"""``fedco2 train`` as a user meets it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from quick_runs import FILES, QUICK_TRAIN, ROOT, SMALL_MODEL, TINY, assert_refused, read_contents

from cli.main import main
from cli.train import train
from cli.train.view import name_predicted
from fedtrain.config.options import SETTING_FOR_OPTION
from fedtrain.federated.client import ClientTrainer
from fedtrain.runs.folder import RunFolder


def test_the_folder_has_everything_and_nothing_half_written(finished):
    assert sorted(path.name for path in finished.iterdir()) == FILES
    assert sorted(path.name for path in (finished / "figures").iterdir()) == ["accuracy.png", "labels.png"]
    assert [path.name for path in (finished / "checkpoints").iterdir()] == ["last.safetensors"]
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert {row["branch"] for row in rows} == {"fused", "online", "offline"}
    assert {row["client"] for row in rows} == {"mnist", "svhn", "usps", "synthdigits", "mnist_m"}
    assert {row["round"] for row in rows} == {1, 2}


def test_every_file_says_that_these_are_stand_in_data(finished):
    summary = json.loads((finished / "summary.json").read_text())
    data = json.loads((finished / "manifest.json").read_text())["data"]
    for told in (summary, data):
        assert told["standin"] is True
        assert told["title"] == "Digits (stand-in)"
        assert "stand-in" in " ".join(told["notes"])


def test_it_prints_a_header_a_line_a_round_a_table_and_the_stand_in_loudly(tmp_path, capsys):
    assert main([*QUICK_TRAIN, "--method", "fedbn", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    for text in (
        "FedBN on Digits (stand-in)",
        "STAND-IN DATA: stand-in images",
        "clients   5, skew domain, 148 training samples each",
        "batch norm)",
        "round 1/2  loss",
        "round 2/2  loss",
        "test",
        "(worst",
        "synthdigits",
        "Test accuracy in %, Digits (stand-in), after the last round",
        "std over clients (ddof 0)",
        "note: stand-in images, drawn by fedco2: results say nothing about the real Digits",
        str(tmp_path / "out"),
    ):
        assert text in shown, text
    assert "\x1b" not in shown


def test_json_is_all_that_stdout_gets(tmp_path, capsys, no_figures):
    assert main([*QUICK_TRAIN, "--method", "fedavg", "--json", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    result = json.loads(shown.out)
    assert (result["method"], result["standin"], result["rounds"]) == ("fedavg", True, 2)
    assert result["out"] == str(tmp_path / "out")
    assert {key: value for key, value in result.items() if key != "out"} == json.loads(
        (tmp_path / "out" / "summary.json").read_text()
    )
    assert shown.err == ""


def test_a_dry_run_tells_all_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*QUICK_TRAIN, "--dry-run", "--out", "out"]) == 0
    shown = capsys.readouterr().out
    for text in ("STAND-IN DATA", "published", "kB up", "roughly", "nothing is written"):
        assert text in shown, text
    assert shown.startswith("roughly")  # what one asks for is seen first
    assert "[local]" not in shown
    assert main([*QUICK_TRAIN, "--dry-run", "--show-config", "--out", "out"]) == 0
    assert "[local]\nlr = 0.01" in capsys.readouterr().out
    assert main([*QUICK_TRAIN, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["config"]["server"]["rounds"] == 2
    assert (plan["standin"], plan["title"]) == (True, "Digits (stand-in)")
    assert plan["numbers"]["published"] == 8 * 10
    assert plan["bytes"]["up"] == 4 * (plan["numbers"]["shared"] + plan["numbers"]["published"])
    assert plan["seconds"] > 0
    assert list(tmp_path.iterdir()) == []


def test_without_real_data_the_default_is_the_stand_in_and_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FEDCO2_DATA", str(tmp_path))
    assert main(["train", *TINY, "--dry-run"]) == 0
    assert "STAND-IN DATA" in capsys.readouterr().out


def test_every_option_goes_to_its_place(capsys):
    given = {"--data-seed": 3, "--rounds": 7, "--participation": 0.5, "--local-epochs": 2, "--batch-size": 5}
    given |= {"--lr": 0.2, "--momentum": 0.1, "--weight-decay": 0.3, "--eval-every": 4, "--seed": 9, "--threads": 1}
    given |= {"--skew": "domain", "--clients": 5, "--device": "cpu", "--method": "fedprox", "--data": "standin"}
    given |= {"--checkpoint-every": 6, "--on-client-failure": "skip"}
    options = [text for option, value in given.items() for text in (option, str(value))]
    assert main(["train", *TINY, *options, "--dry-run", "--json"]) == 0
    config = json.loads(capsys.readouterr().out)["config"]
    for option, value in given.items():
        section, _, key = SETTING_FOR_OPTION[option[2:].replace("-", "_")].partition(".")
        assert (config[section][key] if key else config[section]) == value, option


def test_alpha_is_for_skews_that_read_it(capsys):
    assert_refused(
        capsys,
        ["train", *TINY, "--alpha", "0.7", "--dry-run"],
        "alpha means nothing to skew 'domain'",
        "choose another skew",
    )
    skewed = ["--dataset", "digits", "--data", "standin", "--skew", "label+feature", "--alpha", "2"]
    assert main(["train", *skewed, "--set", "model.name=two-layer", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["data"]["alpha"] == 2.0


def test_a_rule_without_data_for_it_is_refused(capsys):
    wanted = ["train", *TINY, "--set", "evaluation.report=best-by-validation", "--dry-run"]
    assert_refused(capsys, wanted, "no client has validation data", "data.val_size")
    wanted = ["train", *TINY, "--set", "evaluation.test=chosen", "--dry-run"]
    assert_refused(capsys, wanted, "no client has validation data", "evaluation.every")


def test_a_loss_that_rose_is_pointed_out(tmp_path, capsys, no_figures):
    assert main([*QUICK_TRAIN, "--method", "fedavg", "--lr", "1e4", "--out", str(tmp_path / "out")]) == 0
    assert "the training loss rose from" in capsys.readouterr().out


def test_predictions_far_worse_than_guessing_are_pointed_out(tmp_path, capsys, no_figures):
    """With one round no loss can rise."""
    quick = [*QUICK_TRAIN, "--method", "fedavg", "--rounds", "1"]
    assert main([*quick, "--lr", "1e4", "--out", str(tmp_path / "a")]) == 0
    assert "and that of guessing 2.3: local.lr may be too" in " ".join(capsys.readouterr().out.split())
    assert main([*quick, "--lr", "0.01", "--out", str(tmp_path / "b")]) == 0
    assert "that of guessing" not in capsys.readouterr().out


def test_the_default_folder_is_a_new_one_under_runs(tmp_path, monkeypatch, capsys, no_figures):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main([*QUICK_TRAIN, "--method", "fedavg", "--rounds", "1", "--json"]) == 0
    found = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(found) == 2
    assert all(re.fullmatch(r"digits-fedavg-\d{8}-\d{6}(-\d+)?", name) for name in found)


def test_real_data_that_are_missing_name_the_command(tmp_path, capsys):
    arguments = ["train", "--dataset", "office", "--data", "real", "--data-dir", str(tmp_path), "--out", "x"]
    assert_refused(capsys, arguments, "Office-Caltech10", "fedco2 data get office", code=3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--method", "fedbm"], ("unknown method 'fedbm'", "'fedbn'")),
        (["--dataset", "digit"], ("unknown data set 'digit'", "'digits'")),
        (["--dataset", "cifar10-noise"], ("unknown data set",)),
        (["--preset", "offise"], ("unknown preset 'offise'", "'office'")),
        (["--preset", "feature-skew"], ("unknown preset",)),
        (["--preset", "office", "--dataset", "digits"], ("preset 'office' is for office, not for digits",)),
        (["--set", "local.lrr=1"], ("unknown key 'lrr' in [local]", "'lr'")),
        (["--set", "locl.lr=1"], ("unknown section 'locl'", "'local'")),
        (["--set", "lr=1"], ("section.key=value",)),
        (["--set", "local.lr=fast"], ("local.lr is 'fast'", "a finite number")),
        (["--set", "method.intra=onlin"], ("method.intra is 'onlin'", "'online'")),
        (["--set", "method.name=[1]"], ("unknown method [1]",)),
        (["--set", "data.dataset=[1]"], ("data.dataset is [1]", "it must be text")),
        (["--skew", "diriclet"], ("data.skew is 'diriclet'", "'dirichlet'")),
        (["--skew", "dirichlet"], ("skew 'dirichlet' does not fit Digits",)),
        (["--data", "reel"], ("data.source is 'reel'", "'real'")),
        (["--clients", "7"], ("clients is 7", "5 domains")),
        (["--device", "gpu"], ("'gpu'", "cpu")),
        (["--threads", "0"], ("threads is 0",)),
        (["--rounds", "0"], ("rounds is 0",)),
        (["--participation", "0"], ("participation is 0",)),
        (["--lr", "-1"], ("lr is -1",)),
        (["--seed", "-1"], ("seed is -1",)),
        (["--config", "nowhere.toml"], ("No such file", "nowhere.toml")),
        (["--resume", "nowhere"], ("nowhere", "no run is here")),
        (["--resume", "x", "--preset", "digits"], ("--preset contradicts --resume",)),
        (["--data", "standin", "--set", "model.name=alexnet"], ("network 'alexnet' does not fit", "3 x 28 x 28")),
        (["--data", "standin", "--set", "data.percent=0.0002"], ("client mnist: 1 training samples", "batch norm")),
        (["--data", "standin", "--set", "local.last_batch=drop", "--batch-size", "800"], ("leave no batch of 800",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["", "dry"])
def test_bad_input_is_one_line_and_leaves_nothing(arguments, words, dry, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCO2_DATA", str(tmp_path / "data"))
    assert_refused(capsys, ["train", *arguments, *dry], *words)
    assert list(tmp_path.iterdir()) == []


def test_batch_norm_is_needed_and_refused_before_anything_is_written(tmp_path, capsys):
    arguments = ["--dataset", "cifar10", "--data", "standin", "--clients", "2", "--set", "model.norm=false"]
    out = ["--out", str(tmp_path / "out")]
    assert_refused(
        capsys, ["train", *arguments, "--method", "fedbn", *out], "FedBN keeps batch norm personal", "model.norm"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["data = 3", "method = 'fedbn'", "[data]\ndataset = [1]", "seed = ["])
def test_a_file_of_settings_that_is_wrong(content, tmp_path, capsys):
    (tmp_path / "my.toml").write_text(content)
    assert_refused(capsys, ["train", "--config", str(tmp_path / "my.toml"), "--dry-run"])


def test_set_beats_options_beat_the_file_beats_the_preset(tmp_path, capsys):
    path = tmp_path / "my.toml"
    path.write_text("seed = 5\n[local]\nlr = 0.3\nmomentum = 0.3\nweight_decay = 0.3\n[data]\ndataset = 'office'\n")
    options = ["--momentum", "0.4", "--weight-decay", "0.4", "--set", "local.weight_decay=0.5"]
    small = ["--set", "model.name=two-layer", "--set", "model.width=4", "--set", "data.train_size=4"]
    command = ["train", "--config", str(path), "--data", "standin", *options, *small, "--dry-run", "--json"]
    assert main(command) == 0
    config = json.loads(capsys.readouterr().out)["config"]
    assert (config["seed"], config["data"]["dataset"], config["local"]["batch_size"]) == (5, "office", 32)
    assert config["data"]["val_size"] == 50
    local = config["local"]
    assert (local["lr"], local["momentum"], local["weight_decay"]) == (0.3, 0.4, 0.5)


def test_the_written_configuration_is_the_same_run_again(finished, tmp_path, capsys, no_figures):
    out = tmp_path / "again"
    assert main(["train", "--config", str(finished / "config.toml"), "--json", "--out", str(out)]) == 0
    for name in ("config.toml", "metrics.jsonl"):
        assert (out / name).read_bytes() == (finished / name).read_bytes()


@pytest.mark.parametrize("place", ["a file", "/proc/fedco2"])
def test_a_folder_that_cannot_be_written(place, tmp_path, capsys):
    (tmp_path / "a file").write_text("mine")
    assert_refused(
        capsys, [*QUICK_TRAIN, "--out", str(tmp_path / place)], "cannot write to", "choose another folder (--out)"
    )
    assert (tmp_path / "a file").read_text() == "mine"


@pytest.mark.parametrize("mine", ["metrics.jsonl", "figures", "summary.json"])
def test_a_file_of_the_users_own_is_not_overwritten(mine, tmp_path, capsys):
    (tmp_path / mine).write_text("mine")
    assert_refused(capsys, [*QUICK_TRAIN, "--out", str(tmp_path)], f"holds {mine} already", "--out")
    assert read_contents(tmp_path) == {tmp_path / mine: b"mine"}


def test_a_loss_that_is_no_number_has_exit_code_1(tmp_path, capsys):
    out = tmp_path / "out"
    arguments = [*QUICK_TRAIN, "--method", "fedavg", "--lr", "1e38", "--out", str(out)]
    assert_refused(capsys, arguments, "client mnist, round 1: the loss is", "lower local.lr", code=1)
    assert not (out / "summary.json").exists()


def fails(client, round):
    """A client whose loss is lost in one round."""
    train_locally = ClientTrainer.train_locally

    def spoilt(trainer, data, personal, message):
        loss = train_locally(trainer, data, personal, message)
        return loss * float("nan") if (data.name, message.round + 1) == (client, round) else loss

    return spoilt


def test_a_client_that_fails_stops_the_run_or_is_left_out(tmp_path, capsys, no_figures, monkeypatch):
    out = ["--out", str(tmp_path / "out")]
    command = [*QUICK_TRAIN, "--method", "fedavg", "--rounds", "3"]
    monkeypatch.setattr(ClientTrainer, "train_locally", fails("svhn", 2))
    assert_refused(capsys, [*command, *out], "client svhn, round 2: the loss is nan", "lower local.lr", code=1)
    assert RunFolder(tmp_path / "out").read_last_saved_round() == 1
    assert main([*command, "--on-client-failure", "skip", *out]) == 0  # that may change
    shown = capsys.readouterr().out
    assert "left out: client svhn, round 2: the loss is nan" in shown
    assert "left out of a round 1 times: svhn (why: summary.json)" in shown
    (told,) = json.loads((tmp_path / "out" / "summary.json").read_text())["skipped"]
    assert (told["client"], told["round"]) == ("svhn", 2)
    assert main(["train", "--resume", out[1], "--rounds", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["skipped"] == [told]


def test_help_lists_every_option(capsys):
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    for option in (
        *("--method", "--dataset", "--data", "--skew", "--alpha", "--clients", "--participation", "--rounds"),
        *("--local-epochs", "--batch-size", "--lr", "--momentum", "--weight-decay", "--seed", "--data-seed"),
        *("--device", "--threads", "--eval-every", "--preset", "--config", "--set", "--out", "--resume"),
        *("--dry-run", "--json", "--data-dir", "--checkpoint-every", "--on-client-failure", "--aggregator"),
    ):
        assert f"{option} " in shown, option
    assert set(SETTING_FOR_OPTION) < {parameter.name for parameter in train.params}


def test_a_misspelt_option_is_guessed(capsys):
    assert main(["train", "--metod", "fedbn"]) == 2
    assert "--method" in capsys.readouterr().err


METHODS = ["singleset", "fedavg", "fedprox", "fedper", "moon", "fedrod", "copa", "fedbn", "fedco2"]
FEW = ["--set", "data.train_size=6", "--set", "data.val_size=2", "--batch-size", "3"]
CIFAR = ["--clients", "20", "--participation", "0.1", "--local-epochs", "1", "--set", "local.batch_size=512"]
MATRIX = {
    "digits": [*SMALL_MODEL, "--set", "data.percent=0.002"],
    "office": [*SMALL_MODEL, *FEW],
    "domainnet": [*SMALL_MODEL, *FEW],
    "cifar10": [*SMALL_MODEL, *CIFAR],
    "cifar100": [*SMALL_MODEL, *CIFAR],
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dataset", MATRIX)
def test_every_method_runs_on_every_data_set(dataset, method, tmp_path, capsys, no_figures):
    arguments = ["train", "--dataset", dataset, "--data", "standin", "--method", method, *MATRIX[dataset]]
    assert main([*arguments, "--rounds", "1", "--json", "--out", str(tmp_path / "out")]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["dataset"], summary["method"], summary["rounds"], summary["standin"]) == (dataset, method, 1, True)
    assert 0 <= summary["rules"]["last"]["mean"]["fused"] <= 1


@pytest.mark.parametrize(
    ("dataset", "method", "settings"),
    [
        ("digits", "fedavg", ["--set", "data.percent=0.002"]),
        ("office", "fedbn", ["--set", "data.train_size=4", "--set", "data.val_size=1"]),
        ("cifar10", "fedco2", CIFAR),
        ("cifar100", "fedavg", CIFAR),
    ],
)
def test_the_networks_of_the_paper(dataset, method, settings, tmp_path, capsys, no_figures):
    arguments = ["train", "--dataset", dataset, "--data", "standin", "--method", method, *settings, "--rounds", "1"]
    assert main([*arguments, "--json", "--out", str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_a_terminal_shows_a_bar(tmp_path):
    import pty

    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "cli", *QUICK_TRAIN, "--method", "fedavg", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, env=environment, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(timeout=30) == 0
    text = shown.decode()
    assert "\x1b[" in text
    assert "━" in text
    assert re.search(r"training.*0/2", text)
    assert "round 2/2" in text


@pytest.mark.parametrize(
    ("data", "file"),
    [
        ({}, "IMAGE"),
        ({"input_shape": [1, 8, 6], "input_type": "torch.uint8"}, "IMAGE"),
        ({"input_shape": [4], "input_type": "torch.float32", "table": {}}, "TABLE.csv"),
        ({"input_shape": [4], "input_type": "torch.float32"}, None),
    ],
)
def test_the_next_command_is_one_that_works(data, file):
    assert name_predicted(SimpleNamespace(manifest={"data": data})) == file
