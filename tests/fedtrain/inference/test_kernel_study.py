"""A real run seen through its kernels: its own names, weights, data and steps."""

import json
import shutil
from itertools import pairwise

import pytest
import torch
from quick_runs import assert_refused
from torch.nn.functional import cross_entropy

import fedtrain
from cli.main import main
from fedtrain import InputError
from fedtrain.inference.evaluate import load_run_data
from fedtrain.inference.kernel_study import (
    MOST_HELD_OUT,
    KernelStudyOptions,
    count_steps,
    draw_samples,
    find_checkpoints,
    iterate_checkpoints,
)
from fedtrain.rng import make_generator
from fedtrain.runs.experiment import Experiment
from theory import compute_federated_kernel, compute_jacobian
from theory.networks.network_study import compute_model_kernels
from theory.rng import make_data_rng

SETTINGS = {"model.width": 12, "data.percent": 0.02, "checkpoints.every": 1, "checkpoints.keep": 5}
FIGURES = ["eigenvalues", "labels", "lazy", "sharing"]
METHODS = ["singleset", "fedavg", "fedbn", "fedco2", "fedrod", "copa"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    made = {}

    def train(method, **settings):
        key = method, *settings.items()
        if key not in made:
            made[key] = fedtrain.train(
                dataset="digits", data="standin", method=method, model="two-layer", rounds=2, quiet=True,
                settings=SETTINGS | settings, out=tmp_path_factory.mktemp("runs") / "run",
            )  # fmt: skip
        return made[key]

    return train


def open_checkpoints(run, samples=2):
    """What `study_run` puts together, one thing at a time."""
    data = load_run_data(run.trained)
    trainer = Experiment(run.config, data).build_client_trainer()
    trainer = type(trainer)(
        trainer.method, trainer.make, trainer.classes, local=trainer.local, preprocessing=data.preprocessing,
        seed=trainer.seed, precision=fedtrain.federated.client.Precision(torch.float64), fast_path=False,
    )  # fmt: skip
    chosen = draw_samples(data, run.config, KernelStudyOptions(samples), trainer.device)
    paths = find_checkpoints(run.folder)
    return trainer, chosen, list(iterate_checkpoints(run.folder, paths, run.config, data, trainer, chosen))


@pytest.mark.parametrize("method", METHODS)
def test_a_methods_own_names_give_the_kernels(runs, method):
    """The other road: Jacobians of the branches by torch.func, contracted with what the method says it shares."""
    trainer, samples, checkpoints = open_checkpoints(runs(method))
    assert [one.round for one in checkpoints] == [0, 1, 2]
    for checkpoint in (checkpoints[0], checkpoints[2]):
        found = compute_model_kernels(checkpoint, samples)
        models = dict(checkpoint.networks)
        if checkpoint.fused:
            models["fused"] = checkpoint.fused
        for name, networks in models.items():
            rows = compute_jacobian(networks, samples.inputs)
            shared = {f"module.{entry}" for entry in trainer.method.shared(trainer.module)}
            expected = compute_federated_kernel(rows, found[name].owner, shared)
            assert (found[name].whole - expected).norm() <= 1e-10 * expected.norm()


@pytest.mark.parametrize("method", ["fedbn", "fedco2", "fedrod", "copa"])
def test_the_networks_say_what_the_run_says(runs, method):
    """Logits of the last checkpoint on the samples, by the run's own way to predict."""
    run = runs(method)
    _, samples, checkpoints = open_checkpoints(run)
    data = load_run_data(run.trained)
    for number, client in enumerate(data.clients):
        rows = torch.from_numpy(make_data_rng(0, number).permutation(len(client.train))[:2]).sort().values
        expected = run.trained.compute_logits(client.name, client.train.inputs[rows])
        for branch, networks in checkpoints[-1].networks.items():
            told = expected[branch] if branch in expected else expected["fused"]
            with torch.no_grad():
                assert torch.allclose(networks[number](samples.inputs[number]).float(), told, atol=1e-4)


def test_at_the_start_the_orderings_hold_and_a_tiny_round_is_predicted(runs):
    study = runs("fedco2").theory(samples=2)
    first = study.checkpoints[0]
    assert first.round == 0
    assert [one.verdict for one in first.orderings.values()] == ["holds"] * 4
    assert set(first.models) == {"online", "offline", "fused"}
    for checkpoint in study.checkpoints:
        for name in ("online", "offline"):
            assert checkpoint.models[name].tiny_round.error < 0.01
            assert checkpoint.models[name].own_round.error > checkpoint.models[name].tiny_round.error
    assert study.checkpoints[1].orderings["O1"].verdict == "fails"  # each offline model has trained alone
    assert study.reading.startswith("V_on is the kernel of the online model")


@pytest.mark.parametrize("method", ["fedbn", "fedco2"])
def test_the_real_round_is_the_one_that_the_run_made(runs, method):
    """From round 1 it leads to the checkpoint of round 2, cooperation and batch statistics included."""
    run = runs(method)
    data, (trainer, samples, checkpoints) = load_run_data(run.trained), open_checkpoints(run)
    paths = find_checkpoints(run.folder)
    again = list(iterate_checkpoints(run.folder, paths, run.config, data, trainer, samples, real_round=True))
    for before, after in pairwise(zip(again, checkpoints, strict=True)):
        for name, networks in after[1].networks.items():
            for net, x, found in zip(networks, samples.inputs, before[0].real_round.outputs[name], strict=True):
                assert torch.allclose(net(x).detach(), found, atol=1e-4)  # the run was made in float32
    client = len(data.clients[0].train)
    assert sum(len(x) for x, _ in again[1].real_round.batches[0]()) == client * run.config.local.epochs
    study = run.theory(samples=2, real_round=True)
    for model in list(study.checkpoints[1].models.values())[:1]:
        assert 0 < model.real_round.error < 10
        assert model.real_round.steps == model.own_round.steps
        assert model.to_dict()["real_round"]["error"] == model.real_round.error
    assert any("real round is the run's own" in note for note in study.notes)


@pytest.mark.parametrize(
    ("method", "words"), [("fedbn", "O1 is an identity"), ("singleset", "nothing is shared"), ("fedrod", "(fused)")]
)
def test_what_v_on_and_v_off_are_is_said(runs, method, words):
    study = runs(method).theory(samples=1, next_round=False)
    assert words in study.reading
    assert all(one.verdict == "holds" for one in study.checkpoints[-1].orderings.values())
    assert next(iter(study.checkpoints[0].models.values())).tiny_round is None


def test_the_best_share_is_asked_of_kernels_and_of_data_that_nobody_trained_on(runs):
    run = runs("fedco2")
    first, *_, last = run.theory(samples=2, next_round=False).checkpoints
    clients = load_run_data(run.trained).clients
    assert last.sharing.split == "test"
    assert set(last.sharing.left_out) == {client.name for client in clients}
    assert set(first.sharing.held_out.values()) == {None}  # both models are one
    for client in clients:  # the other road: the run's own way to predict, on a grid
        chosen = torch.randperm(len(client.test), generator=make_generator(run.config.seed, "held out", client.name))
        chosen = chosen[:MOST_HELD_OUT]
        told, labels = run.trained.compute_logits(client.name, client.test.inputs[chosen]), client.test.labels[chosen]
        grid = torch.linspace(0, 1, 201)
        losses = [cross_entropy(2 * (w * told["online"] + (1 - w) * told["offline"]), labels) for w in grid]
        assert last.sharing.held_out[client.name] == pytest.approx(grid[torch.stack(losses).argmin()].item(), abs=0.01)
    assert runs("singleset").theory(samples=1, next_round=False).checkpoints[-1].sharing is None
    assert runs("fedbn").theory(samples=1, next_round=False).checkpoints[-1].sharing.held_out is None


def test_probabilities_are_fused_as_the_method_fuses_them(runs):
    study = runs("fedco2", **{"method.fusion": "probabilities"}).theory(samples=1, next_round=False)
    models = study.checkpoints[-1].models
    total = models["online"].spectrum.lambda_max + models["offline"].spectrum.lambda_max
    assert models["fused"].spectrum.lambda_max < 0.9 * total  # not the kernel of a sum of logits


def test_steps_are_those_of_the_run(runs):
    run = runs("fedbn")
    trainer, _, _ = open_checkpoints(run)
    size = len(load_run_data(run.trained).clients[0].train)
    assert count_steps(run.config, size, trainer) == run.config.local.epochs * -(-size // run.config.local.batch_size)


def test_the_command_writes_table_page_figures_and_json(runs, tmp_path, capsys):
    run, out = runs("fedco2"), tmp_path / "out"
    arguments = ["theory", "--run", str(run.path), "--samples", "1", "--out", str(out), "--threads", "1"]
    assert main(arguments) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Fed-CO2 on Digits (stand-in)" in said
    assert "✓ holds" in said
    assert "…" not in said  # it fits 80 columns
    assert "Best share w of the online model, round 2" in said
    assert {path.name for path in out.rglob("*.png")} == {f"{name}.png" for name in FIGURES}
    page = (out / "report.html").read_text()
    assert "The kernels of a run" in page
    assert "How much to share" in page
    assert "://" not in page  # and no "http" by chance within a figure
    told = json.loads((out / "report.json").read_text())
    assert told["method"] == "fedco2"
    assert [one["round"] for one in told["checkpoints"]] == [0, 1, 2]
    assert main([*arguments[:-4], "--out", str(tmp_path / "other"), "--json", "--dtype", "float32"]) == 0
    assert json.loads(capsys.readouterr().out)["dtype"] == "float32"


# ---- bad input is said before the work


@pytest.fixture
def copied(runs, tmp_path):
    shutil.copytree(runs("fedbn").path, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_run_without_checkpoints_is_refused(copied, capsys):
    shutil.rmtree(copied / "checkpoints")
    assert_refused(capsys, ["theory", "--run", str(copied)], "without its weights")
    (copied / "summary.json").unlink()
    assert_refused(capsys, ["theory", "--run", str(copied)], "no checkpoint is here yet", "checkpoints.every")


def test_no_run_and_other_data_are_refused(copied, tmp_path, capsys):
    assert_refused(capsys, ["theory", "--run", str(tmp_path / "none")], "no run is here")
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["data"]["sha256"] = "0" * 64
    (copied / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="trained on other data"):
        fedtrain.load_run(copied).theory()


def test_too_much_memory_is_refused_before_the_work(runs, monkeypatch):
    monkeypatch.setattr("theory.kernels.layerwise.ntk.pass_chunk", lambda *args: pytest.fail("it has started"))
    with pytest.raises(InputError, match=r"needs about .* lower samples") as told:
        runs("fedbn").theory(samples=3, memory=1000)
    assert told.value.options == ("samples", "dtype")


def test_options_of_two_layer_networks_are_refused(runs, capsys):
    run = str(runs("fedbn").path)
    assert_refused(capsys, ["theory", "--run", run, "--width", "8"], "--width is for two-layer networks")
    assert_refused(capsys, ["theory", "--data-dir", run], "--data-dir is where the data of --run are")
    assert_refused(capsys, ["theory", "--run", run, "--samples", "0"], "--samples is 0")


def test_an_occupied_folder_is_refused_before_the_work(runs, tmp_path):
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(InputError, match="not overwritten"):
        runs("fedbn").theory(out=tmp_path)
