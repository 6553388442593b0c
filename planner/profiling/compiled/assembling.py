"""A dataflow graph of what the compiled graphs of a model compute.

Problem. Planners see ops, and what each needs; a compiled model is graphs, each called as a whole.

Method. Each operation is an op that needs what `dependences` says. Whatever runs between two graphs
(the loss, and Python where the model is not one graph) is an op that needs all of the graph before
it, and is needed by all of the next one.

Guarantee. Every order of the ops that the dataflow graph admits can be imposed on the compiled
graphs. Sums of the ops' times are those of the passes.

Complexity. O(nodes + edges). Source. Own.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor
from torch.fx import Node

from planner.graphs import Graph, Op, Parameter, Phase
from planner.profiling.compiled.capture import Call, Stage
from planner.profiling.compiled.dependences import dependences
from planner.profiling.compiled.naming import op_name
from planner.profiling.repeating import interquartile

__all__ = ["dataflow", "joints"]


def joints(stages: Sequence[Stage]) -> list[str]:
    """Return the names of what runs between the stages of one iteration, in their order."""
    names = []
    for before, after in pairwise(stages):
        if before.phase != after.phase:
            names += ["loss/forward", "loss/backward"]
        else:
            names.append(f"break{max(before.graph, after.graph)}/{after.phase}")
    return names


def dataflow(
    calls: Sequence[Sequence[Call]],
    between: Sequence[Sequence[int]],
    one_of: Callable[[Sequence[int]], float],
    sizes: Mapping[str, Tensor],
) -> Graph:
    """Return the dataflow graph of iterations that ran the same stages.

    Parameters
    ----------
    calls : sequence of sequence of Call
        Of each iteration the calls of its stages, timed.
    between : sequence of sequence of int
        Of each iteration the times of its `joints`.
    one_of : callable
        Makes one time of those of all iterations.
    sizes : dict of str to Tensor
        The parameters.
    """
    stages = [call.stage for call in calls[0]]
    names = joints(stages)
    joint_times = list(zip(*between, strict=True))
    ops: list[Op] = []
    updated: dict[str, list[str]] = {}
    read: dict[str, list[str]] = {}
    start: tuple[str, ...] = ()
    joint = 0
    for place, stage in enumerate(stages):
        times = zip(*(each[place].times_ns for each in calls), strict=True)
        needed = dependences(stage.module.graph)
        called = {node: op_name(stage.graph, node, stage.phase) for node in needed}
        ends = dict.fromkeys(called.values())
        for node, measured in zip(called, times, strict=True):
            after = tuple(called[before] for before in needed[node])
            for name in after:
                ends.pop(name, None)
            ops.append(_op(called[node], stage.phase, after or start, measured, one_of))
        last = tuple(ends) or start
        _connect(stage, called, start, last, read, updated)
        start = last
        if place + 1 < len(stages):
            count = 1 if stages[place + 1].phase == stage.phase else 2
            for name in names[joint : joint + count]:
                phase: Phase = "forward" if name.endswith("/forward") else "backward"
                ops.append(_op(name, phase, start, joint_times[joint], one_of))
                start, joint = (name,), joint + 1
    return Graph(
        tuple(ops),
        tuple(
            Parameter(
                name,
                tensor.numel() * tensor.element_size(),
                tuple(dict.fromkeys(updated[name])),
                tuple(dict.fromkeys(read[name])),
            )
            for name, tensor in sizes.items()
            if name in updated
        ),
    )


def _op(
    name: str,
    phase: Phase,
    after: tuple[str, ...],
    times: Sequence[int],
    one_of: Callable[[Sequence[int]], float],
) -> Op:
    return Op(name, round(one_of(times)), phase, after, interquartile(times))


def _connect(
    stage: Stage,
    called: Mapping[Node, str],
    start: Sequence[str],
    last: Sequence[str],
    read: dict[str, list[str]],
    updated: dict[str, list[str]],
) -> None:
    """Note which ops of a stage read parameters, or complete their gradients."""
    graph = stage.module.graph
    if stage.phase == "forward":
        inputs = graph.find_nodes(op="placeholder")
        for name, place in stage.parameters.items():
            users = [called[user] for user in called if inputs[place] in user.all_input_nodes]
            read.setdefault(name, []).extend(users or last)
        return
    (output,) = graph.find_nodes(op="output")
    gradients: Any = output.args[0]
    for name, place in stage.parameters.items():
        gradient = gradients[place]
        if isinstance(gradient, Node):
            ready = (called[gradient],) if gradient in called else start
            updated.setdefault(name, []).extend(ready)
