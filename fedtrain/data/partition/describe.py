"""A partition in words, for titles of tables and figures."""

from __future__ import annotations

from fedtrain.config.data import DataSettings


def describe_partition(settings: DataSettings) -> str:
    """How the clients' data differ, and all that one needs to draw the same partition."""
    alpha, seed = f"α = {settings.alpha:g}", f"seed {settings.seed}"
    many = f"{settings.clients} clients"
    return {
        "domain": "one domain a client",
        "label+feature": f"one domain a client and label skew, {alpha}, 1 of {settings.divide} parts, {seed}",
        "iid": f"iid, {many}, {seed}",
        "pathological": f"pathological, {settings.classes_per_client} classes a client, {many}, {seed}",
        "dirichlet": f"dirichlet, {alpha}, {many}, {seed}",
        "pachinko": f"pachinko, {alpha}, β = {settings.beta:g}, {many}, {seed}",
    }[settings.skew]
