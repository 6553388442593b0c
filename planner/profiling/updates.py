"""Time the optimiser's updates and insert them into the dataflow graph.

Problem: A parameter is updated between the arrival of its gradient and its next read. On a
processor an update costs about as much as several copies of the parameter.
Method: Time the optimiser on copies of the parameters, with gradients of the same size. In the
graph an update op precedes each op that is the first reader of some parameters; it takes their
share of the step, by bytes, and waits for their transfers in place of the reader.
Guarantee: The model does not change. The forward ops grow by the time of one optimiser step in
total. Every order of ops stays possible, with the updates in between.
Complexity: Copies of parameters, gradients and optimiser state; O(ops + parameters).
Source: own.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.model.graphs import Graph, Op
from planner.profiling.timing import Clock


def time_updates(
    model: nn.Module,
    optimizer: Callable[[list[Tensor]], Optimizer],
    repetitions: int,
    clock: Clock,
    one_of: Callable[[Sequence[int]], float] = median,
) -> int:
    """Return the time of one optimiser step (ns), after a first step that creates its state."""
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
    """Return the graph with update ops; `step_ns` is the time of all updates together."""
    size_of: dict[int, int] = {}  # by first reader
    rank = {index: place for place, index in enumerate(graph.topological)}
    firsts = [min(readers, key=rank.__getitem__) for readers in graph.readers]
    for parameter, first in zip(graph.parameters, firsts, strict=True):
        size_of[first] = size_of.get(first, 0) + parameter.size_bytes
    name_of = {
        first: f"{graph.ops[first].name.removesuffix('/forward')}:update/forward"
        for first in size_of
    }
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
