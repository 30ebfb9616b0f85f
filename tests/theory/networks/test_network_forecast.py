"""Kernel regression with the kernels of real networks, against a literal refit and against training them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from theory.errors import InputError
from theory.forecast import assign_folds, encode_centered_one_hot
from theory.kernels.autograd import compute_jacobian
from theory.networks.forecast import compute_mean_ntk, forecast_networks, regress_kernel
from theory.networks.kernels import ClientSamples, FederatedKernel

SHARED = frozenset({"0.weight", "2.weight"})
"""Biases are personal."""


def build_net(seed=0, width=16):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 4)).double().eval()


def draw_samples(clients=3, size=12, seed=0):
    rng = np.random.default_rng(seed)
    x = tuple(torch.from_numpy(rng.standard_normal((size, 3))) for _ in range(clients))
    y = tuple((one[:, 0] > 0).long() + 2 * (one[:, 1] > 0).long() for one in x)
    return ClientSamples(tuple("abcdef"[:clients]), x, y, (1 / clients,) * clients)


def test_the_kernel_of_one_output_is_the_mean_over_three():
    """The other road: the Jacobian by torch.func, entry by entry."""
    samples = draw_samples()
    nets = [build_net(i) for i in range(3)]
    found = compute_mean_ntk(nets, samples, SHARED)
    rows = compute_jacobian(nets, samples.inputs)
    for part, names in (("shared", SHARED), ("personal", rows.keys() - SHARED)):
        expected = torch.zeros(36, 36, dtype=torch.float64)
        for name in names:
            each = rows[name].reshape(36, 4, -1)
            for output in (0, 2, 3):  # three, evenly: 0, 1.5 and 3
                expected += each[:, output] @ each[:, output].T / 3
        if part == "personal":
            expected *= found.owner[:, None] == found.owner
        assert torch.allclose(getattr(found, part), expected, atol=1e-12)


def test_predictions_are_those_of_a_literal_refit_with_one_nth_of_what_is_shared():
    samples = draw_samples()
    kernel = compute_mean_ntk([build_net()] * 3, samples, SHARED)
    labels = torch.cat(samples.labels)
    targets, fold = encode_centered_one_hot(labels), assign_folds(kernel.owner, labels)
    fit = regress_kernel(kernel, targets, fold)
    K = (kernel.shared / 3 + kernel.personal).numpy()
    noise = fit.ridge * K.diagonal().mean()
    for p in (0, 17, 35):
        rest = (fold != fold[p]).numpy()
        weights = np.linalg.solve(K[np.ix_(rest, rest)] + noise * np.eye(rest.sum()), targets.numpy()[rest])
        assert fit.predicted[p].numpy() == pytest.approx(K[p, rest] @ weights, rel=1e-8)


def test_a_wide_network_that_is_trained_predicts_what_its_kernel_foretells():
    """All shared, from zero outputs: full-batch descent on all clients' squares, until the training data are fitted."""
    samples, unseen = draw_samples(size=4), draw_samples(size=4, seed=9)
    net, start = build_net(width=4096), build_net(width=4096)
    for p in net[2].parameters():  # NTK scaling: the last layer is small
        p.data.div_(8)
    start.load_state_dict(net.state_dict())
    x, y = torch.cat(samples.inputs), encode_centered_one_hot(torch.cat(samples.labels))
    y = torch.nn.functional.pad(y, (0, 4 - y.shape[1]))
    both = ClientSamples(("seen", "unseen"), (x, torch.cat(unseen.inputs)), (x[:, 0].long(),) * 2, (0.5, 0.5))
    K = compute_mean_ntk([net, net], both, frozenset(name for name, _ in net.named_parameters())).whole
    lr = 0.5 / torch.linalg.eigvalsh(K[:12, :12])[-1].item()
    parameters = list(net.parameters())
    for _ in range(400):
        residual = net(x) - start(x).detach() - y
        gradients = torch.autograd.grad(residual.square().sum() / 2, parameters)
        with torch.no_grad():
            for p, gradient in zip(parameters, gradients, strict=True):
                p.sub_(lr * gradient)
    with torch.no_grad():
        learned = net(both.inputs[1]) - start(both.inputs[1])
        reached = net(x) - start(x)
    predicted = K[12:, :12] @ torch.linalg.solve(K[:12, :12], reached)  # whatever was reached in the span
    assert (learned - predicted).norm() < 0.1 * learned.norm()
    assert learned.norm() > 0.1


def test_a_method_that_shares_nothing_learns_nothing_of_others():
    samples = draw_samples()
    nets = [build_net()] * 3
    everything = frozenset(name for name, _ in nets[0].named_parameters())
    methods = {
        "alone": [compute_mean_ntk(nets, samples, frozenset())],
        "all": [compute_mean_ntk(nets, samples, everything)],
    }
    labels = torch.cat(samples.labels)
    before = forecast_networks(methods, labels)
    changed = torch.cat([samples.labels[0], *(one.flip(0) for one in samples.labels[1:])])
    kernel, fold = methods["alone"][0], assign_folds(before.owner, labels)
    one, other = (regress_kernel(kernel, encode_centered_one_hot(y), fold).predicted for y in (labels, changed))
    ratio = one[:12].flatten() @ other[:12].flatten() / (one[:12].norm() * other[:12].norm())
    assert ratio > 0.999  # up to the ridge, which all clients have in common
    assert before.compute_mean_score("all") > before.compute_mean_score("alone") - 0.05
    assert before.compute_mean_score("all") > 0.5


def test_predictions_of_several_models_are_added():
    samples = draw_samples()
    kernel = compute_mean_ntk([build_net()] * 3, samples, SHARED)
    labels = torch.cat(samples.labels)
    found = forecast_networks({"one": [kernel], "twice": [kernel, kernel]}, labels)
    assert torch.equal(found.scores["one"], found.scores["twice"])
    nothing = FederatedKernel(torch.eye(36).double(), torch.zeros(36, 36).double(), kernel.owner)
    both = forecast_networks({"one": [kernel], "and nothing": [kernel, nothing]}, labels)
    assert torch.equal(both.scores["one"], both.scores["and nothing"])  # its predictions are zero


def test_too_few_samples_are_refused_with_the_clients_name():
    samples = draw_samples(size=3)
    kernel = compute_mean_ntk([build_net()] * 3, samples, SHARED)
    with pytest.raises(InputError, match="client b has 3"):
        forecast_networks({"one": [kernel]}, torch.arange(9) % 2, names=("b", "c", "d"))
