"""Step in where a network calls a layer: the layer's parameters become constants, and its output can be perturbed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from theory.kernels.layerwise.rules import Constants, LayerRule, find_rule


@dataclass(frozen=True)
class RuledLayer:
    """A layer with a rule, and its parameters as they are outside of any differentiation."""

    path: str
    layer: nn.Module
    rule: LayerRule
    constants: Constants

    def compute(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What must be kept, and the output."""
        return self.rule.compute(self.layer, self.constants, x)


def list_ruled_layers(model: nn.Module) -> list[RuledLayer]:
    """The layers with a rule of which some parameter is trained."""
    layers = []
    for path, layer in model.named_modules():
        rule = find_rule(layer)
        if rule is not None and any(value.requires_grad for value in layer.parameters()):
            constants = {name: None if p is None else p.detach() for name, p in layer._parameters.items()}
            layers.append(RuledLayer(path, layer, rule, constants))
    return layers


@contextmanager
def intercept_calls(layers: list[RuledLayer], on_call: Callable[[RuledLayer, Tensor], Tensor]) -> Iterator[None]:
    """Within, ``on_call`` computes these layers."""

    def wrap(ruled: RuledLayer) -> Callable[..., Tensor]:
        def forward(*args: Any, **kwargs: Any) -> Tensor:
            return on_call(ruled, args[0] if args else kwargs["input"])

        return forward

    try:
        for ruled in layers:
            ruled.layer.forward = wrap(ruled)
        yield
    finally:
        for ruled in layers:
            ruled.layer.__dict__.pop("forward", None)
