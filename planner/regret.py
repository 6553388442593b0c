"""How far a plan is from the best one if the numbers it was made for are others.

Problem: a plan is made for one table of times. What does it cost, all its decisions kept, in a
scenario in which times are others, and what would the best plan made for that scenario cost?

Method: in each scenario the family prices the plan as it is, plans anew by `auto`, and applies the
rules one would use instead. The best of all these is the best plan found.

Guarantee: the regret, the plan's cost over that of the best plan there is, is at least
`Regret.at_least` and at most `Regret.at_most`, which holds as far as the bound of `auto` does: for
the op order of the plan it found. Never below 1.

Complexity: for each scenario one price and one run of `auto` and of each rule. Each gets an equal
share of the time left; scenarios for which there is none are left out.
Source: own; minimax regret is Savage's, "The Theory of Statistical Decision", JASA 1951.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias, TypeVar

from planner.deadline import Deadline
from planner.errors import InvalidInputError, NotApplicableError
from planner.results import Result
from planner.scenarios import SCENARIOS, Scenario

__all__ = ["Progress", "Regret", "regrets"]

ProblemT = TypeVar("ProblemT")
PlanT = TypeVar("PlanT")
EvaluationT = TypeVar("EvaluationT")

Progress: TypeAlias = Callable[[str], None]
"""Is told what is done next."""

DDP, LAYERS = "ddp", "layer_by_layer"
"""What stands beside a plan."""

LEAST_SECONDS = 0.001
"""What each planning gets at least."""


@dataclass(frozen=True, slots=True)
class Regret:
    """What a plan costs in one scenario, and what others would.

    Attributes
    ----------
    scenario : Scenario
        What is otherwise.
    plan_ns : int
        The plan as it is.
    best_ns : int
        The best plan found for the scenario; at most `plan_ns`.
    bound_ns : int or None
        What no plan undercuts in it; at most `best_ns`. None if nobody knows.
    ddp_ns, layers_ns : int or None
        DDP's default buckets, and layer by layer; None where they do not apply.
    """

    scenario: Scenario
    plan_ns: int
    best_ns: int
    bound_ns: int | None
    ddp_ns: int | None
    layers_ns: int | None

    @property
    def at_least(self) -> Fraction:
        """Cost of the plan over that of the best plan found: no best plan is dearer."""
        return Fraction(self.plan_ns, self.best_ns) if self.best_ns else Fraction(1)

    @property
    def at_most(self) -> Fraction | None:
        """Cost of the plan over the bound; None without one."""
        if self.plan_ns == self.bound_ns:
            return Fraction(1)
        return Fraction(self.plan_ns, self.bound_ns) if self.bound_ns else None


def regrets(
    problem: ProblemT,
    plan: PlanT,
    deadline: Deadline,
    progress: Progress | None = None,
    *,
    under: Callable[[ProblemT, Scenario], ProblemT],
    price: Callable[[ProblemT, PlanT], int],
    solve: Callable[..., Result[PlanT, EvaluationT]],
    scenarios: Iterable[Scenario] = SCENARIOS,
) -> tuple[Regret, ...]:
    """Return the regret of a plan in each scenario.

    Parameters
    ----------
    problem : object
        What it was planned for.
    plan : object
        The plan.
    deadline : Deadline
        When to stop.
    progress : callable, optional
        Called before each scenario.
    under : callable
        Returns the problem of a scenario; raises `InvalidInputError` if its numbers are too large.
    price : callable
        Returns what a plan costs (ns).
    solve : callable
        The family's `solve`: called with a problem, and `method` and `time_limit` by name.
    scenarios : iterable of Scenario
        The scenarios. One whose numbers are too large is left out.
    """
    listed = list(scenarios)

    def rows() -> Iterator[Regret]:
        for number, scenario in enumerate(listed):
            if deadline.passed:
                return
            if progress:
                progress(f"scenario {number + 1} of {len(listed)}")
            left = deadline.remaining_s
            limit = None if left is None else max(left / (len(listed) - number), LEAST_SECONDS)
            with suppress(InvalidInputError):
                other = under(problem, scenario)
                kept = price(other, plan)
                planned = (
                    _solved(solve, other, name, limit, deadline) for name in ("auto", DDP, LAYERS)
                )
                yield _row(scenario, kept, *planned)

    return tuple(rows())


def _solved(
    solve: Callable[..., Result[PlanT, EvaluationT]],
    problem: object,
    method: str,
    time_limit: float | None,
    deadline: Deadline,
) -> tuple[int | None, int | None]:
    """Return what a method's plan costs, and the bound; None where it does not apply."""
    try:
        result = solve(problem, method=method, time_limit=time_limit, cancel=deadline.cancel)
    except NotApplicableError:
        return None, None
    return result.objective_ns, result.lower_bound_ns


def _row(
    scenario: Scenario,
    kept: int,
    auto: tuple[int | None, int | None],
    ddp: tuple[int | None, int | None],
    layers: tuple[int | None, int | None],
) -> Regret:
    best = min(time for time in (kept, auto[0], ddp[0], layers[0]) if time is not None)
    bound = None if auto[1] is None else min(auto[1], best)
    return Regret(scenario, kept, best, bound, ddp[0], layers[0])
