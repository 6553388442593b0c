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

    start_k >= sum over heads of (r - next smaller r) A_k(r),   sum over l <= k of x_jl <= b_j A_k(r_j),
    V >= end_k + sum over tails of (q - next smaller q) T_k(q), sum over l >= k of x_jl <= b_j T_k(q_j).

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

from planner.caramel.jackson import least_rate, preemptive_bound
from planner.caramel.windows import Windows, windows
from planner.costs import Piece, TransferCost
from planner.deadline import Deadline
from planner.errors import InvalidInputError, NotApplicableError
from planner.graphs import Graph

__all__ = ["Grouping", "OpOrder", "best_grouping", "best_op_order"]

_LIMIT = 2**60
"""CP-SAT adds in 63 bits; every linear expression of a model stays below this."""

import os

LIN = int(os.environ.get("LIN", "1"))
INTER = int(os.environ.get("INTER", "0"))
DOM = int(os.environ.get("DOM", "1"))
RATE = int(os.environ.get("RATE", "0"))
MONO = int(os.environ.get("MONO", "1"))
EN = int(os.environ.get("EN", "0"))
DISAG = int(os.environ.get("DISAG", "0"))

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
    count = slots = len(windows.sizes)
    if _is_subadditive(cost, total):
        enough = len(set(windows.heads)) + len(set(windows.tails)) - 1
        slots = enough if split else min(count, enough)
    elif split:
        raise NotApplicableError(
            "method",
            "exact splits parameters only if two transfers never take less time than one of the "
            "same bytes: they do with this cost",
        )
    known = _simple_plan(windows, cost) if upper is None else Grouping((), None, upper, False)
    limit = known.lower_bound
    lower = max(lower, preemptive_bound(windows, cost))
    if lower >= limit:
        return known
    search = _Search(limit - 1, lower, min(windows.heads) + min(windows.tails))
    shares = [_shares(size, quantum if split else size) for size in windows.sizes]
    unit = gcd(*(share.bytes for one in shares for share in one))
    transfers = search.transfers(shares, slots, unit, _lines(cost, unit, total, search.horizon))
    heads = sorted(set(windows.heads))
    for k in range(slots):
        search.after(transfers, k, heads, windows.heads)
    search.before_tails(transfers, windows.tails)
    if DOM:
        search.alike_in_order(transfers, shares, windows)
    if EN:
        search.energy(transfers, windows, cost)
    answer = search.run(deadline)
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
    start = best_grouping(known, cost, deadline=deadline)
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
    slots = count
    if _is_subadditive(cost, total):
        slots = min(count, len(classes) + len(set(known.tails)) - 1)
    search = _Search(limit - 1, lower, 0)
    shares = [_shares(size, size) for size in known.sizes]
    unit = gcd(*known.sizes)
    transfers = search.transfers(shares, slots, unit, _lines(cost, unit, total, search.horizon))
    ends = search.ops(graph, ops, durations, known.backward_ns)
    search.after_ops(transfers, [tuple(sorted(one)) for one in graph.updaters], ends)
    search.before_tails(transfers, known.tails)
    answer = search.run(deadline)
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
        clock = max(clock, max(windows.heads[j] for j, _ in group))
        clock += cost.cost_ns(sum(size for _, size in group))
        value = max(value, clock + max(windows.tails[j] for j, _ in group))
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
    """What the solver says: the best solution, a bound, and whether there is no better one."""

    solution: Any
    bound: int
    finished: bool


class _Transfers(NamedTuple):
    """The variables of the transfers: by slot, and the parts by parameter, share and slot."""

    starts: list[Any]
    ends: list[Any]
    used: list[Any]
    shares: list[list[_Share]]
    parts: list[list[list[Any]]]

    def groups(self, solution: Any) -> tuple[tuple[Part, ...], ...]:
        """Return the transfers of a solution."""
        slots = []
        for k in range(len(self.starts)):
            sizes = [
                sum(
                    share.bytes * solution.value(part[k])
                    for share, part in zip(shares, parts, strict=True)
                )
                for shares, parts in zip(self.shares, self.parts, strict=True)
            ]
            slots.append(tuple((j, size) for j, size in enumerate(sizes) if size))
        return tuple(slot for slot in slots if slot)


class _Search:
    """A model whose objective lies between two bounds; times count from `shift` less."""

    def __init__(self, upper: int, lower: int, shift: int) -> None:
        self.model = cp_model.CpModel()
        self.lower = lower
        self.base = lower - shift
        self.horizon = upper - shift
        self._fits(4 * self.horizon, "times")
        self.excess = self.model.new_int_var(0, upper - lower, "excess")
        self.model.minimize(self.excess)

    @staticmethod
    def _fits(amount: int, what: str) -> None:
        if amount >= _LIMIT:
            raise NotApplicableError(
                "method",
                f"exact adds {what} in 60 bits; here a sum can need {amount.bit_length()}",
            )

    def transfers(
        self, shares: list[list[_Share]], slots: int, unit: int, lines: list[_Line]
    ) -> _Transfers:
        """Add transfers in time order that send everything."""
        model, horizon = self.model, self.horizon
        total = sum(share.bytes * share.pieces for one in shares for share in one) // unit
        for line in lines:
            self._fits(
                line.den * horizon + abs(line.num) * total + abs(line.constant),
                "times and sizes, multiplied by what makes the rates whole,",
            )
        starts = [model.new_int_var(0, horizon, "") for _ in range(slots)]
        ends = [model.new_int_var(0, horizon, "") for _ in range(slots)]
        used = [model.new_bool_var("") for _ in range(slots)]
        parts = [
            [[model.new_int_var(0, share.pieces, "") for _ in range(slots)] for share in one]
            for one in shares
        ]
        flat = [
            (share, part)
            for one, some in zip(shares, parts, strict=True)
            for share, part in zip(one, some, strict=True)
        ]
        for share, part in flat:
            model.add(sum(part) == share.pieces)
            for k in range(slots):
                model.add(part[k] <= share.pieces * used[k])
        for some in parts:
            if len(some) == 2:  # quanta, and a rest that goes with the last of them
                for k in range(1, slots):
                    last = sum(some[1][k:])
                    quanta = next(s for one, s in zip(parts, shares, strict=True) if one is some)[0]
                    model.add(sum(some[0][k:]) <= quanta.pieces * last)
        model.add(used[0] == 1)
        for before, after in pairwise(range(slots)):
            model.add(starts[after] >= ends[before])
            model.add(used[after] <= used[before])
        for k in range(slots):
            size = model.new_int_var(0, total, "")
            model.add(size == sum(share.bytes // unit * part[k] for share, part in flat))
            duration = ends[k] - starts[k]
            if len(lines) == 1 and lines[0].first == 1 and lines[0].last >= total:
                line = lines[0]
                model.add(line.den * duration >= line.num * size + line.constant * used[k])
                continue
            model.add(ends[k] >= starts[k])
            chosen = [model.new_bool_var("") for _ in lines]
            model.add(sum(chosen) == used[k])
            model.add(size == 0).only_enforce_if(~used[k])
            for line, literal in zip(lines, chosen, strict=True):
                model.add(size >= line.first).only_enforce_if(literal)
                model.add(size <= line.last).only_enforce_if(literal)
                model.add(line.den * duration >= line.num * size + line.constant).only_enforce_if(
                    literal
                )
        return _Transfers(starts, ends, used, shares, parts)

    def after(self, transfers: _Transfers, k: int, heads: list[int], of: Sequence[int]) -> None:
        """Transfer k starts at each of the distinct heads that something sent by then has."""
        model = self.model
        reached = {head: model.new_bool_var("") for head in heads[1:]}
        for low, high in pairwise(heads[1:]):
            model.add(reached[high] <= reached[low])
        model.add(
            transfers.starts[k]
            >= sum((high - low) * reached[high] for low, high in pairwise(heads))
        )
        for head, shares, parts in zip(of, transfers.shares, transfers.parts, strict=True):
            if head in reached:
                for share, part in zip(shares, parts, strict=True):
                    model.add(sum(part[: k + 1]) <= share.pieces * reached[head])
        if MONO:
            if k:
                for head in heads[1:]:
                    model.add(self._previous[head] <= reached[head])
            self._previous = reached
        self.__dict__.setdefault("reached", []).append(reached)

    def energy(self, transfers, windows, cost) -> None:
        rate = least_rate(cost, sum(windows.sizes))
        alpha = 0
        if hasattr(cost, "ns_per_byte"):
            rate, alpha = cost.ns_per_byte, cost.startup_ns
        rate = Fraction(int(rate * 2**16), 2**16)
        num, den = rate.numerator, rate.denominator
        model = self.model
        h0, t0 = min(windows.heads), min(windows.tails)
        for k in range(len(transfers.starts)):
            if EN & 1:
                for tail in sorted(set(windows.tails))[0:]:
                    lit = self.waiting[k].get(tail, transfers.used[k])
                    work = sum(
                        share.bytes * var
                        for j, t in enumerate(windows.tails)
                        if t >= tail
                        for share, part in zip(transfers.shares[j], transfers.parts[j])
                        for var in part[k:]
                    )
                    model.add(
                        den * (self.base + self.excess - transfers.starts[k])
                        >= den * (tail - t0 + alpha) * lit + num * work
                    )
            if EN & 2:
                for head in sorted(set(windows.heads))[0:]:
                    lit = self.reached[k].get(head, 1)
                    work = sum(
                        share.bytes * var
                        for j, t in enumerate(windows.heads)
                        if t >= head
                        for share, part in zip(transfers.shares[j], transfers.parts[j])
                        for var in part[: k + 1]
                    )
                    model.add(den * transfers.ends[k] >= den * (head - h0) * lit + num * work)

    def before_tails(self, transfers: _Transfers, of: Sequence[int]) -> None:
        """The objective is at least every end with the longest tail of all sent from then on."""
        model = self.model
        tails = sorted(set(of))
        previous = None
        for k in range(len(transfers.ends)):
            waiting = {tail: model.new_bool_var("") for tail in tails[1:]}
            for low, high in pairwise(tails[1:]):
                model.add(waiting[high] <= waiting[low])
            model.add(
                transfers.ends[k]
                + sum((high - low) * waiting[high] for low, high in pairwise(tails))
                <= self.base + self.excess
            )
            for tail, shares, parts in zip(of, transfers.shares, transfers.parts, strict=True):
                if tail in waiting:
                    for share, part in zip(shares, parts, strict=True):
                        model.add(sum(part[k:]) <= share.pieces * waiting[tail])
            if MONO and previous:
                for tail in tails[1:]:
                    model.add(previous[tail] >= waiting[tail])
            previous = waiting
            self.__dict__.setdefault("waiting", []).append(waiting)

    def alike_in_order(
        self, transfers: _Transfers, shares: list[list[_Share]], windows: Windows
    ) -> None:
        """Of whole parameters of one size, one with the earlier head and longer tail goes first.

        Otherwise exchanging the two breaks nothing.
        """
        if any(sum(share.pieces for share in one) > 1 for one in shares):
            return
        jobs = sorted(
            range(len(shares)),
            key=lambda j: (windows.sizes[j], windows.heads[j], -windows.tails[j]),
        )
        for number, j in enumerate(jobs):
            least = None
            for i in reversed(jobs[:number]):
                if windows.sizes[i] != windows.sizes[j]:
                    break
                if windows.tails[i] >= windows.tails[j] and (
                    least is None or windows.tails[i] < least
                ):
                    least = windows.tails[i]
                    for k in range(len(transfers.starts)):
                        self.model.add(
                            sum(transfers.parts[j][0][: k + 1])
                            <= sum(transfers.parts[i][0][: k + 1])
                        )

    def ops(
        self,
        graph: Graph,
        ops: Sequence[int],
        durations: dict[int, int],
        backward_ns: int,
    ) -> dict[int, Any]:
        """Add the backward ops, one at a time, and return their ends."""
        model = self.model
        starts = {index: model.new_int_var(0, backward_ns - durations[index], "") for index in ops}
        ends = {index: starts[index] + durations[index] for index in ops}
        model.add_no_overlap(
            [
                model.new_interval_var(starts[index], durations[index], ends[index], "")
                for index in ops
            ]
        )
        for index in ops:
            for needed in graph.predecessors[index]:
                if needed in ends:
                    model.add(starts[index] >= ends[needed])
        return ends

    def after_ops(
        self, transfers: _Transfers, updaters: list[tuple[int, ...]], ends: dict[int, Any]
    ) -> None:
        """Add that a transfer starts after the updaters of all it sends."""
        model = self.model
        previous: dict[int, Any] = {}
        for k, start in enumerate(transfers.starts):
            reached = {op: model.new_bool_var("") for op in {op for one in updaters for op in one}}
            for op, literal in reached.items():
                model.add(start >= ends[op]).only_enforce_if(literal)
                if op in previous:
                    model.add(previous[op] <= literal)
            for j, one in enumerate(updaters):
                for op in one:
                    model.add(sum(transfers.parts[j][0][: k + 1]) <= reached[op])
            previous = reached

    def run(self, deadline: Deadline) -> _Answer:
        """Solve; the same answer every time unless the deadline passes."""
        if deadline.passed:
            return _Answer(None, self.lower, finished=False)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        solver.parameters.linearization_level = LIN
        for kv in filter(None, os.environ.get("PAR", "").split(",")):
            name, val = kv.split("=")
            setattr(solver.parameters, name, type(getattr(solver.parameters, name))(int(val)))
        if INTER:
            solver.parameters.num_workers = INTER
            solver.parameters.interleave_search = True
        if deadline.remaining_s is not None:
            solver.parameters.max_time_in_seconds = deadline.remaining_s
        status = solver.solve(self.model)
        self.solver = solver
        if status == cp_model.INFEASIBLE:
            return _Answer(None, self.lower, finished=True)
        if status == cp_model.OPTIMAL:
            return _Answer(solver, self.lower, finished=True)
        assert status in (cp_model.FEASIBLE, cp_model.UNKNOWN), solver.status_name(status)
        bound = solver.best_objective_bound  # a float, exact below 2^53
        more = int(bound) if 0 < bound < 2**53 else 0
        return _Answer(
            solver if status == cp_model.FEASIBLE else None, self.lower + more, finished=False
        )
