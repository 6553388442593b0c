"""Advice on DDP: whether a plan is worth running in its place, with its best bucket size.

Method: DDP is priced, by the family, with its default buckets and with a few other sizes. Where
transfers take processor time from computation, predictions of gains are less certain, so more gain
is asked for. Guarantee: no plan gains more than `Advice.at_most`.
Complexity: a price of DDP for each size. Source: own.
"""

from dataclasses import dataclass
from fractions import Fraction

from planner.model.errors import NotApplicableError
from planner.solving.bucketing import DDP_BUCKET_MB, DDP_LIMITS
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.family import Family
from planner.solving.result import EvaluationT, PlanT, ProblemT, Result

WORTH = Fraction(103, 100)
"""Least gain at which a plan is worth running, where transfers take nothing from computation."""

MARGIN = Fraction(3, 20)
"""Gain to ask for, over the share of a step that sending all gradients takes from computation.

On six models at three bandwidths (`benchmarks/runtime_real.py`), 15 of 18 decisions are right, and
as many if the margin is chosen from five of the models and decides about the sixth."""


def gain_to_ask(share: Fraction, margin: Fraction = MARGIN) -> Fraction:
    """Return the least gain at which a plan is worth running.

    `share`: of a step, what sending all gradients takes from computation.
    """
    return max(WORTH, 1 + margin * share)


@dataclass(frozen=True, slots=True)
class Advice:
    """A plan compared with DDP at its best bucket size."""

    plan_ns: int
    bound_ns: int | None  # lower bound over all plans, if known
    ddp_ns: int
    bucket_mb: int | None  # ``bucket_cap_mb`` (MiB); None: the default
    # Processor time that sending all gradients takes from computation; None if unknown.
    sending_ns: int | None = None

    @property
    def contention(self) -> bool:
        """Whether contention parameters are known."""
        return self.sending_ns is not None

    @property
    def gain(self) -> Fraction:
        """Speed-up of the plan over DDP with its best bucket size."""
        return Fraction(self.ddp_ns, self.plan_ns) if self.plan_ns else Fraction(1)

    @property
    def at_most(self) -> Fraction | None:
        """Largest speed-up that any plan can have; None without a bound."""
        return Fraction(self.ddp_ns, self.bound_ns) if self.bound_ns else None

    @property
    def least_gain(self) -> Fraction:
        """Least gain at which the plan is worth running."""
        share = Fraction(self.sending_ns or 0, self.ddp_ns) if self.ddp_ns else Fraction(0)
        return gain_to_ask(share)

    @property
    def keep_ddp(self) -> bool:
        """Whether the gain is below `least_gain`."""
        return self.gain < self.least_gain


def advise(
    family: Family[ProblemT, PlanT, EvaluationT],
    problem: ProblemT,
    result: Result[PlanT, EvaluationT],
    deadline: Deadline,
) -> Advice | None:
    """Compare a plan with DDP; return None without a plan or time, or where DDP does not apply.

    DDP is priced with its default buckets and each size of
    `planner.solving.bucketing.DDP_BUCKET_MB`. Of sizes that are equally fast the default comes
    first, then the smallest.
    """
    if result.objective_ns is None or deadline.passed:
        return None
    limits: dict[int | None, tuple[int, int]] = {None: DDP_LIMITS}
    limits |= {size: (size * 2**20, size * 2**20) for size in DDP_BUCKET_MB}
    try:
        priced = [
            (family.ddp_price(problem, pair, deadline), size) for size, pair in limits.items()
        ]
    except (NotApplicableError, TimeUpError):
        return None
    known = [(time, size) for time, size in priced if time is not None]
    if not known:
        return None
    ddp_ns, bucket_mb = min(known, key=lambda pair: pair[0])
    sending_ns = family.sending_ns(problem)
    return Advice(result.objective_ns, result.lower_bound_ns, ddp_ns, bucket_mb, sending_ns)
