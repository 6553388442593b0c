"""A family after the recipe: transfers of given lengths over two links, so that both end early.

Problem: give each transfer to one of two links; minimise when the later link is done.
Guarantee: `exact` is optimal. Complexity: O(2^n). Source: the smallest problem with a bound, a
heuristic and an exact method.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from planner.model.errors import InvalidPlanError
from planner.model.validation import integers
from planner.solving.deadline import Deadline
from planner.solving.family import Family
from planner.solving.methods import Outcome, named
from planner.solving.scenarios import Scenario
from planner.solving.timeline import Interval, Timeline


@dataclass(frozen=True)
class Problem:
    """How long each transfer lasts, in nanoseconds."""

    transfer_ns: Sequence[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "transfer_ns", integers(self.transfer_ns, "transfer_ns"))


@dataclass(frozen=True)
class Plan:
    """Link 0 or 1 for each transfer."""

    links: tuple[int, ...]


@dataclass(frozen=True)
class Evaluation:
    """When the later link is done, and what happens when."""

    end_ns: int
    timeline: Timeline


def greedy(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Give each transfer, the longest first, to the link that is free first."""
    ends, links = [0, 0], [0] * len(problem.transfer_ns)
    for place in sorted(range(len(links)), key=lambda i: -problem.transfer_ns[i]):
        links[place] = ends.index(min(ends))
        ends[links[place]] += problem.transfer_ns[place]
    return Outcome(Plan(tuple(links)))


def exact(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Try everything."""
    best = greedy(problem, deadline).plan
    assert best is not None
    for links in product((0, 1), repeat=len(problem.transfer_ns)):
        if deadline.passed:
            return Outcome(best, timed_out=True)
        best = min(best, Plan(links), key=lambda plan: evaluate(problem, plan).end_ns)
    return Outcome(best, evaluate(problem, best).end_ns)


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Return when each transfer begins and ends, one after the other on its link."""
    ends, rows = [0, 0], []
    for place, (link, time) in enumerate(zip(plan.links, problem.transfer_ns, strict=True)):
        begin, ends[link] = ends[link], ends[link] + time
        rows.append(Interval(f"link {link}", begin, ends[link], "push", place, str(place)))
    return Evaluation(max(ends), Timeline(("link 0", "link 1"), tuple(rows)))


class _Halves(Family[Problem, Plan, Evaluation]):
    name, plan_type, baselines = "halves", Plan, ("greedy",)
    own_methods = {"auto": named("exact", exact), "exact": exact, "greedy": greedy}

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        if len(plan.links) != len(problem.transfer_ns) or not {*plan.links} <= {0, 1}:
            raise InvalidPlanError("links", "expected 0 or 1 for each transfer")

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Evaluation:
        return evaluate(problem, plan)

    def objective(self, problem: Problem, evaluation: Evaluation) -> int:
        return evaluation.end_ns

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[Fraction, bool]:
        return Fraction(sum(problem.transfer_ns), 2), False

    def perturb(self, problem: Problem, scenario: Scenario) -> Problem:
        times = [round(time / scenario.bandwidth) for time in problem.transfer_ns]
        return replace(problem, transfer_ns=times)


HALVES = _Halves()
