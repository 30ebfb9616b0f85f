"""Every check both ways: on a case where the claim must hold, and on one built so that it must not.

Cases are natural where mathematics allows it (other weights, other data, a step too large). A law that no network can
break, such as Cauchy interlacing, is broken by handing the study a kernel that is not its own (``override_study``).
"""

import pytest
from studies import build_scaled_identities, build_study, build_two_clients, draw_normal

from theory import Study, draw_synthetic_problem


@pytest.fixture(scope="session")
def usual():
    return build_study(draw_synthetic_problem(3, 5, 5, seed=1))


@pytest.fixture(scope="session")
def printed():
    return build_study(draw_synthetic_problem(3, 5, 5, seed=1), projection="printed")


@pytest.fixture(scope="session")
def isotropic():
    return build_study(draw_synthetic_problem(3, 5, 5, covariance="isotropic", seed=1))


@pytest.fixture(scope="session")
def alone():
    return build_study(draw_synthetic_problem(1, 5, 5, seed=1))


@pytest.fixture(scope="session")
def after_training(usual):
    """Both networks where separate descent left them: they agree no more."""
    _, online, offline = usual.descents["separate"].snapshots[-1]
    return Study(usual.problem, online, offline, steps=10)


@pytest.fixture(scope="session")
def twins():
    """Two clients whose inputs are almost the same and whose targets are opposite.

    What tells them apart is nearly invisible to a shared network: λ_min(Λ_off) is far above 3 λ_min(Λ_on).
    """
    first = draw_normal(4, 8)
    problem = build_two_clients(first, first + 0.05 * draw_normal(4, 8, seed=1), build_scaled_identities(1, 1, dim=8))
    return build_study(problem, 400, alpha=0.2, steps=60)
