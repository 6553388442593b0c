"""The overlap problem of one rank's compiled graph.

The rank issues operations one after another. Computation occupies it. A start hands a transfer to
its channel, which serves transfers in the order of their starts. A wait blocks the rank until the
transfer has ended. A tensor is allocated when its producer is issued, and freed after its last
reader. Collectives of one kind can be merged into one transfer.

Source: own; the operations are those of PyTorch's functional collectives in an FX graph.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral
from operator import attrgetter
from types import NoneType
from typing import Any

from planner.model.errors import InvalidInputError
from planner.model.graphs import cycle_of, stable_order
from planner.model.validation import integer, shown, total

# ---
# Validity of a graph's dependences, and the graph queries of the family; O(n + m).


def followers(after: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the successors of each node, with repetitions as in `after`."""
    result: list[list[int]] = [[] for _ in after]
    for node, earlier in enumerate(after):
        for other in earlier:
            result[other].append(node)
    return result


def is_acyclic(after: Sequence[Sequence[int]], later: Sequence[Sequence[int]]) -> bool:
    """Return whether the graph has no cycle; `later` are the followers."""
    missing = [len(earlier) for earlier in after]
    free = [node for node, count in enumerate(missing) if not count]
    for node in free:
        for other in later[node]:
            missing[other] -= 1
            if not missing[other]:
                free.append(other)
    return len(free) == len(after)


def check_order(after: Sequence[Sequence[int]], names: Sequence[str]) -> None:
    """Raise `InvalidInputError` if there is a cycle, or a node stands before one it needs."""
    for node, earlier in enumerate(after):
        for number, other in enumerate(earlier):
            if other < node:
                continue
            known = stable_order(after)
            if len(known) < len(after):
                cycle = cycle_of(after, known)[::-1]
                ring = " after ".join(names[node] for node in [*cycle[:8], cycle[0]])
                raise InvalidInputError("nodes", f"a cycle of {len(cycle)} nodes: {ring}")
            raise InvalidInputError(
                f"nodes[{node}].after[{number}]",
                f"{names[node]} stands before {names[other]}, which it needs",
            )


def check_waits(problem: "Problem") -> None:
    """Raise `InvalidInputError` if a wait does not follow its start, or a reader its producer."""
    for place, collective in enumerate(problem.collectives):
        if collective.start not in problem.nodes[collective.wait].after:
            raise InvalidInputError(
                f"collectives[{place}].wait",
                f"expected a node after node {collective.start}, which starts it",
            )
    for place, tensor in enumerate(problem.tensors):
        if tensor.producer is None:
            continue
        for number, reader in enumerate(tensor.readers):
            if reader <= tensor.producer:
                raise InvalidInputError(
                    f"tensors[{place}].readers[{number}]",
                    f"expected a node after node {tensor.producer}, which produces the tensor, "
                    f"got {reader}: a reader depends on the producer",
                )


def producers_needed(problem: "Problem") -> dict[int, tuple[int, ...]]:
    """Return, by reader, the producers of its tensors that are not in its `after`.

    Some may be implied by other dependences: adding them changes nothing.
    """
    read: dict[int, dict[int, None]] = {}
    for tensor in problem.tensors:
        if tensor.producer is not None:
            for reader in tensor.readers:
                if tensor.producer not in problem.nodes[reader].after:
                    read.setdefault(reader, {})[tensor.producer] = None
    return {reader: tuple(producers) for reader, producers in read.items()}


MAX_NODES = 2**21


@dataclass(frozen=True, slots=True)
class Node:
    """One operation that the rank issues.

    Attributes
    ----------
    name : str
        Name in the graph.
    after : tuple of int
        Numbers of the nodes that must be issued before.
    duration_ns : int
        Time on the rank; 0 for views, starts and waits.
    """

    name: str
    after: tuple[int, ...] = ()
    duration_ns: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """Collectives that can be merged with each other.

    Attributes
    ----------
    name : str
        Such as "all_gather bfloat16".
    channel : str
        What its transfers occupy, such as a process group.
    times : tuple of pairs of int
        Bytes and nanoseconds of measured transfers, bytes rising and times not falling. Between
        points, times are interpolated and rounded up. Below the first point its time holds; beyond
        the last the last slope continues.
    mergeable : bool
        Whether several can be one transfer.
    """

    name: str
    channel: str
    times: tuple[tuple[int, int], ...]
    mergeable: bool = True

    def time_ns(self, size_bytes: int) -> int:
        """Return the time of a transfer of `size_bytes`; O(points)."""
        times = self.times
        if size_bytes <= times[0][0] or len(times) == 1:
            return times[0][1]
        place = 1
        while place < len(times) - 1 and times[place][0] < size_bytes:
            place += 1
        (low, begin), (high, end) = times[place - 1], times[place]
        return begin - ((low - size_bytes) * (end - begin) // (high - low))


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective of the graph: a node that starts it, and a node that waits for it.

    Attributes
    ----------
    start, wait : int
        Numbers of the nodes.
    kind : int
        Number of its kind.
    size_bytes : int
        Bytes, as in its kind's times.
    pack_ns, unpack_ns : int
        Computation at the start and at the wait, if merged.
    pack_bytes : int
        Memory from the start to the wait in addition to its tensors, if merged.
    unpack_bytes : int
        Memory at the wait in addition to its tensors, if merged.
    input_tensor : int or None
        Number of the tensor that the transfer reads, so that it is not freed before the wait; if
        merged, it is packed, and may be freed after the start, which is one of its readers.
    """

    start: int
    wait: int
    kind: int
    size_bytes: int
    pack_ns: int = 0
    unpack_ns: int = 0
    pack_bytes: int = 0
    unpack_bytes: int = 0
    input_tensor: int | None = None


@dataclass(frozen=True, slots=True)
class Tensor:
    """Memory that nodes share.

    Attributes
    ----------
    size_bytes : int
        Its size.
    producer : int or None
        The node that allocates it; None if it exists from the beginning.
    readers : tuple of int
        The nodes that need it; they depend on its producer. It is freed after the last reader, or
        after its producer if it has none. Without producer and readers it stays.
    kept : bool
        Whether it stays to the end.
    """

    size_bytes: int
    producer: int | None
    readers: tuple[int, ...] = ()
    kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One rank's graph, in an order that respects its dependences.

    A reader of a tensor depends on its producer; where that dependence is missing, `nodes` gets it.

    Parameters
    ----------
    nodes : sequence of Node
        In the graph's own order, which is a plan: each after the nodes it needs.
    kinds : sequence of Kind
        Kinds of collectives.
    collectives : sequence of Collective
        Each with nodes of its own, its wait after its start.
    tensors : sequence of Tensor
        Tensors, which occupy memory.
    memory_limit_bytes : int, optional
        Limit on the bytes of tensors at any time; by default none.

    Raises
    ------
    InvalidInputError
        If an input is invalid, with the path of the field.
    """

    nodes: Sequence[Node]
    kinds: Sequence[Kind] = ()
    collectives: Sequence[Collective] = ()
    tensors: Sequence[Tensor] = ()
    memory_limit_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("nodes", "kinds", "collectives", "tensors"):
            object.__setattr__(self, name, tuple(map(_plain, getattr(self, name))))
        count = len(self.nodes)
        if not 1 <= count <= MAX_NODES:
            raise InvalidInputError("nodes", f"expected 1 to {MAX_NODES} nodes, got {count}")
        for place, node in enumerate(self.nodes):
            integer(node.duration_ns, f"nodes[{place}].duration_ns")
            for number, other in enumerate(node.after):
                _known(other, count, f"nodes[{place}].after[{number}]", "node")
        self._check_collectives()
        _check_durations(self)
        self._check_tensors()
        check_order([node.after for node in self.nodes], [node.name for node in self.nodes])
        check_waits(self)
        needed = producers_needed(self)
        if needed:
            nodes = list(self.nodes)
            for reader, producers in needed.items():
                before = nodes[reader]
                nodes[reader] = replace(before, after=(*before.after, *producers))
            object.__setattr__(self, "nodes", tuple(nodes))

    def _check_collectives(self) -> None:
        used: dict[int, str] = {}
        for place, collective in enumerate(self.collectives):
            path = f"collectives[{place}]"
            _known(collective.kind, len(self.kinds), f"{path}.kind", "kind")
            for name in ("size_bytes", "pack_ns", "unpack_ns", "pack_bytes", "unpack_bytes"):
                integer(getattr(collective, name), f"{path}.{name}")
            read = collective.input_tensor
            if read is not None:
                _known(read, len(self.tensors), f"{path}.input_tensor", "tensor")
                if collective.start not in self.tensors[read].readers:
                    expected = f"expected a tensor that node {collective.start} reads"
                    raise InvalidInputError(f"{path}.input_tensor", expected)
            for name in ("start", "wait"):
                node = getattr(collective, name)
                _known(node, len(self.nodes), f"{path}.{name}", "node")
                if node in used:
                    raise InvalidInputError(f"{path}.{name}", f"node {node} is {used[node]} too")
                used[node] = f"{path}.{name}"
                if self.nodes[node].duration_ns:
                    raise InvalidInputError(
                        f"nodes[{node}].duration_ns", f"expected 0 of {path}.{name}"
                    )

    def _check_tensors(self) -> None:
        count = len(self.nodes)
        for place, tensor in enumerate(self.tensors):
            integer(tensor.size_bytes, f"tensors[{place}].size_bytes")
            if tensor.producer is not None:
                _known(tensor.producer, count, f"tensors[{place}].producer", "node")
            for number, reader in enumerate(tensor.readers):
                _known(reader, count, f"tensors[{place}].readers[{number}]", "node")
        occupied = sum(tensor.size_bytes for tensor in self.tensors)
        packed = sum(it.pack_bytes + it.unpack_bytes for it in self.collectives)
        total(occupied + packed, "tensors", "the sum of size_bytes")
        if self.memory_limit_bytes is None:
            return
        limit = integer(self.memory_limit_bytes, "memory_limit_bytes")
        object.__setattr__(self, "memory_limit_bytes", limit)

    def retimed(
        self, nodes: Sequence[Node], kinds: Sequence[Kind], collectives: Sequence[Collective]
    ) -> "Problem":
        """Return the problem with other durations; its dependences are not checked again."""
        made = copy(self)
        for name, rows in (("nodes", nodes), ("kinds", kinds), ("collectives", collectives)):
            object.__setattr__(made, name, tuple(rows))
        _check_durations(made)
        return made

    @property
    def computation_ns(self) -> int:
        """Sum of all computation."""
        return sum(node.duration_ns for node in self.nodes)

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels, in the order of the kinds."""
        return tuple(dict.fromkeys(kind.channel for kind in self.kinds))


def read_until_waits(problem: Problem, merged: Iterable[int]) -> dict[int, list[int]]:
    """Return, by tensor, the waits until which transfers read it, if these members are merged."""
    packed, waits = set(merged), dict[int, list[int]]()
    for number, it in enumerate(problem.collectives):
        if it.input_tensor is not None and number not in packed:
            waits.setdefault(it.input_tensor, []).append(it.wait)
    return waits


def with_limit(problem: Problem, limit: int | None) -> Problem:
    """Return the problem with another memory limit."""
    return replace(problem, memory_limit_bytes=limit)


_FIELDS = {row: attrgetter(*row.__slots__) for row in (Node, Kind, Collective, Tensor)}


def _plain(value: Any) -> Any:
    """Return a row with Python integers in place of others, such as NumPy's."""
    if _is_plain(value):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    fields = _FIELDS.get(type(value))
    if fields is None or all(map(_is_plain, fields(value))):
        return value
    return replace(value, **{name: _plain(getattr(value, name)) for name in value.__slots__})


def _is_plain(value: Any) -> bool:
    """Return whether a value needs no conversion by `_plain`; most need none."""
    kind = type(value)
    if kind is tuple:
        return all(type(part) is int for part in value)
    return kind in (int, str, bool, NoneType)


def _known(number: object, count: int, path: str, what: str) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < count:
        raise InvalidInputError(
            path, f"expected a {what} from 0 to {count - 1}, got {shown(number)}"
        )


def _check_durations(problem: Problem) -> None:
    for place, kind in enumerate(problem.kinds):
        _check_times(kind, f"kinds[{place}].times")
    moved = sum(collective.size_bytes for collective in problem.collectives)
    total(moved, "collectives", "the sum of size_bytes")
    spent = sum(node.duration_ns for node in problem.nodes)
    alone = sum(
        problem.kinds[it.kind].time_ns(it.size_bytes) + it.pack_ns + it.unpack_ns
        for it in problem.collectives
    )
    merged = sum(kind.time_ns(moved) for kind in problem.kinds)
    total(spent + alone + merged, "nodes", "the sum of all times")


def _check_times(kind: Kind, path: str) -> None:
    if not kind.times:
        raise InvalidInputError(path, "expected at least one pair of bytes and nanoseconds")
    for place, (size, time) in enumerate(kind.times):
        integer(size, f"{path}[{place}][0]")
        integer(time, f"{path}[{place}][1]")
    for place, ((size, time), (larger, later)) in enumerate(pairwise(kind.times), 1):
        if larger <= size:
            expected = f"expected more than {size}, got {larger}"
            raise InvalidInputError(f"{path}[{place}][0]", expected)
        if later < time:
            raise InvalidInputError(f"{path}[{place}][1]", f"expected at least {time}, got {later}")
