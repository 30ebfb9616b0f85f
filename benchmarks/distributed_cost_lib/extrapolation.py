"""From what was measured, and from the networks' sizes, to a thousand sites: computed, on paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from distributed_cost_lib.head_exchange import HeadCost, build_meta_states
from fedtrain.federated.communication import count_bytes

NETWORKS = ("cifar", "digits", "alexnet")


def fit_exponent(points: Sequence[HeadCost], key: str) -> float:
    """p of a value that grows as clients^p, by least squares of the logarithms."""
    x, y = (np.log([one[name] for one in points]) for name in ("clients", key))
    return float(np.polyfit(x, y, 1)[0])


def extrapolate_clients(points: Sequence[HeadCost], key: str, clients: int) -> float:
    """a + b N + c N(N - 1) for so many clients, none of them negative, by least squares of relative errors."""

    def terms(n: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack([n**0, n, n * (n - 1)], axis=-1)

    x, y = (np.array([float(one[name]) for one in points]) for name in ("clients", key))
    factors, _ = nnls(terms(x) / y[:, None], np.ones(len(y)))
    return float(terms(np.array(float(clients))) @ factors)


def compute_round_traffic(network: str, clients: int, peers: int = 0) -> dict[str, Any]:
    """A round of Fed-CO2 in which all take part, in MB; the server holds all heads, and packs each once."""
    shared, head = map(count_bytes, build_meta_states(network))
    one = shared + head * min(peers or clients, clients - 1)
    return {
        "network": network,
        "clients": clients,
        "peers": peers,
        "head_mb": head / 1e6,
        "up_client_mb": (shared + head) / 1e6,
        "down_client_mb": one / 1e6,
        "down_mb": clients * one / 1e6,
        "server_mb": 2 * (shared + clients * head) / 1e6,
    }
