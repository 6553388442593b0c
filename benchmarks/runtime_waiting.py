"""Models whose layers wait instead of computing, for hosts that share a few processor cores.

Each unit of such a model has parameters of real sizes and gets real gradients, but its forward and
its backward computation are `time.sleep`: nine hosts on two cores would compute nine times as long.
Names, relative times and relative sizes are those of a shipped profile, scaled: all times by one
factor, all sizes by another. Nothing a model of this kind says is a measurement of the named one.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from planner import Layer, Profile
from planner.jsonio import decode_profile

PROFILES = Path(__file__).parents[1] / "data" / "profiles"
ELEMENT_BYTES = 4
LABEL = "layers that wait instead of computing"


@dataclass(frozen=True, slots=True)
class Unit:
    """What is computed in one go: a layer, or the branches of a block.

    Parameters
    ----------
    name : str
        Its name.
    forward_s, backward_s : float
        How long it waits in each pass.
    elements : tuple of int
        Numbers in each of its parameters.
    """

    name: str
    forward_s: float
    backward_s: float
    elements: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Size of its parameters."""
        return ELEMENT_BYTES * sum(self.elements)


def load(name: str) -> Profile:
    """Return a shipped profile."""
    profile: Profile = decode_profile((PROFILES / f"{name}.json").read_bytes())
    return profile


def scaled_units(profile: Profile, compute_s: float, size_bytes: float) -> tuple[Unit, ...]:
    """Return a profile's blocks with all times and all sizes scaled.

    Blocks without parameters join the preceding one that has some, leading ones the next. Each
    layer with parameters keeps one of its own.

    Parameters
    ----------
    profile : Profile
        Where relative times and sizes come from.
    compute_s : float
        What forward and backward pass last together.
    size_bytes : float
        Size of all parameters, but for rounding to whole numbers, at least one each.
    """
    time_scale = compute_s / (profile.forward_ns + profile.backward_ns)
    size_scale = size_bytes / profile.parameter_bytes / ELEMENT_BYTES
    merged: list[list[Layer]] = []
    for _, numbered in groupby(
        enumerate(profile.layers),
        key=lambda item: (-1, item[0]) if item[1].block is None else (item[1].block, -1),
    ):
        block = [layer for _, layer in numbered]
        if merged and not (_has_parameters(block) and _has_parameters(merged[-1])):
            merged[-1] += block
        else:
            merged.append(block)
    return tuple(
        Unit(
            next(layer.name for layer in block if layer.parameter_bytes),
            time_scale * sum(layer.forward_ns for layer in block),
            time_scale * sum(layer.backward_ns for layer in block),
            tuple(
                max(1, round(size_scale * layer.parameter_bytes))
                for layer in block
                if layer.parameter_bytes
            ),
        )
        for block in merged
    )


def _has_parameters(block: Sequence[Layer]) -> bool:
    return any(layer.parameter_bytes for layer in block)


class WaitingModel(nn.Sequential):
    """A chain of units that wait."""

    def __init__(self, units: Sequence[Unit]) -> None:
        super().__init__(*map(_WaitingUnit, units))


def waiting(units: Sequence[Unit]) -> tuple[WaitingModel, tuple[Tensor]]:
    """Return a chain of units that wait, and what its forward pass takes: nothing that matters."""
    return WaitingModel(units), (torch.ones(1),)


class _WaitingUnit(nn.Module):
    """Reads its parameters, waits, and gives each of them a gradient after another wait."""

    def __init__(self, unit: Unit) -> None:
        super().__init__()
        self.unit = unit
        self.weights = nn.ParameterList(torch.zeros(count) for count in unit.elements)

    def forward(self, inputs: Tensor) -> Tensor:
        read = [weight.view_as(weight) for weight in self.weights]
        result: Tensor = _Wait.apply(inputs, self.unit, *read)  # type: ignore[no-untyped-call]
        return result


class _Wait(torch.autograd.Function):
    """Hands its input on, and waits in both passes."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, unit: Unit, *weights: Tensor) -> Tensor:
        ctx.unit, ctx.shapes = unit, [weight.shape for weight in weights]
        time.sleep(unit.forward_s)
        return inputs + 1

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        time.sleep(ctx.unit.backward_s)
        own = [torch.full(shape, 1e-3) for shape in ctx.shapes]
        return gradients[0], None, *own
