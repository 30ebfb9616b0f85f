"""Sites with data of their own: the server learns who they are, and refuses those that do not fit together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-all")

import scripted_grid
import small_experiments
from flwr.app import Context, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedtrain.config.presets import resolve_preset
from fedtrain.errors import TrainingError
from fedtrain.flower import client_app, client_manager, server_app
from fedtrain.flower.client_session import build_node_federation
from fedtrain.flower.records import build_record, parse_record
from fedtrain.flower.server_app import run_server
from fedtrain.flower.server_plan import ServerPlan
from fedtrain.flower.site_keys import DATA_KEY, NAMED_FILES_KEY, SITE_KEY, get_site_name, list_sites
from fedtrain.flower.sites import check_same_schema, hash_schema
from fedtrain.runs.client_state import ClientStateStore, make_folder_name
from fedtrain.runs.experiment import build_experiment, plan_experiment
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.loop import run_rounds
from theory.errors import InputError

NAMES = ("basel", "lund", "zurich")
SETTINGS = {
    "data": {"dataset": "sites"},
    "model": {"name": "two-layer", "width": 8},
    "local": {"lr": 0.05, "batch_size": 8},
    "server": {"rounds": 2},
    "evaluation": {"every": 1},
    "method": {"name": "fedco2"},
    "machine": {"threads": 1, "device": "cpu"},
}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No pauses, no figures; messages may be made outside of an app."""
    for name in ("POLL_INTERVAL", "DISCOVERY_INTERVAL", "GRACE_PERIOD"):
        monkeypatch.setattr(client_manager, name, 0.0)
    monkeypatch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    client_app.open_session.cache_clear()


def draw(number, classes=("ill", "well")):
    """Samples of a site, some for training and some for testing."""
    rng = np.random.default_rng(number)
    y = np.arange(24) % len(classes)
    X = rng.normal(size=(24, 5)).astype(np.float32) + y[:, None]
    return {"X": X, "y": y, "split": np.array(["train"] * 16 + ["test"] * 8)}, np.array(classes)


@pytest.fixture
def sites(tmp_path):
    folder = tmp_path / "sites"
    folder.mkdir()
    for number, name in enumerate(NAMES):
        arrays, classes = draw(number)
        np.savez(folder / f"{name}.npz", **arrays, classes=classes)
    return folder


class SiteGrid(scripted_grid.Grid):
    """Nodes of sites, which come in another order than that of their names."""

    def __init__(self, root, sites, order=(2, 0, 1)):
        super().__init__(root)
        self.order, self.paths = order, list_sites(sites)
        self.nodes = dict(list(self.nodes.items())[: len(order)])
        self.memory = {number: self.memory[number] for number in self.nodes}
        self.listed = set(self.nodes)

    def settings_of(self, place):
        path = self.paths[self.order[place]]
        return {SITE_KEY: get_site_name(path), DATA_KEY: str(path)}


def run(grid, root, told=None, **changes):
    config = resolve_preset("found", {**SETTINGS, **changes})
    plan = ServerPlan(config, RunFolder(root / "run"), len(NAMES), len(NAMES), 60.0, "test")
    run_server(grid, plan, tell=(lambda line: None) if told is None else told.append)
    return plan.folder


def test_sites_train_as_the_clients_of_one_data_set(tmp_path, sites):
    """The same bits as in one process that holds the data of all; the server has none of them."""
    parts = [draw(number) for number in range(len(NAMES))]
    arrays = {key: np.concatenate([part[key] for part, _ in parts]) for key in ("X", "y", "split")}
    owner = np.repeat(np.arange(len(NAMES)), 24)
    np.savez(tmp_path / "all.npz", **arrays, owner=owner, clients=np.array(NAMES), classes=parts[0][1])
    work = build_experiment(*plan_experiment("found", {**SETTINGS, "data": {"dataset": str(tmp_path / "all.npz")}}))
    alone = RunFolder(tmp_path / "alone")
    alone.begin(work.config, {})
    run_rounds(work, alone)

    grid = SiteGrid(tmp_path, sites)
    folder = run(grid, tmp_path)
    make = work.build_client_trainer().initial_client_state

    def own(state, name):
        where = tmp_path / f"node {grid.order.index(NAMES.index(name))}" / make_folder_name(str(folder.path))
        return state.load_client_state(name, ClientStateStore(where), make)

    found = small_experiments.agreeing(folder, NAMES, own)
    assert small_experiments.different(small_experiments.everything(work, alone), found) == []
    manifest = folder.read_json("manifest.json")
    assert [client["name"] for client in manifest["data"]["clients"]] == list(NAMES)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda arrays, classes: (arrays, np.array(["ill", "healthy"])), "basel has the class 'well' and lund has not"),
        (lambda arrays, classes: ({**arrays, "X": arrays["X"][:, :4]}, classes), "their input_shape is [5] at basel"),
    ],
    ids=["classes", "columns"],
)  # fmt: skip
def test_sites_that_do_not_fit_are_refused_and_both_are_named(spoil, words, tmp_path, sites):
    arrays, classes = spoil(*draw(1))
    np.savez(sites / "lund.npz", **arrays, classes=classes)
    with pytest.raises(InputError, match="sites basel and lund do not fit together") as caught:
        run(SiteGrid(tmp_path, sites), tmp_path)
    assert words in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_the_log_of_a_run_says_why_it_has_ended(tmp_path, monkeypatch):
    config = resolve_preset("found", SETTINGS)
    plan = ServerPlan(config, RunFolder(tmp_path / "run"), 3, 3, 60.0, "test")
    monkeypatch.setattr(server_app, "parse_plan", lambda run_config: (plan, tmp_path / "log"))
    with pytest.raises(InputError):
        server_app.main(scripted_grid.Grid(tmp_path), Context(1, 1, {}, RecordDict(), {}))
    assert "the run has ended: node 100: this node has no data of its own" in (tmp_path / "log").read_text()


def test_columns_of_tables_are_compared_by_name():
    def table(*columns):
        return {"clients": [{"name": columns[0]["name"]}], "classes": ["a", "b"], "table": {"columns": list(columns)}}

    one, other = table({"name": "age"}, {"name": "pain"}), table({"name": "age"})
    with pytest.raises(InputError, match="the column 'pain' and"):
        check_same_schema([one, other])
    categories = [table({"name": "age", "categories": [letter]}) for letter in "ab"]
    with pytest.raises(InputError, match="the column 'age=a' and"):
        check_same_schema(categories)
    check_same_schema([one, dict(one)])
    assert hash_schema(one) == hash_schema({**one, "sha256": "other data"}) != hash_schema(other)


def test_a_node_says_who_it_is_and_what_its_data_are_like(tmp_path, sites):
    grid, seen = SiteGrid(tmp_path, sites), []
    grid.spoilt = lambda place, request, records: seen.append(parse_record(records)[0]) or records
    run(grid, tmp_path)
    said = {note["client"]: note for note in seen if "schema" in note}
    assert sorted(said) == sorted(NAMES)
    assert len({note["schema"] for note in said.values()}) == 1
    assert said["basel"]["data"]["clients"][0]["train"] == [8, 8]


def test_a_site_that_returns_goes_on_and_one_with_other_data_does_not(tmp_path, sites):
    """Under its old name, with another number."""
    grid, told = SiteGrid(tmp_path, sites), []
    left = []

    def leave(grid, place, request):
        if request.metadata.message_type == "train" and place == 0 and not left:
            left.append(grid.kill(0, missed=True))
            grid.start(0)
            raise scripted_grid.Dead

    grid.tamper = leave
    assert run(grid, tmp_path, told).is_finished
    assert left

    other, told = SiteGrid(tmp_path / "other", sites), []
    gone = []

    def swap(grid, place, request):
        if request.metadata.message_type == "train" and place == 0 and not gone:
            gone.append(grid.kill(0, missed=True))
            arrays, classes = draw(9)
            np.savez(sites / "zurich.npz", **arrays, classes=classes)
            client_app.open_session.cache_clear()
            grid.start(0)
            raise scripted_grid.Dead

    other.tamper = swap
    config = resolve_preset("found", SETTINGS)
    plan = ServerPlan(config, RunFolder(tmp_path / "second"), 3, 2, 0.5, "test")
    config = replace(config, server=replace(config.server, on_client_failure="skip"))
    run_server(other, replace(plan, config=config), tell=told.append)
    assert any("has other data than zurich had before" in line for line in told)


def test_a_site_that_comes_late_is_not_in_this_run(tmp_path, sites):
    arrays, classes = draw(5)
    np.savez(sites / "abroad.npz", **arrays, classes=classes)
    grid, told = SiteGrid(tmp_path, sites, order=(1, 2, 3, 0)), []
    late = sorted(grid.nodes)[-1]
    grid.listed.discard(late)

    def come(grid, place, request):
        if request.metadata.message_type == "train":
            grid.listed.add(late)

    grid.tamper = come
    folder = run(grid, tmp_path, told)
    assert "client abroad came when the run had begun; it can take part in the next one" in told
    assert [one["name"] for one in folder.read_json("manifest.json")["data"]["clients"]] == list(NAMES)


def test_nodes_and_runs_that_are_not_of_sites(tmp_path, sites):
    plain = scripted_grid.Grid(tmp_path)
    with pytest.raises(InputError, match="this node has no data of its own; start it with fedco2 flower node"):
        run(plain, tmp_path)
    config = small_experiments.config("fedbn all")
    plan = ServerPlan(config, RunFolder(tmp_path / "run"), 3, 3, 60.0, "test")
    with pytest.raises(InputError, match="the run is on 'digits' and this node has only the data of its site"):
        run_server(SiteGrid(tmp_path, sites), plan)


def test_a_node_reads_no_file_because_a_message_names_it(sites):
    """Unless server and node are one user's on one machine."""
    path = str(sites / "lund.npz")
    settings = resolve_preset("found", {**SETTINGS, "data": {"dataset": path, "skew": "iid", "clients": 1}}).data
    with pytest.raises(InputError, match="reads no file because a message names it"):
        build_node_federation(settings, {}, 0)
    assert len(build_node_federation(settings, {NAMED_FILES_KEY: 1}, 0).clients) == 1


def test_a_site_with_several_clients_is_refused(tmp_path, sites):
    arrays, classes = draw(1)
    np.savez(sites / "lund.npz", **arrays, classes=classes, owner=np.arange(24) % 2)
    with pytest.raises((InputError, TrainingError), match=r"lund\.npz: it holds 2 clients"):
        run(SiteGrid(tmp_path, sites), tmp_path)


def test_a_folder_of_sites(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        list_sites(tmp_path / "nowhere")
    with pytest.raises(InputError, match="it is empty"):
        list_sites(tmp_path)
    (tmp_path / "Lund").mkdir()
    (tmp_path / "basel.csv").touch()
    (tmp_path / ".hidden").touch()
    assert [get_site_name(path) for path in list_sites(tmp_path)] == ["Lund", "basel"]
    (tmp_path / "lund.csv").touch()
    with pytest.raises(InputError, match="are one name for a site"):
        list_sites(tmp_path)


def test_a_reply_that_says_too_little_is_no_contradiction():
    """Nodes of other versions say less."""
    assert client_manager.get_fingerprint({"data": {}}) is None
    assert build_record({}, {})
