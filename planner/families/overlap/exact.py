"""Constraint program for small graphs: order, merging and memory at once.

Model: a place per node, a Boolean per pair whose order is open, and one per set of collectives that
may be one transfer (docs/overlap.md, "The constraint program").
Guarantee: optimal, or proof of infeasibility. At a time limit, the incumbent and the bound, at
worst the graph's own order.
Complexity: exponential; up to `MAX_NODES` nodes, and `MAX_MERGED` collectives of a kind.
Source: own; OR-Tools CP-SAT with one worker and a fixed seed.
"""

from collections.abc import Iterable
from itertools import combinations
from typing import Any

from ortools.sat.python import cp_model

from planner.families.overlap.evaluation import Plan, own_order, peak_memory
from planner.families.overlap.problem import Problem
from planner.model.errors import NotApplicableError
from planner.solving.cpsat import solved
from planner.solving.deadline import Deadline
from planner.solving.family import OUT_OF_TIME
from planner.solving.methods import Outcome
from planner.solving.result import Infeasibility

MAX_NODES = 40
MAX_MERGED = 8
_MAX_BITS = 45
"""Limit (bits) on the sum of times: longer times would have to be rounded, and nothing proven."""

_MAX_MEMORY_BITS = 62
"""Limit (bits) on the sum of memory: the solver's integers."""


def applicable(problem: Problem) -> bool:
    """Return whether the graph is small enough for the exact method."""
    kinds = [it.kind for it in problem.collectives if problem.kinds[it.kind].mergeable]
    # The model's largest sum of memory: tensors, and buffers of all sets of collectives.
    packed = sum(it.pack_bytes + it.unpack_bytes for it in problem.collectives)
    occupied = sum(tensor.size_bytes for tensor in problem.tensors) + (packed << MAX_MERGED)
    return (
        len(problem.nodes) <= MAX_NODES
        and max((kinds.count(kind) for kind in set(kinds)), default=0) <= MAX_MERGED
        and _horizon(problem).bit_length() <= _MAX_BITS
        and occupied.bit_length() <= _MAX_MEMORY_BITS
    )


def solve_exact(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Find the optimal plan; raise `NotApplicableError` for too large graphs."""
    if not applicable(problem):
        raise NotApplicableError(
            "method",
            f"exact takes up to {MAX_NODES} nodes, {MAX_MERGED} collectives of a kind that can be "
            f"merged, times of {_MAX_BITS} bits together and memory of {_MAX_MEMORY_BITS}",
        )
    model = _Model(problem)
    solver, found, proven = solved(model.model, deadline)
    if proven and not found:
        reason = Infeasibility(
            f"no order holds at most {problem.memory_limit_bytes} bytes", ("memory_limit_bytes",)
        )
        return Outcome(None, infeasibility=reason)
    if not found:
        plan = own_order(problem)
        limit = problem.memory_limit_bytes
        if limit is not None and peak_memory(problem, plan)[0] > limit:
            return Outcome(None, timed_out=True, infeasibility=OUT_OF_TIME)
        return Outcome(plan, timed_out=True)
    order = sorted(range(len(problem.nodes)), key=lambda node: solver.value(model.place[node]))
    merged = tuple(
        members for members, x in model.groups if len(members) > 1 and solver.boolean_value(x)
    )
    bound = -int(-solver.best_objective_bound // 1)
    return Outcome(Plan(tuple(order), merged), bound, not proven)


def _horizon(problem: Problem) -> int:
    packed = sum(it.pack_ns + it.unpack_ns for it in problem.collectives)
    total = sum(it.size_bytes for it in problem.collectives)
    longest = sum(problem.kinds[it.kind].time_ns(total) for it in problem.collectives)
    return problem.computation_ns + packed + longest + 1


class _Model:
    """The constraint program of a problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.model = problem, cp_model.CpModel()
        model, count = self.model, len(problem.nodes)
        self.horizon = _horizon(problem)
        self.place = [model.new_int_var(0, count - 1, "") for _ in range(count)]
        model.add_all_different(self.place)
        self.before: list[list[Any]] = [[0] * count for _ in range(count)]
        self._order()
        self.groups: list[tuple[tuple[int, ...], Any]] = []
        self._merge()
        self._times()
        if problem.memory_limit_bytes is not None:
            self._memory(problem.memory_limit_bytes)

    def _order(self) -> None:
        model, count = self.model, len(self.place)
        needs = [0] * count
        for node, about in enumerate(self.problem.nodes):
            for other in about.after:
                needs[node] |= needs[other] | 1 << other
        for first in range(count):
            for second in range(first + 1, count):
                if needs[second] >> first & 1:
                    self.before[first][second] = 1
                    model.add(self.place[first] < self.place[second])
                    continue
                x = model.new_bool_var("")
                self.before[first][second], self.before[second][first] = x, ~x
                model.add(self.place[first] < self.place[second]).only_enforce_if(x)
                model.add(self.place[first] > self.place[second]).only_enforce_if(~x)

    def _merge(self) -> None:
        problem, model = self.problem, self.model
        by_kind: dict[int, list[int]] = {}
        for number, it in enumerate(problem.collectives):
            by_kind.setdefault(it.kind, []).append(number)
        self.alone: dict[int, Any] = {}
        self.time: dict[int, Any] = {}
        for kind, members in by_kind.items():
            most = len(members) if problem.kinds[kind].mergeable else 1
            sets = [s for size in range(1, most + 1) for s in combinations(members, size)]
            chosen = [(s, model.new_bool_var("")) for s in sets]
            self.groups += chosen
            for member in members:
                mine = [(s, x) for s, x in chosen if member in s]
                model.add_exactly_one(x for _, x in mine)
                self.alone[member] = next(x for s, x in mine if len(s) == 1)
                self.time[member] = sum(
                    problem.kinds[kind].time_ns(sum(problem.collectives[m].size_bytes for m in s))
                    * x
                    for s, x in mine
                )
            for s, x in chosen:
                for nodes in (
                    [problem.collectives[m].start for m in s],
                    [problem.collectives[m].wait for m in s],
                ):
                    for a, b in combinations(nodes, 2):
                        gap = self.place[a] - self.place[b]
                        model.add_linear_constraint(gap, 1 - len(s), len(s) - 1).only_enforce_if(x)

    def _times(self) -> None:
        problem, model = self.problem, self.model
        count = len(problem.nodes)
        begin = [model.new_int_var(0, self.horizon, "") for _ in range(count)]
        busy: list[Any] = [node.duration_ns for node in problem.nodes]
        launched: dict[int, Any] = {}
        for number, it in enumerate(problem.collectives):
            busy[it.start] = it.pack_ns * (1 - self.alone[number])
            busy[it.wait] = it.unpack_ns * (1 - self.alone[number])
            launched[number] = model.new_int_var(0, self.horizon, "")
            model.add(launched[number] >= begin[it.start] + busy[it.start])
            model.add(begin[it.wait] >= launched[number] + self.time[number])
        for first in range(count):
            for second in range(count):
                x = self.before[first][second]
                if first != second and not (isinstance(x, int) and not x):
                    rule = model.add(begin[second] >= begin[first] + busy[first])
                    if not isinstance(x, int):
                        rule.only_enforce_if(x)
        together: dict[tuple[int, int], list[Any]] = {}
        for s, x in self.groups:
            for a, b in combinations(sorted(s), 2):
                together.setdefault((a, b), []).append(x)
        makespan = model.new_int_var(0, self.horizon, "")
        for node in range(count):
            model.add(makespan >= begin[node] + busy[node])
        for a in range(len(problem.collectives)):
            model.add(makespan >= launched[a] + self.time[a])
            for b in range(len(problem.collectives)):
                early, late = problem.collectives[a], problem.collectives[b]
                same = problem.kinds[early.kind].channel == problem.kinds[late.kind].channel
                if a == b or not same:
                    continue
                x = self.before[early.start][late.start]
                if isinstance(x, int) and not x:
                    continue
                conditions = [] if isinstance(x, int) else [x]
                merged = together.get((min(a, b), max(a, b)), [])
                if merged:
                    apart = model.new_bool_var("")
                    model.add(sum(merged) + apart == 1)
                    conditions.append(apart)
                    for y in merged:
                        model.add(launched[a] == launched[b]).only_enforce_if(y)
                rule = model.add(launched[b] >= launched[a] + self.time[a])
                if conditions:
                    rule.only_enforce_if(*conditions)
        model.minimize(makespan)

    def _memory(self, limit: int) -> None:
        problem, model = self.problem, self.model
        count = len(problem.nodes)
        held: list[list[Any]] = [[] for _ in range(count)]
        reading: dict[int, list[int]] = {}
        for number, it in enumerate(problem.collectives):
            if it.input_tensor is not None:
                reading.setdefault(it.input_tensor, []).append(number)
        for number, tensor in enumerate(problem.tensors):
            for node in range(count):
                alive = self._alive(tensor, reading.get(number, ()), node)
                held[node].append(tensor.size_bytes * alive)
        for s, x in self.groups:
            if len(s) < 2:
                continue
            members = [problem.collectives[m] for m in s]
            packed = sum(it.pack_bytes for it in members)
            unpacked = sum(it.unpack_bytes for it in members)
            for node in range(count):
                begun = self._any([self._upto(it.start, node) for it in members])
                ended = self._all(*(self._upto(it.wait, node, strict=True) for it in members))
                waited = self._any([self._upto(it.wait, node) for it in members])
                held[node].append(packed * self._all(x, begun, self._not(ended)))
                held[node].append(unpacked * self._all(x, waited, self._not(ended)))
        for node in range(count):
            model.add(sum(held[node]) <= limit)

    def _alive(self, tensor: Any, reading: Iterable[int], node: int) -> Any:
        """Return whether a tensor is held; lone transfers of `reading` read it until the wait."""
        made = 1 if tensor.producer is None else self._upto(tensor.producer, node)
        users = tensor.readers or (() if tensor.producer is None else (tensor.producer,))
        if tensor.kept or not users:
            return made
        waited = (
            self._any(
                [
                    self._not(self.alone[number]),
                    self._upto(self.problem.collectives[number].wait, node, strict=True),
                ]
            )
            for number in reading
        )
        over = self._all(*(self._upto(user, node, strict=True) for user in users), *waited)
        return self._all(made, self._not(over))

    def _upto(self, first: int, node: int, *, strict: bool = False) -> Any:
        """Return whether node `first` is issued before `node`, or is that node (unless strict)."""
        return int(not strict) if first == node else self.before[first][node]

    @staticmethod
    def _not(x: Any) -> Any:
        return 1 - x if isinstance(x, int) else ~x

    def _all(self, *conditions: Any) -> Any:
        if any(isinstance(x, int) and not x for x in conditions):
            return 0
        rest = [x for x in conditions if not isinstance(x, int)]
        if len(rest) < 2:
            return rest[0] if rest else 1
        y = self.model.new_bool_var("")
        self.model.add_bool_and(rest).only_enforce_if(y)
        self.model.add_bool_or([*(~x for x in rest), y])
        return y

    def _any(self, conditions: list[Any]) -> Any:
        return self._not(self._all(*(self._not(x) for x in conditions)))
