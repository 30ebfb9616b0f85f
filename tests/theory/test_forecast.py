"""Kernel regression against literal refits and against networks that are really trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from theory.errors import InputError
from theory.forecast import (
    FEDBN,
    FEDCO2,
    ONE_KERNEL,
    SINGLESET,
    Forecast,
    assign_folds,
    compute_method_kernels,
    forecast_methods,
    predict_held_out,
    regress,
)
from theory.kernels.closed_form import draw_initial_weights
from theory.problem import Problem, draw_synthetic_problem
from theory.training.descent import compute_outputs, descend


def build_taught_problem(agreement, clients=4, samples=30, dim=6, seed=0, scale=1.0):
    """Clients whose teachers are the same for an ``agreement`` of 1, and have nothing in common for 0."""
    base = draw_synthetic_problem(clients, samples, dim, heterogeneity=0.5, seed=seed)
    rng = np.random.default_rng(seed)
    common, own = rng.standard_normal(dim), rng.standard_normal((clients, dim))
    teachers = torch.from_numpy(agreement**0.5 * common + (1 - agreement) ** 0.5 * own)
    y = (base.x * teachers[base.owner]).sum(1)
    return Problem(base.x, scale * y, base.owner, base.S)


def split_held_out(problem, held):
    """The problem of the samples that are not held out, and that of those that are."""
    return [Problem(problem.x[rows], problem.y[rows], problem.owner[rows], problem.S) for rows in (~held, held)]


@pytest.mark.parametrize("ridge", [1e-3, 0.3])
def test_a_fold_is_predicted_as_if_it_had_never_been_there(ridge):
    problem = build_taught_problem(0.5, clients=2, samples=6)
    fold = assign_folds(problem.owner, torch.zeros(12, dtype=torch.int64))
    K, y = compute_method_kernels(problem, 256, 0.5)[1], problem.y[:, None]
    predicted = predict_held_out(K, y, fold, ridge).numpy()
    for p in range(len(y)):
        rest = (fold != fold[p]).numpy()
        among = K.numpy()[np.ix_(rest, rest)] + ridge * np.eye(rest.sum())
        literal = K.numpy()[p, rest] @ np.linalg.solve(among, y.numpy()[rest])
        assert predicted[p] == pytest.approx(literal, rel=1e-8)
    for unseen in (fold == one for one in range(4)):  # whatever its targets are, they say nothing of it
        other = predict_held_out(K, torch.where(unseen[:, None], 1e6, y), fold, ridge).numpy()
        assert other[unseen] == pytest.approx(predicted[unseen])


@settings(max_examples=30)
@given(seed=st.integers(0, 99), sizes=st.lists(st.integers(4, 30), min_size=1, max_size=4), classes=st.integers(1, 4))
def test_every_class_of_every_client_is_spread_over_the_folds(seed, sizes, classes):
    owner = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    labels = torch.from_numpy(np.random.default_rng(seed).integers(classes, size=len(owner)))
    fold = assign_folds(owner, labels, seed)
    for i in range(len(sizes)):
        for k in range(classes):
            counts = torch.bincount(fold[(owner == i) & (labels == k)], minlength=4)
            assert counts.max() - counts.min() <= 1
        counts = torch.bincount(fold[owner == i], minlength=4)
        assert counts.max() - counts.min() <= 1
    assert torch.equal(fold, assign_folds(owner, labels, seed))
    assert len(owner) < 12 or not torch.equal(fold, assign_folds(owner, labels, seed + 1))


def test_a_lone_client_of_two_classes_that_cannot_be_told_apart_is_right_half_the_time():
    """Were one sample left out at a time, its class would be the rarer one of the rest, and never be guessed."""
    problem = draw_synthetic_problem(2, 200, 4)
    labels = torch.arange(400) % 2
    assert forecast_methods(problem, labels, width=256).compute_client_scores(SINGLESET) == pytest.approx(
        [0.5, 0.5], abs=0.12
    )


def test_wide_networks_that_are_really_trained_predict_what_their_kernels_foretell():
    width, alpha, whole = 4096, 0.5, build_taught_problem(0.5, clients=3, samples=8, dim=4)
    held = torch.arange(len(whole.y)) % 4 == 0
    seen, unseen = split_held_out(whole, held)
    online = draw_initial_weights(seen, width, alpha)
    predicted = {}
    for name, K in zip(("offline", "online"), compute_method_kernels(whole, width, alpha), strict=False):
        start = compute_outputs(whole, online)[0]
        rows = K[held][:, ~held] @ torch.linalg.solve(K[~held][:, ~held], (whole.y - start)[~held])
        predicted[name] = start[held] + rows
    trained = descend(seen, online, online.copy_per_client(), "federated", 4000, 0.1, snapshot_count=2)
    _, on, off = trained.snapshots[-1]
    assert (trained.online[-1] - seen.y).norm() < 0.02 * seen.y.norm()  # trained to its end
    scale = unseen.y.norm()
    for name, weights in (("online", on), ("offline", off)):
        assert (compute_outputs(unseen, weights)[0] - predicted[name]).norm() < 0.05 * scale, name
    assert (predicted["online"] - predicted["offline"]).norm() > 0.2 * scale  # else the test could not tell them apart


def test_federation_helps_clients_that_agree_and_hurts_those_that_do_not():
    agreeing, strangers = forecast_methods(build_taught_problem(1.0)), forecast_methods(build_taught_problem(0.0))
    assert all(gain.mean > 0 for gain in agreeing.compute_client_gains())
    assert agreeing.compute_mean_gain(SINGLESET, FEDBN).effect == "helps"
    assert strangers.compute_mean_gain(SINGLESET, FEDBN).effect == "hurts"
    for found in (agreeing, strangers):  # it never is the worst of the three
        assert found.compute_mean_score(FEDCO2) > min(
            found.compute_mean_score(SINGLESET), found.compute_mean_score(FEDBN)
        )


def test_a_client_apart_is_the_one_that_is_hurt():
    problem = build_taught_problem(1.0, samples=40)
    y = torch.where(problem.owner == 2, -problem.y, problem.y)
    found = forecast_methods(Problem(problem.x, y, problem.owner, problem.S))
    assert min(range(4), key=lambda i: found.compute_client_gains()[i].mean) == 2
    assert found.compute_client_gains()[2].effect == "hurts"


def test_classes_are_counted_right_or_wrong():
    problem = build_taught_problem(1.0, samples=40)
    labels = (problem.y > 0).long()
    found = forecast_methods(problem, labels)
    assert set(torch.cat(list(found.scores.values())).tolist()) == {0.0, 1.0}
    assert found.compute_mean_score(FEDBN) > 0.75
    random_labels = forecast_methods(problem, torch.from_numpy(np.random.default_rng(0).integers(2, size=len(labels))))
    assert abs(random_labels.compute_mean_score(FEDBN) - 0.5) < 0.15


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 99), agreement=st.floats(0, 1), scale=st.floats(0.01, 100))
def test_units_of_the_targets_do_not_matter(seed, agreement, scale):
    one, other = (
        forecast_methods(build_taught_problem(agreement, 3, 8, 4, seed, size), width=128) for size in (1.0, scale)
    )
    for name in (SINGLESET, FEDBN, FEDCO2, ONE_KERNEL):
        assert other.compute_client_scores(name) == pytest.approx(one.compute_client_scores(name), rel=1e-6, abs=1e-9)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 99), changed=st.integers(0, 2))
def test_the_lone_models_of_the_others_know_nothing_of_a_client(seed, changed):
    problem = build_taught_problem(0.5, 3, 8, 4, seed)
    y = torch.where(problem.owner == changed, problem.y.flip(0), problem.y)
    single, fold = compute_method_kernels(problem, 128, 0.5)[0], torch.arange(24) % 4
    after, before = (predict_held_out(single, one[:, None], fold, 0.1) for one in (y, problem.y))
    kept = problem.owner != changed
    assert torch.allclose(after[kept], before[kept], atol=1e-10)
    parts = regress(single, y[:, None], fold, problem.blocks).predicted  # client by client, and in one
    assert torch.allclose(parts, regress(single, y[:, None], fold, [slice(0, 24)]).predicted, atol=1e-8)


def test_the_ridge_is_the_best_of_those_tried():
    problem = build_taught_problem(1.0)
    K, y = compute_method_kernels(problem, 256, 0.5)[1], problem.y[:, None]
    fold = torch.arange(len(y)) % 4
    noisy = y + torch.from_numpy(np.random.default_rng(1).standard_normal(y.shape)) * y.std() * 2
    assert regress(K, y, fold, [slice(0, len(y))]).ridge < regress(K, noisy, fold, [slice(0, len(y))]).ridge


def test_a_client_of_too_few_samples_is_refused():
    with pytest.raises(InputError, match="client 0 has 3 samples; it needs 4"):
        forecast_methods(draw_synthetic_problem(2, [3, 5], 3))


def test_a_client_whose_targets_are_all_the_same_is_refused():
    problem = build_taught_problem(1.0)
    y = torch.where(problem.owner == 1, 0.1, problem.y)
    with pytest.raises(InputError, match="client 1: its targets are all the same"):
        forecast_methods(Problem(problem.x, y, problem.owner, problem.S), width=64)
    with pytest.raises(InputError, match="of one class"):
        forecast_methods(problem, torch.zeros(len(y), dtype=torch.int64), width=64)


def test_a_kernel_that_is_no_kernel_is_never_a_prediction_of_nothing():
    indefinite, y = -torch.eye(8, dtype=torch.float64), torch.ones(8, 1, dtype=torch.float64)
    fold = torch.arange(8) % 4
    assert predict_held_out(indefinite, y, fold, 0.5) is None
    with pytest.raises(InputError, match="no ridge"):
        regress(indefinite, y, fold, [slice(0, 8)])
    singular = torch.ones(8, 8, dtype=torch.float64) - 1e-3 * torch.eye(
        8, dtype=torch.float64
    )  # of small ridges: not definite
    assert regress(singular, y, fold, [slice(0, 8)]).ridge > 1e-3


@pytest.mark.parametrize("size", [1e-90, 1e-30, 1e90])
def test_units_of_the_inputs_do_not_matter(size):
    problem = build_taught_problem(0.7, 3, 12, 4)
    one = forecast_methods(problem, width=128)
    large = Problem(problem.x * size, problem.y, problem.owner, problem.S * size * size)
    for name in (SINGLESET, FEDBN, FEDCO2, ONE_KERNEL):
        assert forecast_methods(large, width=128).compute_client_scores(name) == pytest.approx(
            one.compute_client_scores(name), rel=1e-6
        )


def test_targets_far_from_zero_are_foretold_as_well():
    problem = build_taught_problem(1.0)
    far = Problem(problem.x, problem.y + 50 * problem.y.std(), problem.owner, problem.S)
    assert forecast_methods(far).compute_mean_score(FEDBN) > 0.5


@pytest.mark.parametrize("seed", [-1, 2**32, 2**70])
def test_seeds_out_of_range_are_refused(seed):
    with pytest.raises(InputError, match="seed is"):
        forecast_methods(build_taught_problem(1.0), seed=seed)


def test_few_samples_decide_nothing_however_much_they_agree():
    owner = torch.repeat_interleave(torch.arange(2), torch.tensor([5, 6]))
    scores = {SINGLESET: torch.zeros(11), FEDBN: torch.ones(11)}
    assert [gain.effect for gain in Forecast(owner, scores, {}).compute_client_gains()] == ["undecided", "helps"]


def test_the_gain_of_the_mean_is_that_of_clients_counted_alike():
    owner = torch.repeat_interleave(torch.arange(2), torch.tensor([10, 40]))
    generator = torch.Generator().manual_seed(0)
    scores = {name: torch.rand(50, generator=generator) for name in (SINGLESET, FEDBN)}
    found = Forecast(owner, scores, {})
    gain, each = found.compute_mean_gain(SINGLESET, FEDBN), found.compute_client_gains()
    assert gain.mean == pytest.approx(found.compute_mean_score(FEDBN) - found.compute_mean_score(SINGLESET))
    assert gain.standard_error == pytest.approx((each[0].standard_error ** 2 + each[1].standard_error ** 2) ** 0.5 / 2)
