"""Dataflow graphs of one training iteration: operations, parameters and dependences.

An op belongs to the forward or the backward pass. A parameter's gradient is complete once all ops
that update it have run. The parameter is needed when the first op of the next forward pass that
reads it starts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Any, Literal, TypeVar

from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_VALUE, did_you_mean, set_integer, shown

T = TypeVar("T")

Phase = Literal["forward", "backward"]
"""The two passes of an iteration."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of the computation.

    Attributes
    ----------
    name : str
        Unique name.
    duration_ns : int
        Its time; 0 is allowed.
    phase : {"forward", "backward"}
        The pass it belongs to.
    after : tuple of str
        Names of the ops whose results it needs.
    spread_ns : int or None
        Interquartile range of its measured times; None if unknown.
    """

    name: str
    duration_ns: int
    phase: Phase
    after: tuple[str, ...] = ()
    spread_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter, and where its transfer window begins and ends.

    Attributes
    ----------
    name : str
        Unique name.
    size_bytes : int
        Size of its gradient, at least 1.
    updated_by : tuple of str
        Backward ops that contribute to its gradient; it is complete after the last of them.
    read_by : tuple of str
        Forward ops that use it; it is needed by the first of them.
    """

    name: str
    size_bytes: int
    updated_by: tuple[str, ...]
    read_by: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    """A validated dataflow graph. Validation is O(ops + dependencies).

    Attributes
    ----------
    ops : tuple of Op
        In any order; planning algorithms break ties by this order.
    parameters : tuple of Parameter
        At least one.

    Raises
    ------
    InvalidInputError
        At the first invalid field: repeated names, unknown ops, cycles (with their ops), a forward
        op that depends on a backward op, a backward op that depends on no forward op, a parameter
        updated in the forward pass, read in the backward pass, or without bytes.
    """

    ops: tuple[Op, ...]
    parameters: tuple[Parameter, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", tuple(self.ops))
        object.__setattr__(self, "parameters", tuple(self.parameters))
        if not self.ops:
            raise InvalidInputError("ops", "expected at least one op")
        if not self.parameters:
            raise InvalidInputError("parameters", "expected at least one parameter")
        self._check_ops()
        self._check_parameters()
        _check_sum(sum(op.duration_ns for op in self.ops), "ops", "ns")
        _check_sum(
            sum(parameter.size_bytes for parameter in self.parameters), "parameters", "bytes"
        )

    @cached_property
    def position(self) -> Mapping[str, int]:
        """Index of each op by name."""
        return {op.name: index for index, op in enumerate(self.ops)}

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the ops that each op needs, without repetition."""
        position = self.position
        return tuple(tuple(dict.fromkeys(position[name] for name in op.after)) for op in self.ops)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the ops that need each op."""
        following: list[list[int]] = [[] for _ in self.ops]
        for index, needed in enumerate(self.predecessors):
            for predecessor in needed:
                following[predecessor].append(index)
        return tuple(map(tuple, following))

    @cached_property
    def updaters(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the ops that update each parameter."""
        return tuple(
            tuple(dict.fromkeys(self.position[name] for name in parameter.updated_by))
            for parameter in self.parameters
        )

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the ops that read each parameter."""
        return tuple(
            tuple(dict.fromkeys(self.position[name] for name in parameter.read_by))
            for parameter in self.parameters
        )

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """Cache of values derived from the graph alone, shared by all problems with this graph."""
        return {}

    def remembered(self, key: object, make: Callable[[], T]) -> T:
        """Return the value under a key of `memo`, made when it is first asked for."""
        if key not in self.memo:
            self.memo[key] = make()
        value: T = self.memo[key]
        return value

    @cached_property
    def topological(self) -> tuple[int, ...]:
        """A topological order; among available ops, the first in the given order comes next."""
        return tuple(stable_order(self.predecessors))

    def pass_order(self, phase: Phase) -> tuple[int, ...]:
        """Return the stable topological order of one pass."""
        return tuple(index for index in self.topological if self.ops[index].phase == phase)

    def names_of(self, order: Iterable[int]) -> tuple[str, ...]:
        """Return the names of ops, in the order given."""
        return tuple(self.ops[index].name for index in order)

    def scaled(self, computation: Fraction | int) -> "Graph":
        """Return the graph with all times multiplied, each rounded to whole nanoseconds."""
        if computation == 1:
            return self
        ops = []
        for op in self.ops:
            spread = None if op.spread_ns is None else round(op.spread_ns * computation)
            lasts = round(op.duration_ns * computation)
            ops.append(replace(op, duration_ns=lasts, spread_ns=spread))
        return Graph(tuple(ops), self.parameters)

    def _check_ops(self) -> None:
        names: dict[str, int] = {}
        for index, op in enumerate(self.ops):
            path = f"ops[{index}]"
            if not isinstance(op, Op):
                raise InvalidInputError(path, f"expected an Op, got {shown(op)}")
            _check_name(op.name, names, index, "ops")
            set_integer(op, "duration_ns", path=f"{path}.ns")
            if op.spread_ns is not None:
                set_integer(op, "spread_ns", path=f"{path}.spread_ns")
            if op.phase not in ("forward", "backward"):
                raise InvalidInputError(
                    f"{path}.pass", f"expected forward or backward, got {shown(op.phase)}"
                )
        for index, op in enumerate(self.ops):
            for place, name in enumerate(_strings(op.after, f"ops[{index}].after")):
                path = f"ops[{index}].after[{place}]"
                needed = self.ops[_known(name, names, path)]
                if op.phase == "forward" and needed.phase == "backward":
                    raise InvalidInputError(
                        path,
                        f"forward op {shown(op.name)} cannot depend on backward op {shown(name)}",
                    )
        order = self.topological
        if len(order) < len(self.ops):
            cycle = cycle_of(self.predecessors, order)
            loop = " -> ".join(self.ops[index].name for index in [*cycle, cycle[0]])
            raise InvalidInputError(f"ops[{cycle[0]}].after", f"the ops form a cycle: {loop}")
        grounded = [False] * len(self.ops)
        for index in order:
            op = self.ops[index]
            grounded[index] = op.phase == "forward" or any(
                grounded[needed] for needed in self.predecessors[index]
            )
        for index, op in enumerate(self.ops):
            if not grounded[index]:
                raise InvalidInputError(
                    f"ops[{index}].after",
                    f"backward op {shown(op.name)} depends on no forward op, not even indirectly",
                )

    def _check_parameters(self) -> None:
        names: dict[str, int] = {}
        for index, parameter in enumerate(self.parameters):
            path = f"parameters[{index}]"
            if not isinstance(parameter, Parameter):
                raise InvalidInputError(path, f"expected a Parameter, got {shown(parameter)}")
            _check_name(parameter.name, names, index, "parameters")
            set_integer(parameter, "size_bytes", minimum=1, path=f"{path}.bytes")
            for field, phase, wrong in (
                ("updated_by", "backward", "updated in the forward pass"),
                ("read_by", "forward", "read in the backward pass"),
            ):
                ends = _strings(getattr(parameter, field), f"{path}.{field}")
                if not ends:
                    raise InvalidInputError(f"{path}.{field}", "expected at least one op")
                for place, name in enumerate(ends):
                    where = f"{path}.{field}" + (f"[{place}]" if len(ends) > 1 else "")
                    op = self.ops[_known(name, self.position, where)]
                    if op.phase != phase:
                        raise InvalidInputError(
                            where,
                            f"expected a {phase} op, got {shown(name)}: a parameter cannot be "
                            f"{wrong}",
                        )


def stable_order(needed: Sequence[Sequence[int]]) -> list[int]:
    """Return a topological order; among available nodes, the first comes next.

    `needed` are the nodes that each node needs. Nodes of cycles, or depending on them, are missing.
    """
    missing = [len(before) for before in needed]
    following: list[list[int]] = [[] for _ in needed]
    for node, before in enumerate(needed):
        for other in before:
            following[other].append(node)
    ready = [node for node, count in enumerate(missing) if not count]
    heapify(ready)
    order = []
    while ready:
        node = heappop(ready)
        order.append(node)
        for other in following[node]:
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, other)
    return order


def cycle_of(needed: Sequence[Sequence[int]], order: Iterable[int]) -> list[int]:
    """Return a cycle of nodes that an order lacks, each needed by the next, lowest index first."""
    left = set(range(len(needed))) - set(order)
    seen: dict[int, None] = {}
    node = min(left)
    while node not in seen:  # every remaining node needs a remaining node
        seen[node] = None
        node = next(before for before in needed[node] if before in left)
    loop = list(seen)[list(seen).index(node) :][::-1]
    first = loop.index(min(loop))
    return loop[first:] + loop[:first]


def _check_sum(amount: int, path: str, unit: str) -> None:
    if amount > MAX_VALUE:
        raise InvalidInputError(
            path, f"expected {unit} that sum to at most {MAX_VALUE}, got {shown(amount)}"
        )


def _check_name(name: Any, names: dict[str, int], index: int, field: str) -> None:
    path = f"{field}[{index}].name"
    if not isinstance(name, str):
        raise InvalidInputError(path, f"expected a string, got {shown(name)}")
    if name in names:
        raise InvalidInputError(path, f"{shown(name)} given twice, first in {field}[{names[name]}]")
    names[name] = index


def _strings(names: Any, path: str) -> tuple[str, ...]:
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(path, f"expected names, got {shown(names)}")
    return names


def _known(name: str, names: Mapping[str, int], path: str) -> int:
    if name not in names:
        hint = did_you_mean(name, names)
        raise InvalidInputError(path, f"no op is called {shown(name)}{hint and f'; {hint}'}")
    return names[name]
