"""The ops of a model: the calls of its layers, what is computed between them, what reads what.

What autograd does not record has to be put in order by a rule. An op without recorded inputs
follows the op before it in the order of execution, unless it is known to read the model's input; an
op without any record (evaluation-mode dropout, integers) also precedes the op behind it. This
orders more than the model may ask for, never less than is known.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from torch import Tensor, nn
from torch.autograd.graph import Node

from planner.layers import unique_names
from planner.profiling.calls import Call
from planner.profiling.graph import order_number

__all__ = ["Flow", "Operation", "Stretches", "flow", "operations", "updating_ops"]

_SHOWN_NODES = 3
"""Most kinds of nodes in the name of an op."""


class Stretches:
    """The stretches of a run, told apart by autograd's order numbers.

    Stretch 0 lies before the first layer, 1 is the first layer, 2 what follows it, 3 the second
    layer and so on; the last one is the loss. Stretch -1 is what was there before the model ran.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        leaves = [call for call in calls if call.leaf]
        self.layers = len(leaves)
        self._bounds = [calls[0].first]
        for leaf in leaves:
            self._bounds += [leaf.first, leaf.end]
        self._bounds.append(calls[0].end + 1)

    @property
    def loss(self) -> int:
        """The stretch of the loss."""
        return 2 * self.layers + 1

    def at(self, number: int) -> int:
        """Return the stretch of an order number."""
        return bisect_right(self._bounds, number) - 1

    def layer(self, stretch: int) -> int:
        """Return the layer that counts a stretch: the one before it, if there is one."""
        return min(max((stretch - 1) // 2, 0), self.layers - 1)


@dataclass(slots=True)
class Flow:
    """What autograd recorded of one run, by stretches.

    Attributes
    ----------
    names : dict of int to str
        What the nodes of each stretch do, with the module they were made in.
    edges : set of (int, int)
        Which stretch reads which earlier one: pairs (read, reading).
    sources : set of int
        Stretches that read what was there before the model ran, such as its input.
    updates : dict of Tensor to set of int
        Stretches that compute a gradient of each leaf tensor.
    """

    names: dict[int, str] = field(default_factory=dict)
    edges: set[tuple[int, int]] = field(default_factory=set)
    sources: set[int] = field(default_factory=set)
    updates: dict[Tensor, set[int]] = field(default_factory=dict)


def flow(nodes: Iterable[Node], calls: Sequence[Call]) -> Flow:
    """Return what the nodes of one run, in the order of computation, say of its stretches."""
    stretches = Stretches(calls)
    result = Flow()
    for stretch, group in groupby(nodes, key=lambda node: stretches.at(order_number(node))):
        if stretch < 0:
            continue
        made = list(group)
        result.names[stretch] = _described(made, calls)
        for node in made:
            for producer, _ in node.next_functions:
                if producer is None:
                    continue
                if type(producer).__name__ == "AccumulateGrad":
                    leaf: Tensor = producer.variable  # type: ignore[attr-defined]
                    result.updates.setdefault(leaf, set()).add(stretch)
                else:
                    read = stretches.at(order_number(producer))
                    # A view that is read after its base was changed gets its node after its
                    # reader's: the earlier stretch counts as the one that is read.
                    edge = min(read, stretch), max(read, stretch)
                    if edge[0] < 0:
                        result.sources.add(edge[1])
                    elif edge[0] < edge[1]:
                        result.edges.add(edge)
    return result


def _described(nodes: Sequence[Node], calls: Sequence[Call]) -> str:
    """Return what nodes do, such as ``block:add+relu``, after the module the first was made in."""
    number = order_number(nodes[0])
    module = next(
        (call.module for call in reversed(calls) if call.first < number < call.end),
        "",  # the loss
    )
    kinds = list(dict.fromkeys(re.sub(r"Backward\d*$", "", node.name()).lower() for node in nodes))
    what = "+".join(kinds[:_SHOWN_NODES] + ["..."] * (len(kinds) > _SHOWN_NODES))
    return f"{module}:{what}" if module else what


@dataclass(frozen=True, slots=True)
class Operation:
    """One op, in the forward and, if it has any, the backward pass.

    Attributes
    ----------
    name : str
        Its name, different from every other op's.
    layer : int
        The layer that counts its time.
    reads : tuple of int
        Earlier ops whose results it needs.
    gradient_from : tuple of int
        Later ops whose backward passes give it its gradient, where autograd recorded them.
    """

    name: str
    layer: int
    reads: tuple[int, ...]
    gradient_from: tuple[int, ...]


def operations(
    stretches: Stretches, layer_names: Sequence[str], run: Flow, everything: Flow
) -> tuple[tuple[Operation, ...], list[int]]:
    """Return a model's ops in the order of execution, and the op that counts each stretch.

    Every layer and the loss are an op, and so is what else made nodes. A stretch that is no op is
    counted by the op before it; one before all ops by the first.

    Parameters
    ----------
    stretches : Stretches
        Those of the run.
    layer_names : sequence of str
        Name of each layer.
    run : Flow
        What autograd records of the model and the loss.
    everything : Flow
        What it records when frozen parts are tracked, too; `run` again if that cannot be known.
    """
    recorded = {**everything.names, **run.names}
    names = {2 * layer + 1: name for layer, name in enumerate(layer_names)}
    names |= {stretch: name for stretch, name in recorded.items() if stretch not in names}
    names[stretches.loss] = "loss"
    names = dict(zip(names, unique_names(names.values()), strict=True))
    present = sorted(names)
    owners = [max(bisect_right(present, at) - 1, 0) for at in range(stretches.loss + 1)]

    sources = run.sources | everything.sources
    reads: list[set[int]] = [set() for _ in present]
    gradient_from: list[set[int]] = [set() for _ in present]
    for read, reading in run.edges | everything.edges:
        reads[owners[reading]].add(owners[read])
    for read, reading in run.edges:
        gradient_from[owners[read]].add(owners[reading])
    for op, stretch in enumerate(present[1:], start=1):
        unknown = not reads[op] and stretch not in sources
        if unknown or present[op - 1] not in recorded:
            reads[op].add(op - 1)
    return tuple(
        Operation(
            names[stretch],
            stretches.layer(stretch),
            tuple(sorted(reads[op])),
            tuple(sorted(gradient_from[op])),
        )
        for op, stretch in enumerate(present)
    ), owners


def updating_ops(
    layers: Mapping[nn.Parameter, int], run: Flow, owners: Sequence[int]
) -> dict[nn.Parameter, tuple[int, ...]]:
    """Return the ops that compute each parameter's gradient, earliest in the forward pass first.

    Where autograd does not say (a recomputed layer, a parameter without a gradient), it is the op
    of the parameter's own layer.
    """
    return {
        parameter: tuple(sorted({owners[at] for at in run.updates.get(parameter, {2 * layer + 1})}))
        for parameter, layer in layers.items()
    }
