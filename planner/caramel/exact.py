"""Grouping and order of transfers together, to the optimum, as a constraint program.

Problem: parameter j has b_j bytes, a head r_j and a tail q_j (`planner.caramel.windows`). A group
of parameters, or of ranges of their bytes, is sent as one transfer: it starts once all its members
are ready and the channel is free, takes f(its bytes), and max(end + tail of a member) bounds the
iteration from below, as computation does. Minimise the iteration. Sending every parameter alone is
already 1 | r_j, q_j | Cmax, strongly NP-hard.

Model: K transfers in time order, some at the end possibly empty. x_jk is j's part of transfer k.
A_k(r) says that transfer k starts at r or later, for every distinct head r; T_k(q) that V >= end_k
+ q, for every distinct tail q; V is the objective. What is sent of j up to k needs A_k(r_j), what
is sent from k on needs T_k(q_j); the first rises with k and the second falls, so both are linear
without a big-M:

    start_k >= sum over heads of (r - next smaller r) A_k(r)
    sum over l <= k of x_jl <= b_j A_k(r_j)
    V >= end_k + sum over tails of (q - next smaller q) T_k(q)
    sum over l >= k of x_jl <= b_j T_k(q_j)

The duration is an integer at least the exact rational value of one linear piece that holds the
size; there every coefficient is an integer (`_line`).

How many transfers suffice, if f is subadditive (two transfers are never faster than one of both;
`_is_subadditive` checks it exactly on the pieces): H + D - 1, with H distinct heads and D distinct
tails, whether parameters may be split or not; so K = min(n, H + D - 1) for whole ones. Proof: of
the optimal plans, every transfer as early as it can be, take one with the fewest transfers; V is
its value. If transfers i and i + 1 were one, started when i started, it would end no later than
i + 1 does now. As that plan is not allowed, or the fewest would not be, a member of i + 1 has its
head in (start_i, start_{i+1}], or a member of i its due date, V - tail, in [end_i, end_{i+1}).
These intervals are disjoint for different i, so no head and no due date stands for two of the K - 1
pairs. The least head is at most start_1, and the latest due date at least the last end: they stand
for none. So K - 1 <= (H - 1) + (D - 1). For other costs K = n, and splitting is refused.

Guarantee: optimal, unless the deadline passes: then the best plan found, and a bound. Plans are
priced in exact integers; numbers too large for the solver are refused, never rounded.
Complexity: exponential; K (n + H + D) Booleans.
Source: own; OR-Tools CP-SAT with one worker and a fixed seed.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

from planner.caramel.jackson import preemptive_bound
from planner.caramel.windows import Windows, windows
from planner.costs import Piece, TransferCost
from planner.deadline import Deadline
from planner.errors import InvalidInputError, NotApplicableError
from planner.graphs import Graph

__all__ = ["Grouping", "OpOrder", "best_grouping", "best_op_order"]

_LIMIT = 2**60
"""CP-SAT adds in 63 bits; every linear expression of a model stays below this."""

_FIRST_ROUND = 0.3
"""Deterministic time of the first round of a search, in about seconds; the rounds double."""

Part = tuple[int, int]
"""A parameter's index and a number of its bytes."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """A plan: what is sent together, and in which order.

    Attributes
    ----------
    groups : tuple of tuple of (int, int)
        The transfers in time order, each a tuple of pairs (parameter index, bytes); empty if
        `value` is None.
    value : int or None
        What an iteration lasts, in ns; None if no plan better than `upper` was found.
    lower_bound : int
        No plan lasts less. With `value` None and `lower_bound` equal to `upper`, it is proven that
        no plan is better than `upper`.
    timed_out : bool
        Whether the deadline cut the search short.
    """

    groups: tuple[tuple[Part, ...], ...]
    value: int | None
    lower_bound: int
    timed_out: bool


@dataclass(frozen=True, slots=True)
class OpOrder:
    """An order of the backward ops, for which the best plan of whole parameters is best.

    Attributes
    ----------
    backward : tuple of int
        Indices of the backward ops in the order in which they run.
    value : int
        What an iteration lasts with that order and the best plan found for it, in ns.
    lower_bound : int
        No order and plan last less.
    timed_out : bool
        Whether the deadline cut the search short.
    """

    backward: tuple[int, ...]
    value: int
    lower_bound: int
    timed_out: bool


def best_grouping(
    windows: Windows,
    cost: TransferCost,
    *,
    deadline: Deadline,
    split: bool = False,
    quantum: int = 1,
    upper: int | None = None,
    lower: int = 0,
    max_work: float | None = None,
) -> Grouping:
    """Group and order the transfers so that the iteration is shortest.

    Parameters
    ----------
    windows : Windows
        The parameters and their windows.
    cost : TransferCost
        What a transfer costs.
    deadline : Deadline
        When to stop.
    split : bool
        Whether a parameter's bytes may be sent in several transfers.
    quantum : int
        A parameter is split at multiples of so many bytes only; the last of its pieces holds the
        rest as well.
    upper : int, optional
        Value of a known plan, in ns: only better ones are looked for.
    lower : int
        A known bound, in ns: a plan that meets it ends the search.
    max_work : float, optional
        CP-SAT's deterministic time after which to stop, about seconds; the same on every machine.

    Raises
    ------
    InvalidInputError
        If `quantum` is not positive.
    NotApplicableError
        If `split` is set and the cost is not subadditive, or if the numbers are too large for
        CP-SAT.
    """
    if quantum < 1:
        raise InvalidInputError("quantum", f"expected an integer >= 1, got {quantum}")
    total = sum(windows.sizes)
    count = places = len(windows.sizes)
    if _is_subadditive(cost, total):
        enough = len(set(windows.heads)) + len(set(windows.tails)) - 1
        places = enough if split else min(count, enough)
    elif split:
        raise NotApplicableError(
            "method",
            "exact splits parameters only if two transfers never take less time than one of the "
            "same bytes: they do with this cost",
        )
    known = (
        _simple_plan(windows, cost) if upper is None else Grouping((), None, upper, timed_out=False)
    )
    limit = known.lower_bound
    lower = max(lower, preemptive_bound(windows, cost))
    if lower >= limit:
        return known
    search = _Search(limit - 1, lower, min(windows.heads) + min(windows.tails))
    shares = [_shares(size, quantum if split else size) for size in windows.sizes]
    unit = gcd(*(share.bytes for one in shares for share in one))
    transfers = search.transfers(shares, places, unit, _lines(cost, unit, total, search.horizon))
    search.after_heads(transfers, windows.heads)
    search.before_tails(transfers, windows.tails)
    if not split:
        search.alike_in_order(transfers, windows)
    answer = search.run(deadline, (2,) if split else (0, 1), max_work)
    if answer.solution is None:
        bound = limit if answer.finished else answer.bound
        return Grouping(known.groups, known.value, bound, timed_out=not answer.finished)
    groups = transfers.groups(answer.solution)
    value = _value(windows, cost, groups)
    return Grouping(
        groups,
        value,
        value if answer.finished else min(answer.bound, value),
        timed_out=not answer.finished,
    )


def best_op_order(graph: Graph, cost: TransferCost, *, deadline: Deadline) -> OpOrder:
    """Order the backward ops so that the best plan of whole parameters is as good as can be.

    The forward ops keep the order of ``graph.pass_order("forward")``. For small graphs: it says
    how far another order of the backward ops is from the best.

    Parameters
    ----------
    graph : Graph
        The graph.
    cost : TransferCost
        What a transfer costs.
    deadline : Deadline
        When to stop; the order of ``graph.pass_order("backward")`` is tried in any case.

    Raises
    ------
    NotApplicableError
        If the numbers are too large for CP-SAT.
    """
    forward = graph.pass_order("forward")
    ops = graph.pass_order("backward")
    known = windows(graph, ops, forward)
    left = deadline.remaining_s
    part = Deadline(None if left is None else left / 4)
    start = best_grouping(known, cost, deadline=part)
    assert start.value is not None
    limit = start.value
    total, count = sum(known.sizes), len(known.sizes)
    durations = {index: graph.ops[index].duration_ns for index in ops}
    position = {index: number for number, index in enumerate(ops)}
    # Every gradient is ready at the earliest once all that its updaters need has run.
    ancestors: dict[int, set[int]] = {}
    for index in ops:
        needed = [one for one in graph.predecessors[index] if one in durations]
        ancestors[index] = {index}.union(*(ancestors[one] for one in needed))
    earliest = tuple(
        sum(durations[one] for one in set().union(*(ancestors[index] for index in updaters)))
        for updaters in graph.updaters
    )
    relaxed = Windows(known.sizes, earliest, known.tails, known.backward_ns, known.forward_ns)
    lower = preemptive_bound(relaxed, cost)
    if lower >= limit:
        return OpOrder(ops, limit, limit, timed_out=False)
    classes = sorted({tuple(sorted(updaters)) for updaters in graph.updaters})
    places = count
    if _is_subadditive(cost, total):
        places = min(count, len(classes) + len(set(known.tails)) - 1)
    search = _Search(limit - 1, lower, min(known.tails))
    shares = [_shares(size, size) for size in known.sizes]
    unit = gcd(*known.sizes)
    transfers = search.transfers(shares, places, unit, _lines(cost, unit, total, search.horizon))
    ends = search.ops(graph, ops, known.backward_ns)
    search.after_ops(transfers, graph.updaters, ends)
    search.before_tails(transfers, known.tails)
    answer = search.run(deadline, (0, 1))
    if answer.solution is None:
        bound = limit if answer.finished else answer.bound
        return OpOrder(ops, limit, bound, timed_out=not answer.finished)
    solution = answer.solution
    end = {index: solution.value(variable) for index, variable in ends.items()}
    backward = tuple(
        sorted(ops, key=lambda index: (end[index] - durations[index], end[index], position[index]))
    )
    value = _value(windows(graph, backward, forward), cost, transfers.groups(solution))
    return OpOrder(
        backward,
        value,
        value if answer.finished else min(answer.bound, value),
        timed_out=not answer.finished,
    )


def _value(windows: Windows, cost: TransferCost, groups: Sequence[Sequence[Part]]) -> int:
    """Return what an iteration lasts."""
    clock, value = 0, windows.compute_ns
    for group in groups:
        clock = max(clock, *(windows.heads[j] for j, _ in group))
        clock += cost.cost_ns(sum(size for _, size in group))
        value = max(value, *(clock + windows.tails[j] for j, _ in group))
    return value


def _simple_plan(windows: Windows, cost: TransferCost) -> Grouping:
    """Return the better of all parameters in one transfer, and each alone as they become ready."""
    parts = list(enumerate(windows.sizes))
    parts.sort(key=lambda part: (windows.heads[part[0]], -windows.tails[part[0]]))
    plans = [(tuple(parts),), tuple((part,) for part in parts)]
    value, _, plan = min(
        (_value(windows, cost, plan), number, plan) for number, plan in enumerate(plans)
    )
    return Grouping(plan, value, value, timed_out=False)


class _Share(NamedTuple):
    """Pieces of one size that a parameter consists of."""

    bytes: int
    pieces: int


def _shares(size: int, quantum: int) -> list[_Share]:
    """Return the whole quanta of a parameter and, always last, what is left."""
    pieces, rest = divmod(size, quantum)
    return [_Share(quantum, pieces)] * (pieces > 0) + [_Share(rest, 1)] * (rest > 0)


class _Line(NamedTuple):
    """A linear piece in integers: on first <= u <= last, duration·den >= num·u + constant."""

    first: int
    last: int
    num: int
    constant: int
    den: int


def _lines(cost: TransferCost, unit: int, total: int, horizon: int) -> list[_Line]:
    """Return the pieces that may give the time of a transfer of u units, none of them dominated."""
    lines = [line for piece in cost.pieces() if (line := _line(piece, unit, total)) is not None]

    def at(line: _Line, size: int) -> Fraction:
        return Fraction(line.num * size + line.constant, line.den)

    def rules_out(other: _Line, line: _Line) -> bool:
        return (
            other.first <= line.first
            and line.last <= other.last
            and all(at(other, size) <= at(line, size) for size in (line.first, line.last))
        )

    kept: list[_Line] = []
    for line in lines:
        if min(at(line, line.first), at(line, line.last)) > horizon:
            continue
        if not any(rules_out(other, line) for other in kept):
            kept = [other for other in kept if not rules_out(line, other)]
            kept.append(line)
    return kept


def _line(piece: Piece, unit: int, total: int) -> _Line | None:
    """Return the integer form of a piece for transfers of whole units, None if none lies on it.

    The time, rounded up, is what counts, so the slope may be replaced by the least fraction not
    below it whose denominator is at most the longest distance from the piece's start: for any
    distance t up to that, ⌈slope·t⌉ / t is such a fraction, so neither exceeds the other.
    """
    stop = total if piece.stop is None else min(piece.stop, total)
    first, last = max(1, -(-piece.start // unit)), stop // unit
    if first > last:
        return None
    # In steps of `step` bytes from the start of the piece every whole number of units is met.
    step = gcd(unit, piece.start)
    slope = piece.slope * step
    if piece.value_ns.denominator == 1:
        slope = _rounded_up(slope, (last * unit - piece.start) // step)
    den = lcm(slope.denominator, piece.value_ns.denominator)
    constant = (piece.value_ns - slope * (piece.start // step)) * den
    return _Line(first, last, int(slope * (unit // step) * den), int(constant), den)


def _rounded_up(value: Fraction, most: int) -> Fraction:
    """Return the least fraction >= `value` with a denominator of at most `most`."""
    near = value.limit_denominator(max(most, 1))
    if near >= value:
        return near
    # The next one after a/b is c/d with bc - ad = 1 and d as large as can be.
    a, b = near.numerator, near.denominator
    d = pow(-a, -1, b)
    d += (max(most, 1) - d) // b * b
    return Fraction(a * d + 1, b * d)


def _is_subadditive(cost: TransferCost, total: int) -> bool:
    """Return whether f(a) + f(b) >= f(a + b), unrounded, for all real sizes a, b from 1 on.

    Only up to `total` bytes together. Sufficient: the time per byte never rises, as on every piece
    with a non-negative value at size 0. Otherwise: f is linear between its corners, so the
    difference is linear on polygons whose vertices have two of a, b and a + b at corners.
    """
    pieces = [
        (first, last, piece)
        for piece in cost.pieces()
        if (first := max(piece.start, 1))
        <= (last := total if piece.stop is None else min(piece.stop, total))
    ]
    if all(piece.value_ns >= piece.slope * piece.start for _, _, piece in pieces):
        return True
    corners = {Fraction(size) for first, last, _ in pieces for size in (first, last)}
    for number, (first, last, piece) in enumerate(pieces):
        for other_first, other_last, other in pieces[:number]:
            if piece.slope != other.slope:
                meeting = (other.time(0) - piece.time(0)) / (piece.slope - other.slope)
                if max(first, other_first) < meeting < min(last, other_last):
                    corners.add(meeting)
    sizes = sorted(corners)
    times = [
        min(
            piece.value_ns + piece.slope * (size - piece.start)
            for first, last, piece in pieces
            if first <= size <= last
        )
        for size in sizes
    ]

    def time(size: Fraction) -> Fraction:
        right = bisect_left(sizes, size)
        if sizes[right] == size:
            return times[right]
        low, high = sizes[right - 1], sizes[right]
        return times[right - 1] + (times[right] - times[right - 1]) * (size - low) / (high - low)

    return all(
        time(a) + time(b) >= time(a + b)
        for a in sizes
        for b in {*sizes, *(size - a for size in sizes)}
        if b >= 1 and a + b <= total
    )


class _Answer(NamedTuple):
    """The best solution found, a bound on the objective, and whether there is nothing better."""

    solution: Any
    bound: int
    finished: bool


class _Transfers(NamedTuple):
    """The variables of the transfers; `parts` by parameter, share and place."""

    starts: list[Any]
    ends: list[Any]
    shares: list[list[_Share]]
    parts: list[list[list[Any]]]

    def groups(self, solution: Any) -> tuple[tuple[Part, ...], ...]:
        """Return the transfers of a solution."""
        groups = []
        for k in range(len(self.starts)):
            sizes = [
                sum(
                    share.bytes * solution.value(part[k])
                    for share, part in zip(shares, parts, strict=True)
                )
                for shares, parts in zip(self.shares, self.parts, strict=True)
            ]
            groups.append(tuple((j, size) for j, size in enumerate(sizes) if size))
        return tuple(group for group in groups if group)


class _Search:
    """A model whose objective lies between two bounds; its times are `shift` below the real ones.

    What it looks for need not exist.
    """

    def __init__(self, upper: int, lower: int, shift: int) -> None:
        self.lower = lower
        self.base = lower - shift
        self.horizon = upper - shift
        _check_fits(4 * self.horizon, "times")
        self.model = cp_model.CpModel()
        self.excess = self.model.new_int_var(0, upper - lower, "")
        self.model.minimize(self.excess)

    def transfers(
        self, shares: list[list[_Share]], places: int, unit: int, lines: list[_Line]
    ) -> _Transfers:
        """Add transfers in time order, the empty ones last, that send everything."""
        model = self.model
        total = sum(share.bytes * share.pieces for some in shares for share in some) // unit
        for line in lines:
            _check_fits(
                line.den * self.horizon + abs(line.num) * total + abs(line.constant),
                "times and sizes, multiplied by what makes the rates whole,",
            )
        starts = [model.new_int_var(0, self.horizon, "") for _ in range(places)]
        ends = [model.new_int_var(0, self.horizon, "") for _ in range(places)]
        used = [model.new_bool_var("") for _ in range(places)]
        parts = [
            [[model.new_int_var(0, share.pieces, "") for _ in range(places)] for share in some]
            for some in shares
        ]
        for some, variables in zip(shares, parts, strict=True):
            for share, part in zip(some, variables, strict=True):
                model.add(sum(part) == share.pieces)
                for k in range(places):
                    model.add(part[k] <= share.pieces * used[k])
            if len(some) == 2:  # no quanta after the rest
                for k in range(1, places):
                    model.add(sum(variables[0][k:]) <= some[0].pieces * sum(variables[1][k:]))
        model.add(used[0] == 1)
        for k, following in pairwise(range(places)):
            model.add(starts[following] >= ends[k])
            model.add(used[following] <= used[k])
        for k in range(places):
            size = sum(
                share.bytes // unit * part[k]
                for some, variables in zip(shares, parts, strict=True)
                for share, part in zip(some, variables, strict=True)
            )
            self._add_duration(ends[k] - starts[k], size, used[k], total, lines)
        return _Transfers(starts, ends, shares, parts)

    def _add_duration(
        self, duration: Any, size: Any, used: Any, total: int, lines: list[_Line]
    ) -> None:
        model = self.model
        if len(lines) == 1 and lines[0].first == 1 and lines[0].last == total:
            line = lines[0]
            model.add(line.den * duration >= line.num * size + line.constant * used)
            return
        amount = model.new_int_var(0, total, "")
        model.add(amount == size)
        model.add(duration >= 0)
        chosen = [model.new_bool_var("") for _ in lines]
        model.add(sum(chosen) == used)
        for line, literal in zip(lines, chosen, strict=True):
            model.add(amount >= line.first).only_enforce_if(literal)
            model.add(amount <= line.last).only_enforce_if(literal)
            model.add(line.den * duration >= line.num * amount + line.constant).only_enforce_if(
                literal
            )

    def after_heads(self, transfers: _Transfers, of: Sequence[int]) -> None:
        """Add that a transfer starts after the head of everything sent up to then."""
        model, heads = self.model, sorted(set(of))
        previous: dict[int, Any] = {}
        for k, start in enumerate(transfers.starts):
            reached = {head: model.new_bool_var("") for head in heads[1:]}
            model.add(start >= sum((high - low) * reached[high] for low, high in pairwise(heads)))
            for low, high in pairwise(heads[1:]):
                model.add(reached[high] <= reached[low])
            for head, before in previous.items():
                model.add(before <= reached[head])
            self._allow(transfers, slice(k + 1), of, reached)
            previous = reached

    def before_tails(self, transfers: _Transfers, of: Sequence[int]) -> None:
        """Add that the objective is at least each end and the longest tail of all from then on."""
        model, tails = self.model, sorted(set(of))
        previous: dict[int, Any] = {}
        for k, end in enumerate(transfers.ends):
            waiting = {tail: model.new_bool_var("") for tail in tails[1:]}
            longest = sum((high - low) * waiting[high] for low, high in pairwise(tails))
            model.add(end + longest <= self.base + self.excess)
            for low, high in pairwise(tails[1:]):
                model.add(waiting[high] <= waiting[low])
            for tail, before in previous.items():
                model.add(before >= waiting[tail])
            self._allow(transfers, slice(k, None), of, waiting)
            previous = waiting

    def _allow(
        self, transfers: _Transfers, places: slice, of: Sequence[int], literals: dict[int, Any]
    ) -> None:
        """Add that a parameter is sent in some places only if the literal of its value is true."""
        for value, some, variables in zip(of, transfers.shares, transfers.parts, strict=True):
            if value in literals:
                for share, part in zip(some, variables, strict=True):
                    self.model.add(sum(part[places]) <= share.pieces * literals[value])

    def alike_in_order(self, transfers: _Transfers, windows: Windows) -> None:
        """Add an order of whole parameters of one size.

        Of two, the one that has no later head and no shorter tail goes first, or with the other:
        exchanging them breaks nothing.
        """
        sizes, tails = windows.sizes, windows.tails
        jobs = sorted(range(len(sizes)), key=lambda j: (sizes[j], windows.heads[j], -tails[j]))
        for number, j in enumerate(jobs):
            nearest: int | None = None  # those that go before a parameter before j follow from it
            for i in reversed(jobs[:number]):
                if sizes[i] != sizes[j]:
                    break
                if tails[i] < tails[j] or (nearest is not None and tails[i] >= nearest):
                    continue
                nearest = tails[i]
                for k in range(1, len(transfers.starts)):
                    self.model.add(sum(transfers.parts[j][0][:k]) <= sum(transfers.parts[i][0][:k]))

    def ops(self, graph: Graph, ops: Sequence[int], backward_ns: int) -> dict[int, Any]:
        """Add the backward ops, one at a time without a pause, and return their ends."""
        model = self.model
        ends: dict[int, Any] = {}
        intervals = []
        for index in ops:
            duration = graph.ops[index].duration_ns
            start = model.new_int_var(0, backward_ns - duration, "")
            ends[index] = start + duration
            intervals.append(model.new_interval_var(start, duration, ends[index], ""))
            for needed in graph.predecessors[index]:
                if needed in ends:
                    model.add(start >= ends[needed])
        model.add_no_overlap(intervals)
        return ends

    def after_ops(
        self, transfers: _Transfers, updaters: Sequence[tuple[int, ...]], ends: dict[int, Any]
    ) -> None:
        """Add that a transfer starts after the updaters of everything sent up to then."""
        model = self.model
        previous: dict[int, Any] = {}
        relevant = sorted({index for some in updaters for index in some})
        for k, start in enumerate(transfers.starts):
            reached = {index: model.new_bool_var("") for index in relevant}
            for index, literal in reached.items():
                model.add(start >= ends[index]).only_enforce_if(literal)
            for index, before in previous.items():
                model.add(before <= reached[index])
            for some, variables in zip(updaters, transfers.parts, strict=True):
                for index in some:
                    model.add(sum(variables[0][: k + 1]) <= reached[index])
            previous = reached

    def run(
        self, deadline: Deadline, levels: Sequence[int], max_work: float | None = None
    ) -> _Answer:
        """Solve; the same answer every time unless the deadline passes.

        Parameters
        ----------
        deadline : Deadline
            When to stop.
        levels : sequence of int
            How much of the model CP-SAT puts into its linear relaxation. Neither none nor more is
            always better, and the wrong choice can cost a factor of ten or more: several levels
            take turns, for a deterministic time that doubles, each looking for something better.
        max_work : float, optional
            Deterministic time after which to stop.
        """
        best, bound, turn = None, 0, 0
        left = float("inf") if max_work is None else max_work
        while not deadline.passed and left > 0:
            solver = cp_model.CpSolver()
            solver.parameters.num_workers = 1
            solver.parameters.random_seed = 1
            solver.parameters.linearization_level = levels[turn % len(levels)]
            budget = left
            if len(levels) > 1:
                budget = min(left, _FIRST_ROUND * 2.0 ** (turn // len(levels)))
            solver.parameters.max_deterministic_time = budget
            left -= budget
            if deadline.remaining_s is not None:
                solver.parameters.max_time_in_seconds = deadline.remaining_s
            status = solver.solve(self.model)
            assert status != cp_model.MODEL_INVALID, self.model.validate()
            if status == cp_model.INFEASIBLE:
                return _Answer(best, self.lower, finished=True)
            if status == cp_model.OPTIMAL:
                return _Answer(solver, self.lower, finished=True)
            floating = solver.best_objective_bound  # a float, exact below 2^53
            if bound < floating < 2**53:
                bound = int(floating)
            if status == cp_model.FEASIBLE:
                best = solver
                self.model.add(self.excess < solver.value(self.excess))
            turn += 1
        return _Answer(best, self.lower + bound, finished=False)


def _check_fits(amount: int, what: str) -> None:
    if amount >= _LIMIT:
        raise NotApplicableError(
            "method",
            f"exact adds {what} in {_LIMIT.bit_length() - 1} bits; "
            f"here a sum may need {amount.bit_length()}",
        )
