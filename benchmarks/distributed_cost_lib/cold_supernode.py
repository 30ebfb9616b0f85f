"""``python -m distributed_cost_lib.cold_supernode``: a SuperNode with a process for every message, as Flower's."""

from __future__ import annotations

from flwr.supernode.cli import flower_supernode

from fedtrain.flower.deployment.patient_supernode import install_node_state

if __name__ == "__main__":
    install_node_state()
    flower_supernode()
