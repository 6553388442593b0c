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
size; there every coefficient is an integer (`transfer_model`).

How many transfers suffice, if f is subadditive (two transfers are never faster than one of both;
`is_subadditive` checks it exactly on the pieces): H + D - 1, with H distinct heads and D distinct
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

from dataclasses import dataclass
from math import gcd

from planner.caramel.jackson import preemptive_bound
from planner.caramel.model_lines import is_subadditive, model_lines, shares_of
from planner.caramel.transfer_model import SentBytes, TransferModel, plan_value
from planner.caramel.windows import Windows
from planner.costs import TransferCost
from planner.deadline import Deadline
from planner.errors import InvalidInputError, NotApplicableError

__all__ = ["Grouping", "best_grouping"]


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

    groups: tuple[tuple[SentBytes, ...], ...]
    value: int | None
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
    if is_subadditive(cost, total):
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
    # Only something better than what is known is looked for: if there is nothing, that is optimal.
    # Sizes are counted in their greatest common divisor, which keeps products small and exact.
    search = TransferModel(limit - 1, lower, min(windows.heads) + min(windows.tails))
    shares = [shares_of(size, quantum if split else size) for size in windows.sizes]
    unit = gcd(*(share.bytes for portions in shares for share in portions))
    transfers = search.transfers(
        shares, places, unit, model_lines(cost, unit, total, search.horizon)
    )
    search.after_heads(transfers, windows.heads)
    search.before_tails(transfers, windows.tails)
    if not split:
        search.alike_in_order(transfers, windows)
    answer = search.run(deadline, (2,) if split else (0, 1), max_work)
    if answer.solution is None:
        bound = limit if answer.finished else answer.bound
        return Grouping(known.groups, known.value, bound, timed_out=not answer.finished)
    groups = transfers.groups(answer.solution)
    value = plan_value(windows, cost, groups)
    return Grouping(
        groups,
        value,
        value if answer.finished else min(answer.bound, value),
        timed_out=not answer.finished,
    )


def _simple_plan(windows: Windows, cost: TransferCost) -> Grouping:
    """Return the better of all parameters in one transfer, and each alone as they become ready."""
    parts = list(enumerate(windows.sizes))
    parts.sort(key=lambda part: (windows.heads[part[0]], -windows.tails[part[0]]))
    plans = [(tuple(parts),), tuple((part,) for part in parts)]
    value, _, plan = min(
        (plan_value(windows, cost, plan), number, plan) for number, plan in enumerate(plans)
    )
    return Grouping(plan, value, value, timed_out=False)
