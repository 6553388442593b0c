"""Puts into a forward graph where parameters have to be up to date.

Problem. A transfer that lasts into the next forward pass has to be waited for, and its parameters
updated, right before the first operation that reads one of them; a compiler must move neither.

Method. An operation of our own, which says that it changes those parameters in place, stands before
that read. It gives a number to whoever waits and updates.

Guarantee. Every read of a parameter in the graph stands behind the operation that finishes it.

Complexity. O(nodes + edges); one operation for each place, which costs some 10 µs in a step.

Source. Hashemi et al., *Caramel* §4.3 (transfers in the forward pass); torch's operator registry.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.fx import Graph, Node

__all__ = ["Waiting", "insert_finishing"]

Finish = Callable[[Sequence[int]], None]


class Waiting:
    """What the operation calls, by its number; an operation's arguments can be no objects."""

    _all: ClassVar[WeakValueDictionary[int, "Waiting"]] = WeakValueDictionary()
    _numbers = count()

    def __init__(self, finish: Finish) -> None:
        self.number = next(self._numbers)
        self.finish = finish
        self._all[self.number] = self

    @classmethod
    def called(cls, _parameters: list[Tensor], number: int, batches: list[int]) -> None:
        """Finish batches, as the operation."""
        waiting = cls._all.get(number)
        if waiting is not None:  # else its backend is gone, with nothing left to finish
            waiting.finish(batches)


_LIBRARY = torch.library.Library("planner", "FRAGMENT")
_LIBRARY.define("finish(Tensor(a!)[] parameters, int number, int[] batches) -> ()")
_LIBRARY.impl("finish", Waiting.called, "CompositeExplicitAutograd")
torch.library.register_fake("planner::finish", lambda *_: None, lib=_LIBRARY)


def insert_finishing(
    graph: Graph,
    reading: Mapping[Node, Sequence[int]],
    waiting: Waiting,
) -> list[tuple[Node, tuple[int, ...]]]:
    """Put the operations into a forward graph; return which node each precedes, and its batches.

    Parameters
    ----------
    graph : Graph
        The graph, in its final order.
    reading : mapping of Node to sequence of int
        The batches that carry each parameter, by its placeholder.
    waiting : Waiting
        What the operations call.
    """
    members: dict[int, list[Node]] = {}
    for parameter, batches in reading.items():
        for batch in batches:
            members.setdefault(batch, []).append(parameter)
    done: set[int] = set()
    places = []
    finish: Any = torch.ops.planner.finish.default
    for node in list(graph.nodes):
        if node.op == "placeholder":
            continue
        read = dict.fromkeys(
            batch for argument in node.all_input_nodes for batch in reading.get(argument, ())
        )
        batches = [batch for batch in read if batch not in done]
        if not batches:
            continue
        done.update(batches)
        changed = dict.fromkeys(node for batch in batches for node in members[batch])
        with graph.inserting_before(node):
            inserted = graph.call_function(finish, (list(changed), waiting.number, batches))
        inserted.meta["val"] = None
        places.append((node, tuple(batches)))
    graph.lint()
    return places
