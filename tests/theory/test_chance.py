"""Chance as a function of its purpose: what is drawn for one is drawn for no other."""

import numpy as np
import pytest
import torch

from theory import InputError, initial_weights, synthetic
from theory.chance import SEEDS, data_stream, network_stream
from theory.claims.deep import small_conv_net


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_first_layer_is_not_made_of_the_samples(seed):
    """Eq. 10 wants v independent of the data; isotropic samples are what the stream gives, unchanged."""
    x = synthetic(5, 20, 10, covariance="isotropic", seed=seed).x
    for near in range(3):  # other draws and other networks count on from the seed
        v = initial_weights(synthetic(1, 1, 10), 4096, 1.0, seed=seed + near).v
        assert not torch.isin(x, v).any()


def test_the_deep_network_is_not_made_of_the_samples():
    """Its normalised weights are divided by the root of their fan-in, its biases by 1."""
    drawn = torch.cat([p.flatten() * p[0].numel() ** 0.5 for p in small_conv_net(10, network_stream(0)).parameters()])
    x = synthetic(5, 20, 10, covariance="isotropic").x
    assert (x.flatten()[:, None] - drawn).abs().min() > 1e-12


def test_no_two_clients_share_a_stream_nor_do_the_directions_of_the_sphere():
    drawn = [data_stream(seed, client).standard_normal() for seed in (0, 1, SEEDS - 1) for client in range(50)]
    drawn += [np.random.default_rng([seed, r]).standard_normal() for seed in range(3) for r in range(16)]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("seed", [-1, SEEDS, 10**14])
def test_a_seed_that_another_one_would_stand_for_is_refused(seed):
    """Torch keeps 32 bits of a seed, and numpy takes no negative one."""
    assert torch.equal(*(torch.randn(3, generator=network_stream(s)) for s in (5, SEEDS + 5)))
    with pytest.raises(InputError, match=f"seed is {seed}; choose it between 0 and {SEEDS - 1}"):
        synthetic(seed=seed)
