"""Builders that several files of tests use; each fixture gives a plain function, so examples may call it at will."""

import pytest
import torch

from theory import TwoLayerBN, Weights


@pytest.fixture(scope="session")
def trained():
    """Weights as training might leave them: γ differs among clients and has both signs, c is no sign any more."""

    def build(problem, width, alpha=0.7, seed=0):
        generator = torch.Generator().manual_seed(seed)

        def randn(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        return Weights(alpha * randn(width, problem.dim), randn(width), randn(problem.clients, width), alpha)

    return build


@pytest.fixture(scope="session")
def modules():
    """The weights as one real module for each client."""

    def build(problem, weights):
        nets = [TwoLayerBN(problem.dim, weights.width, covariance=S, generator=torch.Generator()) for S in problem.S]
        return [net.load_weights(*weights.get_client_weights(i)) for i, net in enumerate(nets)]

    return build


@pytest.fixture(scope="session")
def apart():
    """|A - B| / |B|, Frobenius; 0 where both vanish (all gates closed)."""

    def measure(A, B):
        error = (A - B).norm().item()
        return error / B.norm().item() if error else 0.0

    return measure


@pytest.fixture(scope="session")
def reach():
    """How large V/α² and G could be if no gate were closed and nothing cancelled: what rounding is relative to.

    |P x| = |x - Sv (v.x)/|v|²_S| may be much smaller than its two terms (it is 0 for d = 1), and v'Sv much smaller
    than |v| |Sv|, so that it is known that much less well.
    """

    def measure(problem, weights):
        total = 0.0
        for i, rows in enumerate(problem.blocks):
            v, gamma, c = weights.get_client_weights(i)
            x, Sv = problem.x[rows], v @ problem.S[i]
            size, h = (Sv * v).sum(1).sqrt(), (x @ v.T).abs()
            terms = x.norm(dim=1)[:, None] + Sv.norm(dim=1) * h / size**2
            lost = v.norm(dim=1) * Sv.norm(dim=1) / size**2
            total += (lost * (c / size) ** 2 * ((gamma * terms) ** 2 + h**2)).sum().item() / weights.width
        return total

    return measure
