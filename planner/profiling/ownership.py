"""Assign each parameter to a layer."""

from collections import defaultdict
from collections.abc import Sequence

from torch import nn

from planner.profiling.calls import Call


def parameter_layers(model: nn.Module, calls: Sequence[Call]) -> dict[nn.Parameter, int]:
    """Return the layer of each parameter: the first layer in the first call of its module.

    If the module is never called, its nearest enclosing module that is called counts. For tied
    weights the first layer counts. `calls` come from `trace`.
    """
    modules = dict(model.named_modules())
    first_layer: dict[nn.Module, int] = {}
    layers = 0
    for call in calls:
        first_layer.setdefault(modules[call.module], layers)
        layers += call.leaf
    around: dict[nn.Module, list[nn.Module]] = defaultdict(list)
    for module in modules.values():
        for child in module.children():
            around[child].append(module)

    def layer_of(owner: nn.Module) -> int:
        nearest = [owner]
        while not any(module in first_layer for module in nearest):
            nearest = [parent for module in nearest for parent in around[module]]
        return min(first_layer[module] for module in nearest if module in first_layer)

    layers_of: dict[nn.Parameter, int] = {}
    for owner in modules.values():
        for parameter in owner.parameters(recurse=False):
            layer = layer_of(owner)
            layers_of[parameter] = min(layer, layers_of.get(parameter, layer))
    return layers_of
