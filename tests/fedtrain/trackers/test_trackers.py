"""Trackers copy a run: TensorBoard's files are read back, the others are heard by stand-ins or, if installed, read."""

from __future__ import annotations

import struct
import sys
from types import SimpleNamespace

import pytest

import fedtrain
from fedtrain.config.local import LocalSettings
from fedtrain.config.schema import Config, EvaluationSettings, ServerSettings
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.registry import TRACKER_CLASSES
from fedtrain.runs.callbacks import OnRoundEnd
from fedtrain.runs.loop import run_rounds
from fedtrain.trackers import build_tracker, build_trackers
from fedtrain.trackers.mlflow import MLflow
from fedtrain.trackers.tensorboard import TensorBoard
from fedtrain.trackers.wandb import Wandb
from theory.errors import InputError

pytestmark = pytest.mark.usefixtures("no_figures")
CONFIG = Config(
    local=LocalSettings(lr=0.05, batch_size=8),
    method=FedCO2(),
    server=ServerSettings(rounds=3),
    evaluation=EvaluationSettings(every=2),
)
COSTS = {"all/round/bytes/up", "all/round/bytes/down", "all/round/time/seconds"}


def stop_after(round):
    def watch(progress):
        if progress.round == round:
            raise KeyboardInterrupt

    return OnRoundEnd(watch)


def train_in_two_parts(begin, trackers):
    """Stopped within its second round, after that was shown, and resumed; the folder."""
    work, folder = begin(CONFIG)
    with pytest.raises(KeyboardInterrupt):
        run_rounds(work, folder, [trackers[0], stop_after(2)])
    run_rounds(work, folder, [trackers[1]])
    return folder


def expected_numbers(folder):
    """By name and round, from the run folder."""
    return {
        (f"{row['client']}/{row['split']}/{row['branch']}/{metric}", row["round"]): row[metric]
        for row in folder.load_rows()
        for metric in ("accuracy", "loss")
    }


def test_further_scores_are_copied_unless_the_labels_do_not_define_them():
    told = {}
    tracker = TensorBoard()
    tracker.log = lambda numbers, round: told.update(numbers)
    row = {"round": 1, "split": "test", "branch": "fused", "accuracy": 0.5, "loss": 1.0, "n": 4}
    metrics = {"a": {"auroc": 0.75, "f1": 0.25}, "b": {"auroc": None, "f1": 0.75}}
    tracker.on_evaluation(1, [{**row, "client": name, "metrics": scores} for name, scores in metrics.items()])
    found = {name: value for name, value in told.items() if name.endswith(("auroc", "f1"))}
    assert found == {
        "a/test/fused/auroc": 0.75,
        "mean/test/fused/auroc": 0.75,
        "a/test/fused/f1": 0.25,
        "b/test/fused/f1": 0.75,
        "mean/test/fused/f1": 0.5,
    }


def assert_complete(found, folder):
    """Every row of the folder, the mean over clients, local losses and costs of every round, and nothing else."""
    expected = expected_numbers(folder)
    assert {key: found[key] for key in expected} == pytest.approx(expected)
    clients = {name.split("/")[0] for name, _ in expected}
    for branch in ("fused", "online", "offline"):
        each = [expected[f"{client}/test/{branch}/accuracy", 3] for client in clients]
        assert found[f"mean/test/{branch}/accuracy", 3] == pytest.approx(sum(each) / len(each))
    others = {key for key in found if key not in expected and not key[0].startswith("mean/")}
    assert others == {(name, n) for name in COSTS | {f"{c}/train/local/loss" for c in clients} for n in (1, 2, 3)}


# ---- TensorBoard


def read_events(folder):
    """The events of all files, in their order: length, checksum, event, checksum, and so on."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    events = []
    for path in sorted((folder.path / "tensorboard").iterdir()):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            events.append(event_pb2.Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return events


def test_tensorboard_has_every_number_and_a_resumed_run_goes_on(begin):
    pytest.importorskip("tensorboardX")
    folder = train_in_two_parts(begin, [TensorBoard(), TensorBoard()])
    found, texts = {}, []
    for event in read_events(folder):
        if event.session_log.status == event.session_log.START and event.step:  # forget what was not completed
            found = {key: value for key, value in found.items() if key[1] < event.step}
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found[value.tag, event.step] = value.simple_value
            else:
                texts.append(value.tensor.string_val[0].decode())
    assert_complete(found, folder)
    assert len(texts) == 2
    assert "method.name = fedco2" in texts[0]


def test_train_takes_trackers_by_name(tmp_path):
    pytest.importorskip("tensorboardX")
    small = {"dataset": "digits", "data": "standin", "model": "two-layer", "method": "fedavg", "rounds": 1}
    settings = {"model.width": 4, "data.train_size": 4, "data.percent": "none", "local.batch_size": 4}
    run = fedtrain.train(**small, settings=settings, track="tensorboard", out=tmp_path / "run", quiet=True)
    assert list((run.path / "tensorboard").glob("events.*"))


# ---- W&B and MLflow, as far as they are called


@pytest.fixture
def heard_by_wandb(monkeypatch):
    """A stand-in that notes what it is told."""
    heard = SimpleNamespace(inits=[], numbers={}, codes=[])

    def init(**given):
        heard.inits.append(given)

        def log(numbers):
            heard.numbers |= {(name, numbers["round"]): v for name, v in numbers.items() if name != "round"}

        def finish(exit_code):
            heard.codes.append(exit_code)

        return SimpleNamespace(log=log, finish=finish, define_metric=lambda *args, **more: None)

    fake = SimpleNamespace(init=init, Settings=lambda **given: given)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return heard


def test_wandb_is_offline_and_both_parts_of_a_run_are_one(begin, heard_by_wandb, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    folder = train_in_two_parts(begin, [Wandb(), Wandb()])
    assert_complete(heard_by_wandb.numbers, folder)
    first, second = heard_by_wandb.inits
    assert first["mode"] == second["mode"] == "offline"
    assert first["id"] == second["id"]
    assert first["dir"] == str(folder.path.absolute())
    assert first["config"]["method.name"] == "fedco2"
    assert heard_by_wandb.codes == [1, 0]


@pytest.fixture
def heard_by_mlflow(monkeypatch):
    """A stand-in that notes what it is told."""
    heard = SimpleNamespace(places=[], runs=[], numbers={}, params={}, ends=[])

    class Client:
        def __init__(self, tracking_uri):
            heard.places.append(tracking_uri)

        def get_experiment_by_name(self, name):
            return None

        def create_experiment(self, name):
            return "7"

        def create_run(self, experiment, run_name):
            heard.runs.append(experiment)
            return SimpleNamespace(info=SimpleNamespace(run_id="abc"))

        def update_run(self, run_id, status):
            heard.runs.append((run_id, status))

        def log_param(self, run_id, key, value):
            heard.params[key] = value

        def log_batch(self, run_id, metrics):
            heard.numbers |= {(key, step): value for key, value, _, step in metrics}

        def set_terminated(self, run_id, status):
            heard.ends.append((run_id, status))

    fake = SimpleNamespace(MlflowClient=Client, entities=SimpleNamespace(Metric=lambda *values: values))
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    return heard


def test_mlflow_writes_files_of_its_own_and_a_resumed_run_is_the_same(begin, heard_by_mlflow):
    folder = train_in_two_parts(begin, [MLflow(), MLflow()])
    assert_complete(heard_by_mlflow.numbers, folder)
    assert heard_by_mlflow.places == [(folder.path.absolute() / "mlruns").as_uri()] * 2
    assert heard_by_mlflow.runs == ["7", ("abc", "RUNNING")]
    assert heard_by_mlflow.params["method.name"] == "fedco2"
    assert heard_by_mlflow.ends == [("abc", "KILLED"), ("abc", "FINISHED")]


# ---- both for real, where they are installed


def test_mlflow_for_real(begin):
    pytest.importorskip("mlflow")
    folder = train_in_two_parts(begin, [MLflow(), MLflow()])
    client = MLflow().load_package().MlflowClient(tracking_uri=(folder.path.absolute() / "mlruns").as_uri())
    run_id = (folder.path / "mlruns" / "fedco2-run-id").read_text()
    assert client.get_run(run_id).info.status == "FINISHED"
    name = "a/test/fused/accuracy"
    history = {one.step: one.value for one in client.get_metric_history(run_id, name)}
    assert history == {n: v for (key, n), v in expected_numbers(folder).items() if key == name}


def test_wandb_for_real(begin):
    pytest.importorskip("wandb")
    folder = train_in_two_parts(begin, [Wandb(), Wandb()])
    assert len(list((folder.path / "wandb").glob("offline-run-*"))) == 2


# ---- what is not there


@pytest.mark.parametrize("name", TRACKER_CLASSES)
def test_a_package_that_is_missing_is_named_with_its_extra(name, monkeypatch):
    package = {"tensorboard": "tensorboardX"}.get(name, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        InputError, match=rf"{package} is not installed; install it with pip install 'fedco2\[{name}\]'"
    ):
        build_tracker(name)


def test_an_unknown_tracker_is_guessed():
    with pytest.raises(InputError, match="unknown tracker 'tensorbord'; did you mean 'tensorboard'"):
        build_trackers(["tensorbord"])


@pytest.mark.parametrize("kind", [TensorBoard, Wandb, MLflow])
def test_a_run_that_stops_before_it_began_is_no_trouble(kind):
    kind().on_run_stop(KeyboardInterrupt())
