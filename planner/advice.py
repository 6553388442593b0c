"""Whether to keep PyTorch's DDP: what a plan gains over its best bucket size.

Problem: before a job starts, is the plan worth running in place of DDP with the right
``bucket_cap_mb``?

Rule: the family prices DDP with its default buckets and with each size of
`planner.bucketing.DDP_BUCKET_MB`, its barrier before the forward pass included. If the fastest of
them takes less than `WORTH` times as long as the plan, keep DDP: so little is less than what
predictions are off by. Of sizes that are equally fast the default comes first, then the smallest.

Guarantee: with a bound on every plan, no plan gains more than `Advice.at_most`.
Complexity: seven prices. Source: own; the sizes follow PyTorch's advice to tune ``bucket_cap_mb``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from planner.bucketing import DDP_BUCKET_MB, DDP_LIMITS
from planner.deadline import Deadline, TimeUpError
from planner.errors import NotApplicableError
from planner.results import Result

__all__ = ["WORTH", "Advice", "advice"]

WORTH = Fraction(103, 100)
"""From this gain on a plan is worth running.

Predictions of plans and of DDP are off by 2.1 % in the median (`benchmarks/runtime_real.py`), which
lets the ratio of two that have nothing to do with each other be off by 3 %."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A plan beside DDP.

    Attributes
    ----------
    plan_ns : int
        What the plan costs.
    bound_ns : int or None
        What no plan undercuts; None if nobody knows.
    ddp_ns : int
        What DDP takes with its best bucket size.
    bucket_mb : int or None
        That size, ``bucket_cap_mb`` (MiB); None: the default.
    """

    plan_ns: int
    bound_ns: int | None
    ddp_ns: int
    bucket_mb: int | None

    @property
    def gain(self) -> Fraction:
        """How many times as fast as DDP with its best bucket size the plan is."""
        return _ratio(self.ddp_ns, self.plan_ns)

    @property
    def at_most(self) -> Fraction | None:
        """How many times as fast any plan is at most; None without a bound."""
        return _ratio(self.ddp_ns, self.bound_ns) if self.bound_ns else None

    @property
    def keep_ddp(self) -> bool:
        """Whether the plan gains too little."""
        return self.gain < WORTH


def advice(
    result: Result[Any, Any], price: Callable[[tuple[int, int]], int | None], deadline: Deadline
) -> Advice | None:
    """Return what to do with a plan; None if there is none, DDP does not apply, or no time is left.

    Parameters
    ----------
    result : Result
        What the plan costs, and the bound.
    price : callable
        Returns what DDP costs with a limit of the first bucket and one of the others (bytes), or
        None if such buckets are impossible; may raise `NotApplicableError` or `TimeUpError`.
    deadline : Deadline
        When to stop.
    """
    if result.objective_ns is None or deadline.passed:
        return None
    limits: dict[int | None, tuple[int, int]] = {None: DDP_LIMITS}
    limits |= {size: (size * 2**20, size * 2**20) for size in DDP_BUCKET_MB}
    try:
        priced = [(price(pair), size) for size, pair in limits.items()]
    except (NotApplicableError, TimeUpError):
        return None
    known = [(time, size) for time, size in priced if time is not None]
    if not known:
        return None
    ddp_ns, bucket_mb = min(known, key=lambda pair: pair[0])
    return Advice(result.objective_ns, result.lower_bound_ns, ddp_ns, bucket_mb)


def _ratio(above: int, below: int) -> Fraction:
    return Fraction(above, below) if below else Fraction(1)
