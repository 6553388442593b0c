"""Optimal transfers that may cut parameters, as a constraint program (CP-SAT).

Problem: parameter j has b_j bytes, a head r_j and a tail q_j (`planner.families.caramel.windows`).
Ranges of parameters' bytes form groups; each group is one transfer. Minimise the iteration.
Strongly NP-hard already if every parameter travels alone (1 | r_j, q_j | Cmax).
Method: K transfers in time order; model and proof of K: docs/caramel.md, "The constraint program".
CP-SAT takes small integers only, the pieces of a cost are rational: lines, rounded up, give the
time of a transfer exactly.
Guarantee: optimal, unless the deadline passes: then the best plan found, and a bound. Plans are
priced in exact integers; numbers too large for the solver are refused, never rounded.
Complexity: exponential; K (n + H + D) Booleans for H distinct heads and D distinct tails; O(P²) for
P pieces of a cost, `is_subadditive` O(C² log C) for their C corners.
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

from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.pricing import Load, LoadPricer
from planner.families.caramel.windows import Windows
from planner.model.costs import LinearPiece, TransferCost
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.solving.cpsat import solved
from planner.solving.deadline import Deadline


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups in time order, their iteration time (ns), and what was proven.

    If no plan better than `upper` was found, there are no groups and no value; if `lower_bound`
    then equals `upper`, no better plan exists.
    """

    groups: tuple[Load, ...]
    value: int | None
    lower_bound: int  # no plan lasts less (ns)
    timed_out: bool


def best_grouping(
    windows: Windows,
    cost: TransferCost,
    upper: int,
    *,
    deadline: Deadline,
    quantum: int = 1,
    lower: int = 0,
    max_work: float | None = None,
) -> Grouping:
    """Group, cut and order the transfers so that the iteration is shortest.

    Parameters are cut at multiples of `quantum` bytes; the last piece holds the rest as well. Only
    plans better than `upper`, the value of a known plan, are searched for, and a plan that meets
    `lower`, a known bound, ends the search (ns). `max_work` limits CP-SAT's deterministic time,
    about seconds, the same on every machine. Raises `NotApplicableError` if the cost
    is not subadditive, or if the numbers are too large for CP-SAT.
    """
    if quantum < 1:
        raise InvalidInputError("quantum", f"expected an integer >= 1, got {quantum}")
    if not is_subadditive(cost, sum(windows.sizes)):
        raise NotApplicableError(
            "method",
            "exact splits parameters only if two transfers never take less time than one of the "
            "same bytes: they do with this cost",
        )
    lower = max(lower, preemptive_bound(windows, cost))
    if lower >= upper:
        return Grouping((), None, upper, timed_out=False)
    program = _Program(windows, cost, quantum, lower, upper - 1)
    groups, bound, finished = program.run(deadline, max_work)
    value = LoadPricer(windows, cost).iteration_ns(groups) if groups else None
    least = upper if value is None else value
    bound = least if finished else min(bound, least)
    return Grouping(groups, value, bound, not finished)


class Share(NamedTuple):
    """A number of pieces of one size that belong to a parameter."""

    bytes: int
    pieces: int


def shares_of(size: int, quantum: int) -> list[Share]:
    """Return the whole quanta of a parameter, then its remainder."""
    pieces, rest = divmod(size, quantum)
    return [Share(quantum, pieces)] * (pieces > 0) + [Share(rest, 1)] * (rest > 0)


class ModelLine(NamedTuple):
    """A linear piece in integers: on first <= u <= last, duration·den >= num·u + constant."""

    first: int
    last: int
    num: int
    constant: int
    den: int


def model_lines(cost: TransferCost, unit: int, total: int, horizon: int) -> list[ModelLine]:
    """Return the pieces that may give the time of a transfer of u units, none of them dominated."""
    lines = [line for piece in cost.pieces() if (line := _line(piece, unit, total)) is not None]

    def at(line: ModelLine, size: int) -> Fraction:
        return Fraction(line.num * size + line.constant, line.den)

    def rules_out(better: ModelLine, line: ModelLine) -> bool:
        return (
            better.first <= line.first
            and line.last <= better.last
            and all(at(better, size) <= at(line, size) for size in (line.first, line.last))
        )

    kept: list[ModelLine] = []
    for line in lines:
        if min(at(line, line.first), at(line, line.last)) > horizon:
            continue
        if not any(rules_out(better, line) for better in kept):
            kept = [worse for worse in kept if not rules_out(line, worse)]
            kept.append(line)
    return kept


def _line(piece: LinearPiece, unit: int, total: int) -> ModelLine | None:
    """Return the integer form of a piece for transfers of whole units; None if it contains none.

    Only the time rounded up matters, so the slope may be replaced by the least fraction not below
    it whose denominator is at most the longest distance from the piece's start. For any distance t
    up to that, ⌈slope·t⌉ / t is such a fraction, so both slopes round up to the same time.
    """
    stop = total if piece.stop is None else min(piece.stop, total)
    first, last = max(1, -(-piece.start // unit)), stop // unit
    if first > last:
        return None
    # In steps of `step` bytes from the piece's start, every whole number of units is met.
    step = gcd(unit, piece.start)
    slope = piece.slope * step
    if piece.value_ns.denominator == 1:
        slope = rounded_up(slope, (last * unit - piece.start) // step)
    den = lcm(slope.denominator, piece.value_ns.denominator)
    constant = (piece.value_ns - slope * (piece.start // step)) * den
    return ModelLine(first, last, int(slope * (unit // step) * den), int(constant), den)


def rounded_up(value: Fraction, most: int) -> Fraction:
    """Return the least fraction >= `value` with a denominator of at most `most`."""
    near = value.limit_denominator(max(most, 1))
    if near >= value:
        return near
    # The next fraction after a/b is c/d with bc - ad = 1 and d as large as can be.
    a, b = near.numerator, near.denominator
    d = pow(-a, -1, b)
    d += (max(most, 1) - d) // b * b
    return Fraction(a * d + 1, b * d)


def is_subadditive(cost: TransferCost, total: int) -> bool:
    """Return whether f(a) + f(b) >= f(a + b), unrounded, for all real sizes a, b >= 1.

    For a + b up to `total` bytes. Sufficient: the time per byte never rises, as on every piece with
    a non-negative value at size 0. Otherwise: f is linear between its corners, so the difference is
    linear on polygons whose vertices have two of a, b and a + b at corners.
    """
    pieces = [
        (first, last, piece)
        for piece in cost.pieces()
        if (first := max(piece.start, 1))
        <= (last := total if piece.stop is None else min(piece.stop, total))
    ]
    if all(piece.value_ns >= piece.slope * piece.start for _, _, piece in pieces):
        return True
    # f is the minimum of the pieces: its corners are their ends and intersections.
    corners = {Fraction(size) for first, last, _ in pieces for size in (first, last)}
    for number, (first, last, piece) in enumerate(pieces):
        for other_first, other_last, earlier in pieces[:number]:
            if piece.slope != earlier.slope:
                meeting = (earlier.time(0) - piece.time(0)) / (piece.slope - earlier.slope)
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


_LIMIT = 2**60
"""CP-SAT adds in 63 bits; every linear expression of a model stays below this."""


class _Program:
    """The model: plans that last at most `upper`, its objective the time beyond `lower` (ns).

    It may be infeasible. `parts` are the pieces by parameter, share and transfer. Times are `shift`
    below the real times, and sizes in units of their greatest common divisor, so that products stay
    small and exact.
    """

    def __init__(
        self, windows: Windows, cost: TransferCost, quantum: int, lower: int, upper: int
    ) -> None:
        shift = min(windows.heads) + min(windows.tails)
        self.lower, self.base, self.horizon = lower, lower - shift, upper - shift
        _check_fits(4 * self.horizon, "times")
        self.model = cp_model.CpModel()
        self.excess = self.model.new_int_var(0, upper - lower, "")
        self.model.minimize(self.excess)
        self.shares = [shares_of(size, quantum) for size in windows.sizes]
        places = range(len(set(windows.heads)) + len(set(windows.tails)) - 1)
        self.starts = [self.model.new_int_var(0, self.horizon, "") for _ in places]
        self.ends = [self.model.new_int_var(0, self.horizon, "") for _ in places]
        used = [self.model.new_bool_var("") for _ in places]
        self.parts = [
            [[self.model.new_int_var(0, share.pieces, "") for _ in places] for share in portions]
            for portions in self.shares
        ]
        self._send_everything(used)
        unit = gcd(*(share.bytes for portions in self.shares for share in portions))
        total = sum(windows.sizes) // unit
        lines = model_lines(cost, unit, sum(windows.sizes), self.horizon)
        for line in lines:
            _check_fits(
                line.den * self.horizon + abs(line.num) * total + abs(line.constant),
                "times and sizes, multiplied by what makes the rates whole,",
            )
        for k in places:
            size = sum(
                share.bytes // unit * part[k]
                for portions, variables in zip(self.shares, self.parts, strict=True)
                for share, part in zip(portions, variables, strict=True)
            )
            self._add_duration(self.ends[k] - self.starts[k], size, used[k], total, lines)
        self._start_after(windows.heads)
        self._end_before(windows.tails)

    def _send_everything(self, used: Sequence[Any]) -> None:
        """Add that transfers in time order send everything; empty transfers come last."""
        model, places = self.model, range(len(used))
        for portions, variables in zip(self.shares, self.parts, strict=True):
            for share, part in zip(portions, variables, strict=True):
                model.add(sum(part) == share.pieces)
                for k in places:
                    model.add(part[k] <= share.pieces * used[k])
            if len(portions) == 2:  # no quanta after the remainder
                for k in places[1:]:
                    model.add(sum(variables[0][k:]) <= portions[0].pieces * sum(variables[1][k:]))
        model.add(used[0] == 1)
        for k, following in pairwise(places):
            model.add(self.starts[following] >= self.ends[k])
            model.add(used[following] <= used[k])

    def _add_duration(
        self, duration: Any, size: Any, used: Any, total: int, lines: list[ModelLine]
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

    def _start_after(self, of: Sequence[int]) -> None:
        """Add the constraints that a transfer starts after the heads of all bytes sent so far."""
        model, heads = self.model, sorted(set(of))
        previous: dict[int, Any] = {}
        for k, start in enumerate(self.starts):
            reached = {head: model.new_bool_var("") for head in heads[1:]}
            model.add(start >= sum((high - low) * reached[high] for low, high in pairwise(heads)))
            for low, high in pairwise(heads[1:]):
                model.add(reached[high] <= reached[low])
            for head, before in previous.items():
                model.add(before <= reached[head])
            self._allow(slice(k + 1), of, reached)
            previous = reached

    def _end_before(self, of: Sequence[int]) -> None:
        """Add that the objective is at least each end plus the longest tail sent from then on."""
        model, tails = self.model, sorted(set(of))
        previous: dict[int, Any] = {}
        for k, end in enumerate(self.ends):
            waiting = {tail: model.new_bool_var("") for tail in tails[1:]}
            longest = sum((high - low) * waiting[high] for low, high in pairwise(tails))
            model.add(end + longest <= self.base + self.excess)
            for low, high in pairwise(tails[1:]):
                model.add(waiting[high] <= waiting[low])
            for tail, before in previous.items():
                model.add(before >= waiting[tail])
            self._allow(slice(k, None), of, waiting)
            previous = waiting

    def _allow(self, places: slice, of: Sequence[int], literals: dict[int, Any]) -> None:
        """Add that a parameter is sent at some places only if the literal of its value is true."""
        for value, portions, variables in zip(of, self.shares, self.parts, strict=True):
            if value in literals:
                for share, part in zip(portions, variables, strict=True):
                    self.model.add(sum(part[places]) <= share.pieces * literals[value])

    def run(self, deadline: Deadline, max_work: float | None) -> tuple[tuple[Load, ...], int, bool]:
        """Return the best groups, a bound (ns), and whether optimality or infeasibility is proven.

        The result is the same every time unless the deadline passes.
        """
        if deadline.passed:
            return (), self.lower, False
        options = {} if max_work is None else {"max_deterministic_time": max_work}
        # Probing propagates times of 10⁹ ns for seconds, and does not look at the clock.
        options |= {"cp_model_probing_level": 0, "linearization_level": 2}
        solver, found, proven = solved(self.model, deadline, **options)
        bound = solver.best_objective_bound  # a float, exact below 2^53
        least = self.lower + (int(bound) if 0 < bound < 2**53 else 0)
        return self._groups(solver) if found else (), least, proven

    def _groups(self, solution: cp_model.CpSolver) -> tuple[Load, ...]:
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


def _check_fits(amount: int, what: str) -> None:
    if amount >= _LIMIT:
        raise NotApplicableError(
            "method",
            f"exact adds {what} in {_LIMIT.bit_length() - 1} bits; "
            f"here a sum may need {amount.bit_length()}",
        )
