"""What an optimiser's updates take, and where in an iteration they do.

Problem. A parameter is updated after its gradient has arrived and before it is read. On a processor
that takes as long as copying it some times.

Method. The optimiser steps on copies of the parameters, with gradients as large. In the graph an op
comes before each first reader of some parameters: what it reads comes through that op, which takes
their share, by bytes, of a whole step. So it waits for their transfers, as the reader did.

Guarantee. The model does not change. Forward ops take as much longer in sum as a step of the
optimiser, and every order of ops that was possible is, with updates in between.

Complexity. Copies of parameters, gradients and the optimiser's state; O(ops + parameters).
Source. Own.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.graphs import Graph, Op
from planner.profiling.timing import Clock

__all__ = ["time_updates", "with_updates"]


def time_updates(
    model: nn.Module,
    optimizer: Callable[[list[Tensor]], Optimizer],
    repetitions: int,
    clock: Clock,
    one_of: Callable[[Sequence[int]], float] = median,
) -> int:
    """Return the time of a step, in ns, after one that makes the optimiser's state."""
    copies: list[Tensor] = []
    for parameter in model.parameters():
        if parameter.grad is not None:
            copies.append(nn.Parameter(parameter.detach().clone()))
            copies[-1].grad = torch.zeros_like(parameter)
    made = optimizer(copies)
    times = []
    for _ in range(1 + repetitions):
        start = clock()
        made.step()
        times.append(clock() - start)
    return round(one_of(times[1:]))


def with_updates(graph: Graph, step_ns: int) -> Graph:
    """Return a graph in which updates are ops.

    Parameters
    ----------
    graph : Graph
        Ops named as `measure` does.
    step_ns : int
        What the updates of all parameters take.
    """
    size_of: dict[int, int] = {}  # by first reader
    rank = {index: place for place, index in enumerate(graph.topological)}
    firsts = [min(readers, key=rank.__getitem__) for readers in graph.readers]
    for parameter, first in zip(graph.parameters, firsts, strict=True):
        size_of[first] = size_of.get(first, 0) + parameter.size_bytes
    name_of = {first: f"{_called(graph.ops[first])}:update/forward" for first in size_of}
    total, done, ops = sum(size_of.values()), 0, list[Op]()
    for index, op in enumerate(graph.ops):
        if index in size_of:
            before, done = done, done + size_of[index]
            duration_ns = done * step_ns // total - before * step_ns // total
            ops.append(Op(name_of[index], duration_ns, "forward", op.after))
        after = (*op.after, name_of[index]) if index in size_of else op.after
        ops.append(replace(op, after=after))
    parameters = (
        replace(parameter, read_by=(name_of[first], *parameter.read_by))
        for parameter, first in zip(graph.parameters, firsts, strict=True)
    )
    return Graph(tuple(ops), tuple(parameters))


def _called(op: Op) -> str:
    return op.name.removesuffix("/forward")
