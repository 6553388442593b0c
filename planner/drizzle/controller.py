"""The group size found while a job runs: up by a factor, down by steps.

Problem: keep the share s(g) of scheduling in the time of an iteration within a band [low, high]
when the constants are not known, or change.

Method: after each group, multiply g by `factor` (rounded up) if the measured share is above `high`,
subtract `step` if it is below `low`, else keep it; always within [1, max_group_size].

Guarantee: let s fall, or stay, as g grows, as the model's does; let a be the smallest size with
s(g) <= high and b the largest, up to max_group_size, with low <= s(g). If a … b are at least `step`
many, then from any size g0 the group size is in a … b after at most

    ⌈log_factor(a / g0)⌉ groups from below a,     ⌈(g0 - b) / step⌉ groups from above b,

and from below a, if the last increase jumps over b, at most ⌈(⌈factor·(a - 1)⌉ - b) / step⌉ more;
and it stays while s does. With a step of 1 any size in the band is enough. If the sizes are fewer
it may jump over them for ever, between a - step and the larger of b and ⌈factor·(a - 1)⌉. If even
the largest size is above the band it settles there; if a group of one is below it, at one.

Complexity: O(1) a group.
Source: the rule of Drizzle's group-size tuning, after the congestion control of TCP: Venkataraman
et al., "Drizzle: Fast and Adaptable Stream Processing at Scale" (SOSP'17), section 3.4; what it
promises is own.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from planner.drizzle.evaluation import evaluate
from planner.drizzle.problem import Plan, Problem
from planner.errors import InvalidInputError
from planner.validation import MAX_VALUE, exact, integer, set_exact, set_integer

__all__ = ["Band", "State", "adjusted", "group_sizes"]


@dataclass(frozen=True, slots=True)
class Band:
    """Where the share of scheduling should stay, and how the group size moves.

    Attributes
    ----------
    low, high : Fraction
        The band; 0 <= low <= high < 1.
    factor : Fraction
        What a group size is multiplied by, above 1.
    step : int
        What is subtracted from it.
    max_group_size : int
        Largest group size, such as the largest within a limit on the time of a group.

    Raises
    ------
    InvalidInputError
        If one of them is out of range, with its name.
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
    """What the rule remembers.

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
        Where the overhead should stay.
    state : State
        The state with which the group ran.
    overhead : Fraction
        Its measured share of scheduling, from 0 to 1, averaged by the caller if it is noisy.

    Raises
    ------
    InvalidInputError
        If `overhead` is no such share.
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
    """Return the sizes of so many groups in a row, if scheduling costs what a problem says.

    Parameters
    ----------
    problem : Problem
        What an iteration computes, and what scheduling costs; its limits do not matter here.
    band : Band
        Where the overhead should stay.
    groups : int
        How many groups to simulate, the first one included; at least 1.
    start : State, optional
        The state of the first group; by default a group of one.

    Raises
    ------
    InvalidInputError
        If `groups` is no such number.
    """
    states = [start or State()]
    for _ in range(integer(groups, "groups", minimum=1) - 1):
        plan = Plan(states[-1].group_size)
        states.append(adjusted(band, states[-1], evaluate(problem, plan).overhead))
    return tuple(state.group_size for state in states)
