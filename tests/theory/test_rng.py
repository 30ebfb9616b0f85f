"""Chance as a function of its purpose: what is drawn for one is drawn for no other."""

import numpy as np
import pytest
import torch

from theory import InputError, draw_initial_weights, draw_synthetic_problem
from theory.claims.deep import build_small_conv_net
from theory.rng import SEED_LIMIT, make_data_rng, make_network_rng


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_first_layer_is_not_made_of_the_samples(seed):
    """Eq. 11 wants v independent of the data; isotropic samples are what the stream gives, unchanged."""
    x = draw_synthetic_problem(5, 20, 10, covariance="isotropic", seed=seed).x
    for near in range(3):  # other draws and other networks count on from the seed
        v = draw_initial_weights(draw_synthetic_problem(1, 1, 10), 4096, 1.0, seed=seed + near).v
        assert not torch.isin(x, v).any()


def test_the_deep_network_is_not_made_of_the_samples():
    """Its normalised weights are divided by the root of their fan-in, its biases by 1."""
    drawn = torch.cat(
        [p.flatten() * p[0].numel() ** 0.5 for p in build_small_conv_net(10, make_network_rng(0)).parameters()]
    )
    x = draw_synthetic_problem(5, 20, 10, covariance="isotropic").x
    assert (x.flatten()[:, None] - drawn).abs().min() > 1e-12


def test_no_two_clients_share_a_stream_nor_do_the_directions_of_the_sphere():
    drawn = [make_data_rng(seed, client).standard_normal() for seed in (0, 1, SEED_LIMIT - 1) for client in range(50)]
    drawn += [np.random.default_rng([seed, r]).standard_normal() for seed in range(3) for r in range(16)]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("seed", [-1, SEED_LIMIT, 10**14])
def test_a_seed_that_another_one_would_stand_for_is_refused(seed):
    """Torch keeps 32 bits of a seed, and numpy takes no negative one."""
    assert torch.equal(*(torch.randn(3, generator=make_network_rng(s)) for s in (5, SEED_LIMIT + 5)))
    with pytest.raises(InputError, match=f"seed is {seed}; choose it between 0 and {SEED_LIMIT - 1}"):
        draw_synthetic_problem(seed=seed)
