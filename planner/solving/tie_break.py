"""Tie-breaking: among plans of equal cost the simplest one, or the one least sensitive to delays.

Problem: many plans share the least cost. Fewer transfers lose less where start-ups are dearer than
thought; a plan less sensitive to delays loses less where something is late.
Rule: fewest transfers, then one algorithm rather than several, then fewest bytes. With a share
(`TieBreak.within`) plans that cost so much more than the best count as equal. A family whose exact
methods find the fewest transfers says so (`Family.simplest`); elsewhere neighbouring transfers are
sent together as long as the plan stays within the share.
Guarantee: never dearer than the share allows. No two neighbouring transfers of the plan can be sent
together for free, unless the time or `PRICED` cut in.
Complexity: at most `PRICED` transfers priced. Source: own.
"""

from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.model.validation import set_exact, shown
from planner.solving.deadline import Deadline
from planner.solving.result import EvaluationT, PlanT, ProblemT

if TYPE_CHECKING:
    from planner.solving.family import Family


Prefer = Literal["simple", "robust"]

PRICED = 2 * 10**4
"""Transfers priced at most: 100 transfers are gone through twice within a second."""


@dataclass(frozen=True, slots=True)
class TieBreak:
    """How to choose among plans of equal cost.

    Attributes
    ----------
    prefer : {"simple", "robust"}
        The plan with the fewest transfers, or the one least sensitive to delays.
    within : Fraction
        Plans that cost at most this share more than the best one count as equal; only with
        ``prefer="simple"``.

    Raises
    ------
    InvalidInputError
        If a value is unknown or negative, or the two contradict each other.
    """

    prefer: Prefer = "simple"
    within: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.prefer not in ("simple", "robust"):
            expected = f"expected simple or robust, got {shown(self.prefer)}"
            raise InvalidInputError("tie_break", expected)
        set_exact(self, "within")
        if self.within and self.prefer != "simple":
            raise InvalidInputError("simplest_within", "only with tie_break simple")

    def most_ns(self, objective_ns: int) -> int:
        """Return the dearest cost (ns) that counts as equal."""
        return objective_ns + (int(objective_ns * self.within) if self.within else 0)


def merged_neighbours(
    family: "Family[ProblemT, PlanT, EvaluationT]",
    problem: ProblemT,
    plan: PlanT,
    most_ns: int,
    deadline: Deadline,
) -> PlanT:
    """Return a plan with neighbouring transfers sent together where it costs at most `most_ns`."""
    place, left = 0, PRICED
    while (count := family.transfers(plan)) > place + 1 and left > 0 and not deadline.passed:
        left -= count
        tried = family.merged(problem, plan, place)
        fits = False
        with suppress(InvalidPlanError):
            fits = tried is not None and family.price(problem, tried) <= most_ns
        if tried is not None and fits:
            plan = tried
        else:
            place += 1
    return plan
