"""Small experiments that configurations alone describe, for all methods, and what two runs of one must agree in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from fedtrain.config.schema import Config
from fedtrain.config.toml import merge_tables
from fedtrain.data.build import assemble_federation
from fedtrain.methods import METHODS
from fedtrain.runs.callbacks import OnRoundEnd
from fedtrain.runs.experiment import Experiment, plan_experiment
from fedtrain.runs.folder import METRICS_FILE, RunFolder

PAPER = ("singleset", "fedavg", "fedprox", "fedper", "moon", "fedrod", "copa", "fedbn", "fedco2")
"""The methods that the paper compares."""
COMMON = {
    "data": {"source": "standin"},
    "model": {"name": "two-layer", "width": 8},
    "local": {"lr": 0.05, "batch_size": 16},
    "machine": {"threads": 1, "device": "cpu"},
}
ALL = {"data": {"train_size": 24, "percent": "none"}, "server": {"rounds": 3}, "evaluation": {"every": 2}}
"""Five clients with 24 images each, all of them in every round."""
SOME = {
    "data": {"skew": "label+feature", "alpha": 5.0, "divide": 20, "least_per_class": 1},
    "local": {"momentum": 0.9, "weight_decay": 1e-5, "epochs": 2, "batch_size": 32},
    "server": {"rounds": 5, "participation": 0.6, "weights": "size"},
    "evaluation": {"every": 3, "window": 2, "window_every": 1, "report": "window", "train": True},
}
"""Five clients with 91 to 122 images, three in a round, who count by their size, with momentum, two passes."""
FEW_BYTES = {"codec": "topk:0.1+int8", "broadcast_codec": "lowrank:2", "heads_every": 2, "peers": 2}
"""Error feedback for who trains only now and then, a lossy broadcast, heads of some in some rounds."""
LABEL_SKEW = {
    "fedbn": {"bn_stats": "shared"},
    "fedrod": {"balanced": True, "personal_sgd": "plain"},
    "fedco2": {"intra": "none", "inter": "none", "bn_stats": "shared", "start": "own"},
    "singleset": {"start": "own"},
}
CASES = {
    **{f"{name} all": merge_tables(COMMON, ALL, {"method": {"name": name}}) for name in METHODS},
    **{
        f"{name} some": merge_tables(COMMON, SOME, {"method": {"name": name, **LABEL_SKEW.get(name, {})}})
        for name in METHODS
    },
    "fedbn fedyogi": merge_tables(COMMON, ALL, {"method": {"name": "fedbn"}, "aggregator": {"name": "fedyogi"}}),
    "fedco2 float16": merge_tables(COMMON, ALL, {"method": {"name": "fedco2"}, "server": {"codec": "float16"}}),
    "fedco2 both": merge_tables(COMMON, SOME, {"method": {"name": "fedco2"}}),
    "fedco2 few bytes": merge_tables(COMMON, SOME, {"method": {"name": "fedco2"}, "server": FEW_BYTES}),
}
"""By method and who takes part; "fedco2 some" is its form for label skew, "fedco2 both" the full one."""
HEADS = {
    f"{name} heads": merge_tables(
        COMMON, ALL, {"data": {"train_size": 8}, "model": {"name": "digits"}, "method": {"name": name}}
    )
    for name in ("copa", "fedco2")
}
"""Those that publish heads, on a network whose heads learn; it is large."""


@dataclass(frozen=True)
class Learning(Experiment):
    """The same with heads that learn; those of this network are fixed, as the theory has them."""

    def get_model_builder(self):
        draw = super().get_model_builder()

        def made():
            net = draw()
            net.head.requires_grad_(True)
            return net

        return made


def config(name: str) -> Config:
    """What the case is, complete."""
    return _planned(name)[0]


def experiment(name: str, *, learning: bool = False, **changes) -> Experiment:
    """What the configuration makes, or the same with heads that learn; ``section={"key": value}`` changes it."""
    settings = config(name)
    changed = replace(settings, **{key: replace(getattr(settings, key), **new) for key, new in changes.items()})
    kind = "heads" if name in HEADS else "some" if settings.server.participation < 1 else "all"
    return (Learning if learning else Experiment)(changed, _federation(kind))


@cache
def _planned(name: str):
    return plan_experiment("digits", {**CASES, **HEADS}[name])


@cache
def _federation(kind: str):
    settings, found = _planned(f"copa {kind}")
    return assemble_federation(settings.data, found)


def bits(state) -> dict[str, object]:
    """Tensors by name as what they are, bit by bit."""
    return {name: (value.dtype, value.shape, value.cpu().numpy().tobytes()) for name, value in state.items()}


def everything(work: Experiment, folder: RunFolder) -> dict[str, object]:
    """All that two runs of one experiment must agree in: metrics, messages, heads, what clients keep, the ledger."""
    trainer = work.build_client_trainer()
    names = [client.name for client in work.federation.clients]
    return agreeing(
        folder,
        names,
        lambda state, name: state.load_client_state(name, folder.client_state_store, trainer.initial_client_state),
    )


def agreeing(folder: RunFolder, names, own) -> dict[str, object]:
    """The same, where ``own`` finds what a client keeps."""
    state = folder.load_checkpoint()
    return {
        "metrics": (folder.path / METRICS_FILE).read_bytes(),
        "shared": bits(state.message.shared),
        "heads": [(name, bits(head)) for name, head in state.message.peers.items()],
        "server": {what: bits(entries) for what, entries in state.server.items()},
        "own": {name: bits(own(state, name)) for name in names},
        "cost": state.communication,
        "round": state.message.round,
        "skipped": state.skipped,
    }


def different(one: dict[str, object], other: dict[str, object]) -> list[str]:
    """What two runs do not agree in."""
    return [part for part in one if one[part] != other[part]]


def stop_after(round: int | None):
    """Callbacks that stop a run after a round."""

    def watch(progress):
        if progress.round == round:
            raise KeyboardInterrupt

    return [OnRoundEnd(watch)]
