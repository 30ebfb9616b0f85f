"""What there is to see of a deployment."""

from __future__ import annotations

from dataclasses import dataclass

from fedtrain.flower.deployment.superlink_control import SuperLinkRun


@dataclass(frozen=True)
class NodeStatus:
    """A SuperNode: does its process run, and does the SuperLink hear of it?"""

    client: int
    pid: int | None
    alive: bool
    node_id: str | None
    online: bool


@dataclass(frozen=True)
class DeploymentStatus:
    """A deployment at one moment; of runs, and of who is online, only a SuperLink that runs can tell."""

    address: str
    tls: bool
    pid: int | None
    alive: bool
    nodes: list[NodeStatus]
    runs: list[SuperLinkRun]

    @property
    def is_healthy(self) -> bool:
        """Whether all of it runs."""
        return self.alive and all(node.alive and node.online for node in self.nodes)
