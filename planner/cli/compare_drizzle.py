"""``planner compare`` for group scheduling: only of requests."""

from fractions import Fraction

from planner import drizzle
from planner.cli.family import ComparedProblem, Family, percent
from planner.comparison import Comparison
from planner.drizzle.closed_form import largest_group
from planner.jsonio import drizzle as drizzle_json
from planner.methods import concrete
from planner.results import Result
from planner.units import counted, format_ns
from planner.validation import MAX_VALUE

__all__ = ["FAMILY"]


def _requested(request: drizzle_json.DrizzleRequest) -> ComparedProblem:
    problem = request.to_problem()
    limit = problem.max_group_ns
    summary = (
        f"request: {counted(problem.tasks or 0, 'task')}, "
        f"{format_ns(problem.compute_ns)} to compute, "
        f"overhead of at most {float(problem.max_overhead):.4g}"
        f"{'' if limit is None else f', a decision every {format_ns(limit)}'}"
    )
    return ComparedProblem(
        problem,
        lambda result: drizzle_json.answer(problem, result),
        (summary,),
        notes=lambda comparison: _online(problem, comparison),
    )


def _online(
    problem: drizzle.Problem, comparison: Comparison[drizzle.Plan, drizzle.Evaluation]
) -> list[str]:
    """Say what the online rule finds, if there is a plan to find.

    Doubling from 1, the first size within the limit has at least half of that overhead, or is 1:
    the rule stays there.
    """
    if not any(row.plan for row in comparison.rows):
        return []
    high = Fraction(problem.max_overhead)
    most = min(largest_group(problem) or MAX_VALUE, MAX_VALUE)
    band = drizzle.Band(high / 2, high, max_group_size=most)
    sizes = drizzle.group_sizes(problem, band, MAX_VALUE.bit_length() + 1)
    last, course = sizes[-1], "stays at groups of 1"
    if last > 1:
        reached = counted(sizes.index(last), "group")
        course = f"goes from groups of 1 to groups of {last:,} in {reached}"
    share = f"{percent(float(band.low))} to {percent(float(high))}"
    return [f"online: for an overhead of {share}, the rule {course}, by measuring each group"]


def _cells(result: Result[drizzle.Plan, drizzle.Evaluation]) -> tuple[str, ...]:
    evaluation = result.evaluation
    assert result.plan is not None
    assert evaluation is not None
    return (
        f"{result.plan.group_size:,}",
        percent(float(evaluation.overhead)),
        format_ns(evaluation.iteration_ns),
        format_ns(evaluation.group_ns),
        f"{float(evaluation.speedup):.4g}",
    )


FAMILY = Family(
    methods=concrete(drizzle.METHODS),
    solve=drizzle.solve,
    columns=("method", "group size", "overhead", "iteration", "group", "speed-up"),
    cells=_cells,
    requested=_requested,
    asks="how many iterations to schedule at once on Spark; of a request",
    example="planner compare data/drizzle/inception64.json",
    ends=("status",),
)
"""What is compared, and how it is shown."""
