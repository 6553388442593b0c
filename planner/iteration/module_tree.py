"""The tree of modules, read from the names of a dataflow graph's ops.

Problem: systems that shard parameters by module need to know which module contains which, and a
graph has only ops. An op of a measured graph is called MODULE/forward or MODULE/backward; a call of
a function inside a module is called MODULE:FUNCTION, a second call of a module MODULE#2.

Method: modules contain each other as their dotted names say. A parameter belongs to the module that
reads it first. Modules stand in pre-order, those of one parent in the order in which they compute.

Guarantee: names of any other form are refused, never guessed.

Complexity: O(ops · depth + parameters). Source: own; the names are those `planner profile` gives.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import NotApplicableError
from planner.iteration.problem import Problem
from planner.validation import shown

__all__ = ["Module", "module_tree"]

_OP = re.compile(r"(?P<module>[^:]*?)(#\d+)?(:.*)?/(forward|backward)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Module:
    """One module.

    Attributes
    ----------
    name : str
        Its dotted name; empty for the root.
    stop : int
        Modules [own place, stop) are the module and all in it.
    own : tuple of int
        Parameters of the module itself.
    own_pushed, own_pulled : int
        Bytes of their gradients, and of themselves.
    pushed, pulled : int
        The same for all parameters in the module.
    forward_ns, backward_ns : int
        Computation of all ops in the module.
    """

    name: str
    stop: int
    own: tuple[int, ...]
    own_pushed: int
    own_pulled: int
    pushed: int
    pulled: int
    forward_ns: int
    backward_ns: int


def module_tree(problem: Problem) -> tuple[Module, ...]:
    """Return all modules in pre-order, the root first.

    Raises
    ------
    NotApplicableError
        If an op is not called after its module.
    """
    graph, order = problem.graph, problem.base.order
    names = [_module(op.name) for op in graph.ops]
    children: dict[str, dict[str, None]] = {"": {}}
    for index in (*order.forward, *order.backward):
        path = names[index].split(".") if names[index] else []
        for depth in range(len(path)):
            below = ".".join(path[: depth + 1])
            children[".".join(path[:depth])][below] = None
            children.setdefault(below, {})
    # Children come in the order of their first op in the forward pass, before their siblings.
    preorder, pending = [], [""]
    while pending:
        preorder.append(pending.pop())
        pending.extend(reversed(children[preorder[-1]]))
    place = {name: index for index, name in enumerate(preorder)}
    own: list[list[int]] = [[] for _ in preorder]
    rank = {index: position for position, index in enumerate(order.forward)}
    for j, readers in enumerate(graph.readers):
        own[place[names[min(readers, key=rank.__getitem__)]]].append(j)
    times = {"forward": [0] * len(preorder), "backward": [0] * len(preorder)}
    for name, op in zip(names, graph.ops, strict=True):
        times[op.phase][place[name]] += op.duration_ns
    own_pushed = [sum(problem.pushed[j] for j in members) for members in own]
    own_pulled = [sum(problem.pulled[j] for j in members) for members in own]
    sizes = [1] * len(preorder)
    sums = [sizes, [*own_pushed], [*own_pulled], times["forward"], times["backward"]]
    # In pre-order what is below stands behind: backwards, each sum is complete when it is added.
    for index in range(len(preorder) - 1, 0, -1):
        above = place[preorder[index].rpartition(".")[0]]
        for column in sums:
            column[above] += column[index]
    return tuple(
        Module(preorder[index], index + size, tuple(own[index]), *rest)
        for index, (size, *rest) in enumerate(
            zip(sizes, own_pushed, own_pulled, *sums[1:], strict=True)
        )
    )


def _module(name: str) -> str:
    """Return the module of an op."""
    match = _OP.fullmatch(name)
    if match is None:
        raise NotApplicableError(
            "method",
            f"fsdp_milp needs ops called after their modules, such as block.conv/forward, "
            f"got {shown(name)}",
        )
    return match["module"]


def parameters_in(tree: Sequence[Module], index: int) -> tuple[int, ...]:
    """Return all parameters in a module."""
    return tuple(j for module in tree[index : tree[index].stop] for j in module.own)
