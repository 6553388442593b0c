"""Online rule for the group size: multiplicative increase, additive decrease.

Problem: keep the share s(g) of scheduling in an iteration within a band [low, high] while the
constants are unknown or change.
Method: multiply g by `factor` (rounded up) if the last group's share is above `high`, subtract
`step` if it is below `low`; stay within [1, max_group_size].
Guarantee: if s does not increase with g and the band holds at least `step` sizes, g enters it from
any start and stays; see docs/drizzle.md, "Why the online rule settles".
Complexity: O(1) a group. Source: Venkataraman et al., "Drizzle: Fast and Adaptable Stream
Processing at Scale" (SOSP'17), section 3.4, after TCP; the guarantee is own.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from planner.families.drizzle.evaluation import evaluate
from planner.families.drizzle.problem import Plan, Problem
from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_VALUE, exact, integer, set_exact, set_integer


@dataclass(frozen=True, slots=True)
class Band:
    """Band for the share of scheduling, and how the group size changes.

    Attributes
    ----------
    low, high : Fraction
        The band; 0 <= low <= high < 1.
    factor : Fraction
        Factor above 1 by which the group size is multiplied.
    step : int
        Number that is subtracted from the group size.
    max_group_size : int
        Largest group size, such as the largest within a limit on the time of a group.

    Raises
    ------
    InvalidInputError
        If a value is out of range, with its name.
    """

    low: Fraction
    high: Fraction
    factor: Fraction = Fraction(2)
    step: int = 1
    max_group_size: int = MAX_VALUE

    def __post_init__(self) -> None:
        for name in ("low", "high", "factor"):
            set_exact(self, name)
        if not 0 <= self.low < 1:
            raise InvalidInputError("low", f"expected a number >= 0 and < 1, got {self.low}")
        if not self.low <= self.high < 1:
            raise InvalidInputError("high", f"expected a number >= low and < 1, got {self.high}")
        if self.factor <= 1:
            raise InvalidInputError("factor", f"expected a number > 1, got {self.factor}")
        set_integer(self, "step", minimum=1)
        set_integer(self, "max_group_size", minimum=1)


@dataclass(frozen=True, slots=True)
class State:
    """State of the online rule.

    Attributes
    ----------
    group_size : int
        Iterations of the next group.
    """

    group_size: int = 1

    def __post_init__(self) -> None:
        set_integer(self, "group_size", minimum=1)


def adjusted(band: Band, state: State, overhead: Fraction) -> State:
    """Return the state after a group.

    Parameters
    ----------
    band : Band
        Band for the overhead.
    state : State
        The state with which the group ran.
    overhead : Fraction
        The group's measured share of scheduling, from 0 to 1; average it first if it is noisy.

    Raises
    ------
    InvalidInputError
        If `overhead` is not from 0 to 1.
    """
    overhead = exact(overhead, "overhead")
    if overhead > 1:
        raise InvalidInputError("overhead", f"expected a number from 0 to 1, got {overhead}")
    size = state.group_size
    if overhead > band.high:
        size = ceil(size * band.factor)
    elif overhead < band.low:
        size -= band.step
    return State(min(max(size, 1), band.max_group_size))


def group_sizes(
    problem: Problem, band: Band, groups: int, start: State | None = None
) -> tuple[int, ...]:
    """Return the sizes of successive groups under the cost model of a problem.

    Parameters
    ----------
    problem : Problem
        Computation and scheduling costs of an iteration; its limits are not used.
    band : Band
        Band for the overhead.
    groups : int
        How many groups to simulate, the first one included; at least 1.
    start : State, optional
        The state of the first group; by default a group of one.

    Raises
    ------
    InvalidInputError
        If `groups` is not an integer of at least 1.
    """
    states = [start or State()]
    for _ in range(integer(groups, "groups", minimum=1) - 1):
        plan = Plan(states[-1].group_size)
        states.append(adjusted(band, states[-1], evaluate(problem, plan).overhead))
    return tuple(state.group_size for state in states)
