"""``fedco2 flower node``, ``up --sites`` and ``run --dataset sites``: what they start, and what they refuse."""

from __future__ import annotations

import tomllib

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-all")

from flwr.common.config import parse_config_args

from cli.flower import node_process
from cli.main import main
from fedtrain.flower.deployment.local_deployment import Deployment


@pytest.fixture
def node(tmp_path, monkeypatch):
    """The command of a site's node with these words: what it becomes, or its exit code."""
    became = []
    monkeypatch.setattr(node_process.os, "execve", lambda path, words, environment: became.append((words, environment)))
    (tmp_path / "data").mkdir()

    def made(*words, data="data", superlink="127.0.0.1:8000"):
        places = ["--data", str(tmp_path / data), "--state", str(tmp_path / "state"), "--superlink", superlink]
        code = main(["flower", "node", "--name", "basel", *places, *words])
        return code or became.pop()

    return made


def test_a_site_becomes_a_node(node, tmp_path):
    words, environment = node("--threads", "3")
    assert words[words.index("--superlink") + 1] == "127.0.0.1:8000"
    assert "--insecure" in words
    assert parse_config_args([words[words.index("--node-config") + 1]]) == {
        "site": "basel",
        "data-path": str(tmp_path / "data"),
        "state-dir": str(tmp_path / "state"),
    }
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert environment["OMP_NUM_THREADS"] == "3"
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"


def test_encrypted_with_a_key(node, tmp_path):
    for name in ("ca.pem", "basel.key"):
        (tmp_path / name).touch()
    files = ["--ca", str(tmp_path / "ca.pem"), "--key", str(tmp_path / "basel.key")]
    words, _ = node(*files, superlink="fl.example.org:8000")
    assert "--insecure" not in words
    assert words[words.index("--root-certificates") + 1] == files[1]
    assert words[words.index("--auth-supernode-private-key") + 1] == files[3]


@pytest.mark.parametrize(
    ("words", "options", "said"),
    [
        ([], {"superlink": "fl.example.org:8000"}, "nothing would be encrypted; name the server's certificate (--ca)"),
        ([], {"superlink": "10.0.0.1"}, "'10.0.0.1' is no address; give HOST:PORT (--superlink)"),
        ([], {"superlink": "host:99999"}, "is no address"),
        ([], {"data": "nowhere"}, "nowhere: no such file or folder; mend the path (--data)"),
        (["--ca", "/nowhere/ca.pem"], {}, "/nowhere/ca.pem: no such file or folder; mend the path (--ca)"),
        (["--key", "KEY"], {}, "a key is used with encryption only"),
        (["--ca", "KEY", "--insecure"], {}, "leave one of them out (--ca, --insecure)"),
    ],
)
def test_what_a_site_is_told(words, options, said, node, tmp_path, capsys):
    (tmp_path / "key").touch()
    assert node(*[str(tmp_path / "key") if word == "KEY" else word for word in words], **options) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "state").exists()


def test_in_the_clear_only_if_that_is_said(node):
    words, _ = node("--insecure", superlink="10.0.0.1:8000")
    assert words[words.index("--superlink") + 1] == "10.0.0.1:8000"
    assert node_process.is_this_machine("localhost")
    assert node_process.is_this_machine("::1")


def test_up_has_a_node_for_each_site(tmp_path, monkeypatch, capsys):
    made = []
    monkeypatch.setattr(Deployment, "up", lambda self, clients, **options: made.append((clients, options["sites"])))
    for name in ("basel.csv", "lund.csv"):
        (tmp_path / "sites" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "sites" / name).touch()
    words = ["flower", "up", "--dir", str(tmp_path / "dep")]
    assert main([*words, "--sites", str(tmp_path / "sites")]) == 0
    assert made == [(2, [tmp_path / "sites" / "basel.csv", tmp_path / "sites" / "lund.csv"])]
    assert main(words) == 2
    assert main([*words, "--clients", "2", "--sites", str(tmp_path / "sites")]) == 2
    assert main([*words, "--hosts", "example.org", "--sites", str(tmp_path / "sites")]) == 2
    assert "a site starts its own node" in " ".join(capsys.readouterr().err.split())


def test_a_run_waits_for_so_many_sites(tmp_path, capsys):
    words = ["flower", "run", "--dataset", "sites", "--target", "ill", "--out", str(tmp_path / "run")]
    app = ["--write-app", str(tmp_path / "app")]
    assert main([*words, *app]) == 2
    assert "does not know how many sites there are; say how many (--clients)" in capsys.readouterr().err
    assert main([*words, *app, "--clients", "3"]) == 0
    told = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    settings = tomllib.loads(told["config"])["data"]
    assert (told["clients"], settings["dataset"], settings["target"]) == (3, "sites", "ill")
