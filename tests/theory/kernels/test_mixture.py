"""O5 as a law of matrices, for kernels of any origin: more sharing never raises λ_min, and less never lowers it."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from theory import InputError, keep_client_blocks
from theory.claims.deep import build_small_conv_net, compute_deep_kernels
from theory.kernels.mixture import choose_weights, mix_kernels, trace_mixture
from theory.results import MixtureResults


def draw_kernel(seed, sizes, rank):
    rng = np.random.default_rng(seed)
    owner = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
    rows = rng.standard_normal((len(owner), rank)) * np.exp(rng.standard_normal((len(owner), 1)))
    return torch.from_numpy(rows @ rows.T), owner


SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sizes=SIZES, rank=st.integers(1, 30))
def test_lambda_min_is_concave_and_never_rises(seed, sizes, rank):
    """For every positive semidefinite kernel, singular ones too."""
    K, owner = draw_kernel(seed, sizes, rank)
    curve = trace_mixture(K, owner)
    room = 1e-12 * curve.lambda_max[-1]
    assert curve.smallest_fall >= -room
    assert curve.smallest_bulge >= -room
    assert curve.lambda_min[0] >= max(curve.lambda_min) - room
    assert all(b >= a - room for a, b in zip(curve.lambda_max, curve.lambda_max[1:], strict=False))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sizes=SIZES, rank=st.integers(1, 30))
def test_the_proof_step_by_step(seed, sizes, rank):
    """V_off is the mean of D V_on D over all sign flips of whole clients; each flip leaves every mixture's spectrum."""
    K, owner = draw_kernel(seed, sizes, rank)
    flips = [[(bits >> i & 1) * 2.0 - 1 for i in range(len(sizes))] for bits in range(2 ** len(sizes))]
    signs = torch.tensor(flips, dtype=torch.float64)[:, owner]
    flipped = signs[:, :, None] * K * signs[:, None, :]
    blocks = keep_client_blocks(K, owner)
    assert torch.allclose(flipped.mean(0), blocks, atol=1e-13 * float(K.abs().max()))
    w = 0.3
    mixture = mix_kernels(K, blocks, w)
    values = torch.linalg.eigvalsh(mixture)
    room = 1e-12 * float(K.diagonal().sum())
    for one in signs:
        assert torch.allclose(torch.linalg.eigvalsh(one[:, None] * mixture * one), values, atol=room)
    assert torch.linalg.eigvalsh(blocks)[0] >= values[0] - room


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sizes=SIZES, rank=st.integers(1, 30))
def test_the_federated_reading_falls_too_and_below_a_line(seed, sizes, rank):
    """λ_min(w V_on/N + (1-w) V_off) <= (1 - w (1 - 1/N)) λ_min(V_off): the step alone takes that much."""
    K, owner = draw_kernel(seed, sizes, rank)
    curve, N = trace_mixture(K, owner), len(sizes)
    room = 1e-12 * curve.lambda_max[-1]
    for w, value in zip(curve.w, curve.federated_lambda_min, strict=True):
        assert value <= (1 - w * (1 - 1 / N)) * curve.lambda_min[0] + room


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sizes=SIZES, rank=st.integers(1, 30))
def test_the_federated_reading_is_the_same_curve_on_another_axis(seed, sizes, rank):
    """w V_on/N + (1-w) V_off = s V(w / (N s)) with s = 1 - w (1 - 1/N)."""
    K, owner = draw_kernel(seed, sizes, rank)
    curve, N = trace_mixture(K, owner), len(sizes)
    steps = [1 - w * (1 - 1 / N) for w in curve.w]
    moved = trace_mixture(K, owner, weights=[w / (N * s) for w, s in zip(curve.w, steps, strict=True)])
    expected = [s * value for s, value in zip(steps, moved.lambda_min, strict=True)]
    assert curve.federated_lambda_min == pytest.approx(expected, abs=1e-12 * curve.lambda_max[-1])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sizes=SIZES, rank=st.integers(1, 30))
def test_no_eigenvalue_of_the_federated_reading_rises_where_a_part_is_personal(seed, sizes, rank):
    (shared, owner), (other, _) = draw_kernel(seed, sizes, rank), draw_kernel(seed + 1, sizes, rank)
    personal = keep_client_blocks(other, owner)
    offline, averaged = keep_client_blocks(shared, owner) + personal, shared / len(sizes) + personal
    spectra = [torch.linalg.eigvalsh(mix_kernels(averaged, offline, w)) for w in (0, 0.3, 0.6, 1)]
    room = 1e-12 * float(offline.diagonal().sum())
    assert all((a >= b - room).all() for a, b in pairwise(spectra))
    curve = trace_mixture(shared + personal, owner, averaged=averaged)
    assert curve.federated_lambda_min[-1] == pytest.approx(spectra[-1][0].item(), abs=room)


@pytest.mark.parametrize(("sizes", "flat"), [([5], True), ([3, 2], False)])
def test_no_share_is_called_the_best_where_all_are_alike(sizes, flat):
    curve = trace_mixture(*draw_kernel(1, sizes, rank=9))
    assert curve.is_flat is flat
    first = MixtureResults(curve, None).describe()[0]
    assert ("is the same for every share" in first, "the best share" in first) == (flat, not flat)


def test_the_law_needs_the_client_blocks():
    """With an offline kernel that is not the pinched one, sharing may well raise λ_min: the law is no tautology."""
    broken = 0
    for seed in range(20):
        K, owner = draw_kernel(seed, [3, 2, 4], 30)
        other, _ = draw_kernel(seed + 100, [3, 2, 4], 30)
        weak, wrong = 0.1 * keep_client_blocks(K, owner), keep_client_blocks(other, owner)
        assert trace_mixture(K, owner, weak).smallest_fall < 0
        broken += trace_mixture(K, owner, wrong).smallest_fall < -1e-9
        assert trace_mixture(K, owner, wrong).smallest_bulge > -1e-9  # concavity asks for nothing
    assert broken >= 5


def test_blocks_of_other_clients_are_not_the_pinched_kernel():
    """Pinched along other borders the law says nothing about these clients, but holds for those."""
    K, owner = draw_kernel(1, [3, 3], 30)
    turned = owner.roll(1)
    assert trace_mixture(K, turned).smallest_fall >= 0
    assert (
        trace_mixture(K, owner, keep_client_blocks(K, turned)).federated_lambda_min
        != trace_mixture(K, owner).federated_lambda_min
    )


def test_deep_kernels_are_traced_like_any_others():
    inputs = [torch.randn(4, 6, generator=torch.Generator().manual_seed(k), dtype=torch.float64) for k in range(3)]
    found = compute_deep_kernels(build_small_conv_net(6, torch.Generator().manual_seed(0)), inputs)
    curve = trace_mixture(found.online, found.owner, found.offline)
    assert curve.best_w == 0
    assert curve.smallest_fall > 0
    on, off = found.online.numpy(), found.offline.numpy()
    for w, value in zip(curve.w, curve.lambda_min, strict=True):
        assert value == pytest.approx(np.linalg.svd(w * on + (1 - w) * off)[1][-1], rel=1e-9)


def test_the_weights_hold_the_paper_s_half_and_are_fewer_for_large_kernels():
    assert {0.0, 0.5, 1.0} <= set(choose_weights(10)) & set(choose_weights(10_000))
    assert len(choose_weights(10_000)) < len(choose_weights(10))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [0, 1]}, "at least three and rise"),
        ({"weights": [0, 0.5, 0.5]}, "at least three and rise"),
        ({"offline": torch.eye(2)}, r"the offline kernel has shape \(2, 2\).*expected \(3, 3\)"),
        ({"online": torch.eye(4)}, r"the online kernel has shape \(4, 4\)"),
    ],
)
def test_wrong_input_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        trace_mixture(**{"online": torch.eye(3), "owner": torch.tensor([0, 0, 1])} | change)


def test_deep_kernels_have_the_same_figure():
    from theory.figure_data import examine_mixture
    from theory.report.mixture_figure import plot_criteria
    from theory.report.plot_style import use_plot_style

    K, owner = draw_kernel(2, [3, 3], 30)
    found = examine_mixture(K, owner, ["one", "two"], targets=K[:, 0])
    assert found.sharing is not None
    assert [name for name, _ in found.list_rows()] == ["one", "two", "all samples"]
    with use_plot_style():
        assert len(plot_criteria(found, "any kernels").axes) == 2
