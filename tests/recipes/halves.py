"""A family after the recipe: transfers of given lengths over two links, so that both end early.

Problem: give each transfer to one of two links; minimise when the later link is done.
Guarantee: `exact` is optimal. Complexity: O(2^n). Source: the smallest problem with a bound, a
heuristic and an exact method.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Annotated, Literal, Unpack

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace
from planner.cli.family import ComparedProblem
from planner.cli.family import Family as ComparedFamily

from planner.deadline import Control, Deadline
from planner.draw.chart import Chart
from planner.draw.drawing import GANTT
from planner.errors import InvalidPlanError
from planner.jsonio.control import Controlled
from planner.jsonio.heads import PlanOrReason, check_head, head
from planner.jsonio.service import Interface
from planner.jsonio.types import Times
from planner.results import Result
from planner.solving.family import Family
from planner.solving.methods import Outcome, concrete, named
from planner.timeline import Interval, Timeline
from planner.validation import integers

__all__ = [
    "DRAWING",
    "FAMILY",
    "HALVES",
    "INTERFACE",
    "METHODS",
    "Chart",
    "Plan",
    "Problem",
    "solve",
]


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


def greedy(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Give each transfer, the longest first, to the link that is free first."""
    ends, links = [0, 0], [0] * len(problem.transfer_ns)
    for place in sorted(range(len(links)), key=lambda i: -problem.transfer_ns[i]):
        links[place] = ends.index(min(ends))
        ends[links[place]] += problem.transfer_ns[place]
    return Outcome(Plan(tuple(links)))


def exact(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Try everything."""
    plans = map(Plan, product((0, 1), repeat=len(problem.transfer_ns)))
    best = min(plans, key=lambda plan: evaluate(problem, plan))
    return Outcome(best, evaluate(problem, best))


def check(problem: Problem, plan: Plan) -> None:
    """Refuse a plan that leaves out a transfer."""
    if len(plan.links) != len(problem.transfer_ns) or not {*plan.links} <= {0, 1}:
        raise InvalidPlanError("links", "expected 0 or 1 for each transfer")


def evaluate(problem: Problem, plan: Plan) -> int:
    """Return when the later link is done."""
    rows = list(zip(plan.links, problem.transfer_ns, strict=True))
    return max(sum(time for link, time in rows if link == one) for one in (0, 1))


class _Halves(Family[Problem, Plan, int]):
    name, plan_type, baselines = "halves", Plan, ("greedy",)
    own_methods = {"auto": named("exact", exact), "exact": exact, "greedy": greedy}

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        check(problem, plan)

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> int:
        return evaluate(problem, plan)

    def objective(self, problem: Problem, evaluation: int) -> int:
        return evaluation

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[Fraction, bool]:
        return Fraction(sum(problem.transfer_ns), 2), False


HALVES = _Halves()
METHODS = HALVES.methods
solve = HALVES.solve


class HalvesRequest(Controlled, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Transfers for two links."""

    problem: Literal["halves"]
    transfer_ns: Times
    method: Annotated[str, Meta(extra_json_schema={"enum": list(METHODS)})] = "auto"


class HalvesAnswer(PlanOrReason, frozen=True, kw_only=True):
    """The link of each transfer."""

    problem: Literal["halves"] = "halves"
    links: tuple[int, ...] | UnsetType = UNSET
    transfer_ns: tuple[int, ...] | UnsetType = UNSET


def answer(problem: Problem, result: Result[Plan, int]) -> HalvesAnswer:
    base = HalvesAnswer(**head(HalvesAnswer, result))
    assert result.plan is not None
    return replace(base, links=result.plan.links, transfer_ns=tuple(problem.transfer_ns))


def run(request: HalvesRequest, **control: Unpack[Control[Plan]]) -> HalvesAnswer:
    problem = Problem(request.transfer_ns)
    limit = None if request.time_limit_s is UNSET else request.time_limit_s
    return answer(problem, solve(problem, method=request.method, time_limit=limit, **control))


def headline(found: HalvesAnswer) -> str:
    return f"halves · {found.method} · {found.status}"


def timeline(found: HalvesAnswer) -> Timeline:
    check_head(found, "links", "transfer_ns")
    assert found.links is not UNSET
    assert found.transfer_ns is not UNSET
    check(Problem(found.transfer_ns), Plan(found.links))
    ends, rows = [0, 0], []
    for place, (link, time) in enumerate(zip(found.links, found.transfer_ns, strict=True)):
        begin, ends[link] = ends[link], ends[link] + time
        row = Interval(f"link {link}", begin, ends[link], "push", place, str(place))
        rows.append(row)
    return Timeline(("link 0", "link 1"), tuple(rows))


INTERFACE = Interface(HalvesRequest, HalvesAnswer, run, headline, timeline, {})

DRAWING = GANTT


def requested(request: HalvesRequest) -> ComparedProblem:
    problem = Problem(request.transfer_ns)
    return ComparedProblem(problem, lambda result: answer(problem, result), ("two links",))


FAMILY = ComparedFamily(
    concrete(METHODS),
    solve,
    columns=("method", "end"),
    cells=lambda row: (str(row.evaluation),),
    requested=requested,
    ends=(),
)
