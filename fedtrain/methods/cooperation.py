"""Methods side by side on each client, which predict together and may teach each other: what Fed-CO2 is one case of."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from fedtrain.methods.base import (
    AnyMethod,
    Batch,
    LossFunction,
    Method,
    ModelFactory,
    Peers,
    Phase,
    RoundContext,
    check_non_negative,
    list_losses,
)
from fedtrain.methods.fusion import FusingMethod
from fedtrain.methods.two_models import kl_from_teacher
from fedtrain.models import Net, SplitPoint
from fedtrain.parameters import EntryNames
from fedtrain.registry import FusionRule
from theory.errors import InputError

BranchSwitch = Literal["none", "online", "offline", "both"]
OTHER_BRANCH = {"online": "offline", "offline": "online"}


class OnlineOfflineModel(nn.Module):
    """The modules of the online and of the offline method, of one client."""

    def __init__(self, online: nn.Module, offline: nn.Module) -> None:
        super().__init__()
        self.online, self.offline = online, offline

    def __getitem__(self, branch: str) -> Any:
        """A method knows what its module is."""
        return self.online if branch == "online" else self.offline


@dataclass(frozen=True)
class Cooperation(FusingMethod[OnlineOfflineModel]):
    """Each client trains by an online and by an offline method at once; what each shares and keeps is its own affair.

    Without transfer (intra = inter = none) each trains to the bit as it would alone. A part may be a cooperation.
    """

    intra: BranchSwitch = "none"
    """Which model learns from the other one, as that was when the round began."""
    inter: BranchSwitch = "none"
    """Whose features the peers' frozen offline heads judge."""
    mu: float = 1.0
    """Weight of L_gen, the loss under the peers' heads."""
    gen: Literal["sum", "mean"] = "sum"
    """How L_gen gathers the peers."""
    fusion: FusionRule = "logits"
    """What is made of the branches: the sum of their logits or probabilities; weighted: a sum with weights and
    temperatures that each client chooses on its validation data; best: the branch that does best there."""

    def __post_init__(self) -> None:
        check_non_negative("mu", self.mu)
        for name, part in self.parts.items():
            if not isinstance(part, Method):
                raise InputError(f"method.{name} is {part!r}; give a method, such as fedtrain.FedPer()")
            if isinstance(part, FusingMethod) and part.chooses_fusion:
                raise InputError(
                    f"method.{name}.fusion is {part.fusion}, and a client chooses once, for all of its branches; "
                    f"set method.fusion = {part.fusion} instead"
                )
        self._check_published()
        self._check_steps()

    def _check_published(self) -> None:
        """Clients show each other one head."""
        shown = dict(self._list_published())
        if len(shown) > 1:
            one, other = shown.values()
            raise InputError(f"{one} and {other} both show heads to peers, and a client shows one; change one of them")
        for name in {*list_branches(self.inter), *(["offline"] if self.inter != "none" else [])}:
            if isinstance(self.parts[name], Cooperation):
                raise InputError(
                    f"method.inter is {self.inter}, and method.{name} is a cooperation, which has no single head and "
                    "features; set method.inter = none"
                )

    def _list_published(self) -> Iterator[tuple[str, str]]:
        """Paths of what is shown to peers, and why."""
        if self.inter != "none":
            yield _join("offline", self.parts["offline"].network, "head"), f"method.inter = {self.inter}"
        for name, part in self.parts.items():
            if part.published:
                yield _join(name, part.published), f"{part.title} (method.{name})"

    def _check_steps(self) -> None:
        """Who reckons with the steps of a round must not be made to take others."""
        for name, part in self.parts.items():
            counts = {len(each.phases(1, epochs)) - epochs for each in self.parts.values() for epochs in (1, 2)}
            if part.needs_sgd and (self.intra != "none" or len(counts) > 1):
                why = (
                    f"method.intra = {self.intra} adds others; set method.intra = none"
                    if self.intra != "none"
                    else f"{self.parts[OTHER_BRANCH[name]].title} makes more; take another method beside it"
                )
                raise InputError(f"{part.title} (method.{name}) reckons with its own passes over the data, and {why}")

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, AnyMethod]:
        """The two methods, by the names of their branches: online and offline."""

    @property
    def branch_names(self) -> Sequence[str]:
        """Online and offline; those of a cooperation within are named after it: ``offline.online``."""
        found: list[str] = []
        for name, part in self.parts.items():
            found += [f"{name}.{inner}" for inner in part.branch_names] if isinstance(part, Cooperation) else [name]
        return found

    @property
    def split_at(self) -> SplitPoint:  # type: ignore[override]  # there it is a constant of the class
        """Where the online method wants it."""
        return self.parts["online"].split_at

    @property
    def needs_sgd(self) -> bool:  # type: ignore[override]
        """Whether one of the two does."""
        return any(part.needs_sgd for part in self.parts.values())

    @property
    def needs_training_data(self) -> bool:  # type: ignore[override]
        """Whether one of the two does."""
        return any(part.needs_training_data for part in self.parts.values())

    @property
    def published(self) -> str:
        """The offline head, if peers are to judge by it, or what one of the two shows."""
        return next((path for path, _ in self._list_published()), "")

    def build(self, factory: ModelFactory) -> OnlineOfflineModel:
        """What each of the two builds."""
        module = OnlineOfflineModel(**{name: part.build(factory) for name, part in self.parts.items()})
        for name in ("offline", *list_branches(self.inter)) if self.inter != "none" else ():
            self._get_network(module, name)
        return module

    def _get_network(self, module: OnlineOfflineModel, name: str) -> Net:
        """Of a part, the network whose features and head stand for it."""
        network = module[name].get_submodule(self.parts[name].network)
        if not all(isinstance(getattr(network, half, None), nn.Module) for half in ("features", "head")):
            raise InputError(
                f"method.inter is {self.inter}, and {self.parts[name].title} (method.{name}) does not say where its "
                "network of features and head is (Method.network); set method.inter = none"
            )
        return cast(Net, network)

    def shared(self, module: OnlineOfflineModel) -> EntryNames:
        """What each of the two shares."""
        return frozenset(f"{name}.{entry}" for name, part in self.parts.items() for entry in part.shared(module[name]))

    def check(self, module: OnlineOfflineModel) -> None:
        """Refuse a network on which one of the two would be another method."""
        for name, part in self.parts.items():
            part.check(module[name])

    def plain_sgd_parameters(self, module: OnlineOfflineModel) -> Sequence[nn.Parameter]:
        """Those of both."""
        return [weight for name, part in self.parts.items() for weight in part.plain_sgd_parameters(module[name])]

    # ---- training

    def needs_round_start(self, round: int) -> bool:
        """Teachers are the models as the round began; the two may need them for purposes of their own."""
        return self._has_teachers(round) or any(part.needs_round_start(round) for part in self.parts.values())

    def _has_teachers(self, round: int) -> bool:
        """In the first round models have nothing to teach."""
        return self.intra != "none" and round > 0

    def phases(self, round: int, epochs: int) -> Sequence[Phase[OnlineOfflineModel]]:
        """One pass of learning from each other, then what each of the two does, batch by batch."""
        own = self._join_phases({name: part.phases(round, epochs) for name, part in self.parts.items()})
        return [*([self.mutual_loss] if self._has_teachers(round) else []), *own]

    def phases_before_prediction(self) -> Sequence[Phase[OnlineOfflineModel]]:
        """What each of the two does."""
        return self._join_phases({name: part.phases_before_prediction() for name, part in self.parts.items()})

    def _join_phases(self, phases: Mapping[str, Sequence[Phase[Any]]]) -> list[Phase[OnlineOfflineModel]]:
        """The first passes of both together, then the second ones, so that each sees the batches that it sees alone."""
        plain = tuple((name, part.loss) for name, part in self.parts.items())
        joined: list[Phase[OnlineOfflineModel]] = []
        for both in zip_longest(*phases.values()):
            steps = zip_longest(*(() if phase is None else list_losses(phase) for phase in both))
            losses = [
                tuple((name, loss) for name, loss in zip(phases, step, strict=True) if loss is not None)
                for step in steps
            ]
            made = tuple(self.loss if step == plain else JointLoss(self, step) for step in losses)
            joined.append(made[0] if len(made) == 1 else made)
        return joined

    def mutual_loss(
        self, module: OnlineOfflineModel, batch: Batch, context: RoundContext[OnlineOfflineModel]
    ) -> Tensor:
        """Σ KL(teacher ‖ pupil), the teacher being the other model."""
        x, _ = batch
        terms = []
        for pupil in list_branches(self.intra):
            teacher = self._predict_part(OTHER_BRANCH[pupil], context.round_start_model, x, context)
            terms.append(kl_from_teacher(teacher, self._predict_part(pupil, module, x, context)))
        return torch.stack(terms).sum()

    def loss(self, module: OnlineOfflineModel, batch: Batch, context: RoundContext[OnlineOfflineModel]) -> Tensor:
        """Σ over both models of their own loss + μ L_gen, L_gen = Σ_j CE under the head of peer j."""
        return self.compute_joint_loss([(name, part.loss) for name, part in self.parts.items()], module, batch, context)

    def compute_joint_loss(
        self,
        losses: Sequence[tuple[str, LossFunction[Any]]],
        module: OnlineOfflineModel,
        batch: Batch,
        context: RoundContext[OnlineOfflineModel],
    ) -> Tensor:
        """The losses of these parts, and of those whose features they move the loss under the peers' heads."""
        _, y = batch
        judged = [name for name in list_branches(self.inter) if context.peers and name in dict(losses)]
        with record_features({name: self._get_network(module, name) for name in judged}) as z:
            terms = [loss(module[name], batch, self.see_part(name, context)) for name, loss in losses]
        moved = [z[name] for name in judged if name in z and z[name].requires_grad]
        if moved:
            peer_logits = context.peers(torch.cat(moved))  # both models at once: a large head is read but once
            every = len(moved) * len(context.peers)
            scale = self.mu * (len(moved) if self.gen == "mean" else every)
            terms.append(scale * context.cross_entropy(peer_logits.flatten(0, 1), y.repeat(every)))
        return torch.stack(terms).sum()

    def finish(self, module: OnlineOfflineModel, context: RoundContext[OnlineOfflineModel]) -> None:
        """What each of the two does."""
        for name, part in self.parts.items():
            part.finish(module[name], self.see_part(name, context))

    # ---- prediction

    def prepare_prediction(
        self, module: OnlineOfflineModel, context: RoundContext[OnlineOfflineModel]
    ) -> RoundContext[OnlineOfflineModel]:
        """What each of the two looks up, apart from what the other does."""
        views = {
            name: part.prepare_prediction(module[name], self.see_part(name, context))
            for name, part in self.parts.items()
        }
        return replace(context, parts=views)

    def branches(
        self, module: OnlineOfflineModel, x: Tensor, context: RoundContext[OnlineOfflineModel]
    ) -> Mapping[str, Tensor]:
        """What each of the two predicts; of a cooperation within, each of its branches."""
        found: dict[str, Tensor] = {}
        for name, part in self.parts.items():
            if isinstance(part, Cooperation):
                inner = part.branches(module[name], x, self.see_part(name, context))
                found |= {f"{name}.{branch}": logits for branch, logits in inner.items()}
            else:
                found[name] = self._predict_part(name, module, x, context)
        return found

    def _predict_part(
        self, name: str, module: OnlineOfflineModel, x: Tensor, context: RoundContext[OnlineOfflineModel]
    ) -> Tensor:
        part, view = self.parts[name], self.see_part(name, context)
        return part.fuse(part.branches(module[name], x, view), view)

    def see_part(self, name: str, context: RoundContext[OnlineOfflineModel]) -> RoundContext[Any]:
        """What a part sees: what it would see alone."""
        if name in context.parts:
            return context.parts[name]
        path, start = self.parts[name].published, context.frozen_start
        return replace(
            context,
            peers=context.peers if path and _join(name, path) == self.published else Peers(),
            frozen_start=None if start is None else start[name],
            branch_weights=None,
        )


@dataclass(frozen=True)
class JointLoss:
    """One step of a cooperation in which not both of its methods go down their usual loss."""

    cooperation: Cooperation
    losses: tuple[tuple[str, LossFunction[Any]], ...]

    def __call__(self, module: OnlineOfflineModel, batch: Batch, context: RoundContext[OnlineOfflineModel]) -> Tensor:
        """Their sum."""
        return self.cooperation.compute_joint_loss(self.losses, module, batch, context)


@contextmanager
def record_features(networks: Mapping[str, Net]) -> Iterator[dict[str, Tensor]]:
    """Within, what the features of each network last said; so a method's loss need not hand them out."""
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def hook(layer: nn.Module, inputs: tuple[Any, ...], z: Tensor) -> None:
            found[name] = z

        return hook

    hooks = [network.features.register_forward_hook(keep(name)) for name, network in networks.items()]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def list_branches(which: BranchSwitch) -> tuple[str, ...]:
    """The models that a switch names."""
    return {"none": (), "both": ("online", "offline")}.get(which, (which,))


def _join(*steps: str) -> str:
    return ".".join(step for step in steps if step)
