"""The constraint program of grouped transfers, its costs in integers, and its solver.

Problem: the model of docs/caramel.md, "The constraint program". CP-SAT takes small integers only,
the pieces of a cost are rational: lines, rounded up, give the time of a transfer exactly.
Guarantee: numbers too large for the solver are refused, never rounded.
Complexity: K (n + H + D) Booleans for K transfers, n parameters, H heads and D tails; O(P²) for P
pieces of a cost, `is_subadditive` O(C² log C) for their C corners.
Source: own; OR-Tools CP-SAT with one worker and a fixed seed.
"""

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

from planner.families.caramel.pricing import Load
from planner.families.caramel.windows import Windows
from planner.model.costs import LinearPiece, TransferCost
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph
from planner.solving.deadline import Deadline


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
    """Return the integer form of a piece for transfers of whole units; None if none lies on it.

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
    # The next one after a/b is c/d with bc - ad = 1 and d as large as can be.
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

_FIRST_ROUND = 0.3
"""Deterministic time of the first round of a search, about seconds; it doubles each round."""


class ModelAnswer(NamedTuple):
    """The best solution found, a bound on the objective, and whether it is optimal."""

    solution: Any
    bound: int
    finished: bool

    def proven(self, value: int) -> int:
        """Return the lower bound beside the best known value."""
        return value if self.finished else min(self.bound, value)


class Transfers(NamedTuple):
    """The variables of the transfers; `parts` by parameter, share and place."""

    starts: list[Any]
    ends: list[Any]
    shares: list[list[Share]]
    parts: list[list[list[Any]]]

    def groups(self, solution: Any) -> tuple[Load, ...]:
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


class TransferModel:
    """A model with an objective between two bounds; its times are `shift` below the real ones.

    It may be infeasible.
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
        self, shares: list[list[Share]], places: int, unit: int, lines: list[ModelLine]
    ) -> Transfers:
        """Add transfers in time order, the empty ones last, that send everything."""
        model = self.model
        total = sum(share.bytes * share.pieces for portions in shares for share in portions) // unit
        for line in lines:
            _check_fits(
                line.den * self.horizon + abs(line.num) * total + abs(line.constant),
                "times and sizes, multiplied by what makes the rates whole,",
            )
        starts = [model.new_int_var(0, self.horizon, "") for _ in range(places)]
        ends = [model.new_int_var(0, self.horizon, "") for _ in range(places)]
        used = [model.new_bool_var("") for _ in range(places)]
        parts = [
            [[model.new_int_var(0, share.pieces, "") for _ in range(places)] for share in portions]
            for portions in shares
        ]
        for portions, variables in zip(shares, parts, strict=True):
            for share, part in zip(portions, variables, strict=True):
                model.add(sum(part) == share.pieces)
                for k in range(places):
                    model.add(part[k] <= share.pieces * used[k])
            if len(portions) == 2:  # no quanta after the remainder
                for k in range(1, places):
                    model.add(sum(variables[0][k:]) <= portions[0].pieces * sum(variables[1][k:]))
        model.add(used[0] == 1)
        for k, following in pairwise(range(places)):
            model.add(starts[following] >= ends[k])
            model.add(used[following] <= used[k])
        for k in range(places):
            size = sum(
                share.bytes // unit * part[k]
                for portions, variables in zip(shares, parts, strict=True)
                for share, part in zip(portions, variables, strict=True)
            )
            self._add_duration(ends[k] - starts[k], size, used[k], total, lines)
        return Transfers(starts, ends, shares, parts)

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

    def after_heads(self, transfers: Transfers, of: Sequence[int]) -> None:
        """Add that a transfer starts after the heads of everything sent up to then."""
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

    def before_tails(self, transfers: Transfers, of: Sequence[int]) -> None:
        """Add that the objective is at least each end plus the longest tail sent from then on."""
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
        self, transfers: Transfers, places: slice, of: Sequence[int], literals: dict[int, Any]
    ) -> None:
        """Add that a parameter is sent at some places only if the literal of its value is true."""
        for value, portions, variables in zip(of, transfers.shares, transfers.parts, strict=True):
            if value in literals:
                for share, part in zip(portions, variables, strict=True):
                    self.model.add(sum(part[places]) <= share.pieces * literals[value])

    def alike_in_order(self, transfers: Transfers, windows: Windows) -> None:
        """Add an order of whole parameters of one size, to break symmetry.

        Of two, the one with no later head and no shorter tail goes first, or with the other:
        exchanging them violates nothing.
        """
        sizes, tails = windows.sizes, windows.tails
        jobs = sorted(range(len(sizes)), key=lambda j: (sizes[j], windows.heads[j], -tails[j]))
        for number, j in enumerate(jobs):
            nearest: int | None = None  # enough: earlier parameters follow by transitivity
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
        self, transfers: Transfers, updaters: Sequence[tuple[int, ...]], ends: dict[int, Any]
    ) -> None:
        """Add that a transfer starts after the updaters of everything sent up to then."""
        model = self.model
        previous: dict[int, Any] = {}
        relevant = sorted({index for ops in updaters for index in ops})
        for k, start in enumerate(transfers.starts):
            reached = {index: model.new_bool_var("") for index in relevant}
            for index, literal in reached.items():
                model.add(start >= ends[index]).only_enforce_if(literal)
            for index, before in previous.items():
                model.add(before <= reached[index])
            for ops, variables in zip(updaters, transfers.parts, strict=True):
                for index in ops:
                    model.add(sum(variables[0][: k + 1]) <= reached[index])
            previous = reached

    def run(
        self, deadline: Deadline, levels: Sequence[int], max_work: float | None = None
    ) -> ModelAnswer:
        """Solve; the same answer every time unless the deadline passes.

        `levels` are CP-SAT's linearization levels. No level is always better, and the wrong one can
        cost a factor of ten or more. So several levels take turns, for a deterministic time that
        doubles, each searching for a better solution. `max_work` limits the deterministic time.
        """
        best, bound, turn = None, 0, 0
        left = float("inf") if max_work is None else max_work
        while not deadline.passed and left > 0:
            solver = cp_model.CpSolver()
            solver.parameters.num_workers = 1
            solver.parameters.random_seed = 1
            # Probing propagates times of 10⁹ ns for seconds, and does not look at the clock.
            solver.parameters.cp_model_probing_level = 0
            solver.parameters.linearization_level = levels[turn % len(levels)]
            budget = left
            if len(levels) > 1:
                budget = min(left, _FIRST_ROUND * 2.0 ** (turn // len(levels)))
            solver.parameters.max_deterministic_time = budget
            left -= budget
            if deadline.remaining_s is not None:
                solver.parameters.max_time_in_seconds = deadline.remaining_s
            solver.parameters.catch_sigint_signal = deadline.cancel is None
            with deadline.stopping(solver.stop_search):
                status = solver.solve(self.model)
            assert status != cp_model.MODEL_INVALID, self.model.validate()
            if status == cp_model.INFEASIBLE:
                return ModelAnswer(best, self.lower, finished=True)
            if status == cp_model.OPTIMAL:
                return ModelAnswer(solver, self.lower, finished=True)
            floating = solver.best_objective_bound  # a float, exact below 2^53
            if bound < floating < 2**53:
                bound = int(floating)
            if status == cp_model.FEASIBLE:
                best = solver
                self.model.add(self.excess < solver.value(self.excess))
            turn += 1
        return ModelAnswer(best, self.lower + bound, finished=False)


def _check_fits(amount: int, what: str) -> None:
    if amount >= _LIMIT:
        raise NotApplicableError(
            "method",
            f"exact adds {what} in {_LIMIT.bit_length() - 1} bits; "
            f"here a sum may need {amount.bit_length()}",
        )
