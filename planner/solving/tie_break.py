"""Tie-breaking: among plans of equal cost the simplest one.

Problem: many plans share the least cost. Fewer transfers lose less where start-ups are dearer than
thought.
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
from typing import TYPE_CHECKING

from planner.model.errors import InvalidPlanError
from planner.model.validation import set_exact
from planner.solving.deadline import Deadline
from planner.solving.result import EvaluationT, PlanT, ProblemT

if TYPE_CHECKING:
    from planner.solving.family import Family


PRICED = 2 * 10**4
"""Transfers priced at most: 100 transfers are gone through twice within a second."""


@dataclass(frozen=True, slots=True)
class TieBreak:
    """Which plans count as equal: of these, the one with the fewest transfers is chosen.

    Attributes
    ----------
    within : Fraction
        Plans that cost at most this share more than the best one.

    Raises
    ------
    InvalidInputError
        If the share is negative.
    """

    within: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        set_exact(self, "within")

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
