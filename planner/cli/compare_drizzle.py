"""``planner compare`` for the problem drizzle: group scheduling."""

import argparse
from fractions import Fraction

from planner import bigdl, drizzle
from planner.cli.compare_bigdl import sliced
from planner.cli.compare_cluster import needs_cluster
from planner.cli.family import ComparedProblem, Family, Option, Profiled, about, percent
from planner.cli.parsing import parse_number
from planner.cli.spark_logs import read_logs
from planner.comparison import Comparison
from planner.drizzle.closed_form import largest_group
from planner.errors import InvalidInputError
from planner.iteration.scheduling import MAX_GROUP_NS, MAX_OVERHEAD, scheduling_problem
from planner.jsonio import drizzle as drizzle_json
from planner.network import AnyNetwork
from planner.profiles import Profile
from planner.results import Result
from planner.solving.methods import concrete
from planner.units import counted, format_ns, parse_time
from planner.validation import MAX_VALUE

__all__ = ["FAMILY", "of_events"]

_OPTIONS = (
    Option(
        "--events",
        None,
        {
            "nargs": "+",
            "metavar": "LOG",
            "help": "Spark's event logs, files or folders, in place of a profile and a cluster",
        },
    ),
    Option(
        "--max-overhead",
        str(float(MAX_OVERHEAD)),
        {"metavar": "F", "help": f"largest share of scheduling; default: {float(MAX_OVERHEAD):g}"},
    ),
    Option(
        "--max-group",
        f"{MAX_GROUP_NS // 10**9}s",
        {
            "metavar": "TIME",
            "help": "longest time of a group; default: "
            f"{MAX_GROUP_NS // 10**9}s, with --events none",
        },
    ),
)


def _requested(request: drizzle_json.DrizzleRequest) -> ComparedProblem:
    problem = request.to_problem()
    return ComparedProblem(
        problem,
        lambda result: drizzle_json.answer(problem, result),
        (f"request: {_summary(problem)}",),
        notes=lambda comparison: _online(problem, comparison),
    )


def _summary(problem: drizzle.Problem) -> str:
    tasks = counted(problem.tasks or 0, "task")
    return f"{tasks}, {format_ns(problem.compute_ns)} to compute, {_limits(problem)}"


def _limits(problem: drizzle.Problem) -> str:
    limit = problem.max_group_ns
    return (
        f"overhead of at most {float(problem.max_overhead):.4g}"
        f"{'' if limit is None else f', a decision every {format_ns(limit)}'}"
    )


def of_events(options: argparse.Namespace) -> ComparedProblem:
    """Return the problem of event logs, with a summary of the logs."""
    _check_limits(options)
    logs = read_logs(
        options.events,
        max_overhead=options.max_overhead,
        max_group_ns=options.max_group,
        quiet=options.quiet,
    )
    problem = logs.problem

    def notes(comparison: Comparison[drizzle.Plan, drizzle.Evaluation]) -> list[str]:
        plan = comparison.rows[0].plan if comparison.rows else None
        told = logs.sentence(None if plan is None else plan.group_size)
        return [*_online(problem, comparison), "", told]

    return ComparedProblem(
        problem,
        lambda result: drizzle_json.answer(problem, result),
        (f"events: {logs.about()}", f"limits: {_limits(problem)}"),
        logs.applications[0].name,
        notes=notes,
        warnings=logs.warnings,
    )


def _check_limits(options: argparse.Namespace) -> None:
    options.max_overhead = parse_number(options.max_overhead, "--max-overhead", positive=True)
    if options.max_overhead >= 1:
        raise InvalidInputError("--max-overhead", "expected a number < 1")
    if options.max_group is not None:
        options.max_group = parse_time(options.max_group, "--max-group")


def _check(options: argparse.Namespace) -> None:
    needs_cluster(options)
    if options.at.scheduling is None:
        raise InvalidInputError(
            "--cluster",
            f"{options.at.name} does not say what its engine's driver spends on tasks; drizzle-64 "
            "does",
        )
    options.machines = options.at.workers
    _check_limits(options)


def _problem(profile: Profile, network: AnyNetwork, options: argparse.Namespace) -> drizzle.Problem:
    """Return the problem of iterations that compute, then synchronise by slices."""
    summed_up = bigdl.solve(sliced(profile, network, options)).objective_ns
    return scheduling_problem(
        options.at,
        profile.forward_ns + profile.backward_ns + (summed_up or 0),
        max_overhead=options.max_overhead,
        max_group_ns=options.max_group,
    )


def _compared(
    profile: Profile, _: Profile, problem: drizzle.Problem, options: argparse.Namespace
) -> ComparedProblem:
    computed = format_ns(profile.forward_ns + profile.backward_ns)
    summary = f"{profile.name}: {_summary(problem)} ({computed}, the rest synchronises by slices)"
    return ComparedProblem(
        problem,
        lambda result: drizzle_json.answer(problem, result),
        about(profile, summary, "", options),
        profile.name,
        notes=lambda comparison: _online(problem, comparison),
    )


def _part(profile: Profile, _: argparse.Namespace) -> Profile:
    profile.dataflow()  # raises for a model without gradients
    return profile


def _online(
    problem: drizzle.Problem, comparison: Comparison[drizzle.Plan, drizzle.Evaluation]
) -> list[str]:
    """Return the result of the online rule; nothing without a plan.

    The rule doubles the group size from 1. The first size within the limit has at least half of the
    allowed overhead, or is 1, so the rule stays there.
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
    asks="how many iterations to schedule at once on Spark",
    example="planner compare data/drizzle/inception64.json",
    ends=("status",),
    profiled=Profiled(
        options=_OPTIONS,
        check=_check,
        part=_part,
        problem=_problem,
        compared=_compared,
        collective=lambda _: None,
    ),
)
