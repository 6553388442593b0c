"""``planner report``: write a plan as an HTML page."""

import argparse
import shlex
import time
from dataclasses import dataclass, replace
from typing import Any

from msgspec import UNSET

from planner.cli.common import check_outputs, command, write_document, write_text
from planner.cli.iteration_options import Job, add_iteration_options, settle
from planner.cli.parsing import given, seconds
from planner.cli.plan_text import about_cluster, sentence
from planner.cli.telling import Progress
from planner.families import iteration
from planner.families.caramel.for_target import BUCKETS
from planner.families.iteration import ITERATION, Alternative, Evaluation, Plan, Problem
from planner.families.iteration.for_target import exported
from planner.families.iteration.scheduling import group_size
from planner.families.iteration.sensitivity import Sweeps, sweep
from planner.jsonio.heads import warned
from planner.jsonio.iteration import doubts
from planner.jsonio.iteration_answer import IterationAnswer
from planner.jsonio.iteration_making import answer
from planner.model.errors import InvalidInputError
from planner.model.machine import VERSION
from planner.model.units import counted, format_bytes, format_ns
from planner.solving.comparison import Comparison, compare
from planner.solving.deadline import Deadline
from planner.solving.methods import concrete
from planner.solving.result import Result
from planner.solving.targets import FSDP2
from planner.solving.what_if import advise, regrets
from planner.view.page import Report, page

DEFAULT = "report.html"
"""Default path of the page."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """The plan, its alternatives, the other methods, and sweeps over networks."""

    result: Result[Plan, Evaluation]
    alternatives: tuple[Alternative, ...]
    others: Comparison[Plan, Evaluation]
    sweeps: Sweeps | None


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(
        commands,
        "report",
        run,
        "plan a whole training iteration and write a page about it",
        "planner report data/profiles/vgg19.json --cluster data/clusters/caramel-16.json "
        "--computation 0.05 -o vgg19.html",
    )
    add_iteration_options(parser)
    parser.add_argument(
        "--time-limit", type=seconds, metavar="S", help="for each planning; default: no limit"
    )
    parser.add_argument(
        "-o",
        "--output",
        default=DEFAULT,
        metavar="FILE",
        help=f"write the page, one HTML file, there; '-': standard output; default: {DEFAULT}",
    )


def run(options: argparse.Namespace) -> int:
    """Plan, compare, and write the page."""
    if vars(options)["for"] == FSDP2.name:
        told = ("planner", "plan", options.profile, "--cluster", options.cluster, "--for")
        answers = shlex.join([*told, FSDP2.name])
        raise InvalidInputError("--for", f"no page shows plans for {FSDP2.title}: run {answers}")
    job = settle(options)
    Deadline.of(options.time_limit)  # raises on an invalid limit before the work starts
    check_outputs(
        {"--output": options.output},
        (options.profile, options.cluster, options.interference, options.network),
    )
    progress = Progress(quiet=options.quiet)
    problem = job.problem()
    planned = _freely if problem.target is None else _for_target
    made = planned(problem, options.time_limit, progress)
    result = made.result
    end, plan = Deadline.of(options.time_limit), result.plan
    advice = advise(ITERATION, problem, result, end) if made.alternatives else None
    regret = None if plan is None else regrets(ITERATION, problem, plan, end, progress)
    targets = None if plan is None or problem.target is None else exported(problem, plan, end)
    progress.done()
    groups = None
    if job.cluster.scheduling is not None and result.objective_ns:
        groups = group_size(job.cluster, result.objective_ns)
    answered = answer(
        problem,
        result,
        made.alternatives,
        model=job.profile.name,
        groups=groups,
        advice=advice,
        regret=regret,
        targets=targets,
    )
    answered = warned(answered, doubts(problem, plan, answered))
    report = Report(
        answer=answered,
        profile=job.profile,
        cluster=job.cluster,
        about=about_cluster(job.cluster),
        job=_workload(job, problem),
        peers=_beside(made.others, result),
        sweeps=made.sweeps,
        command=_command(options),
        version=VERSION,
    )
    write_document(page(report), options.output)
    if options.output != "-":
        write_text(f"{options.output}: {_summary(answered)}\n")
    return 0


def _freely(problem: Problem, limit: float | None, progress: Progress) -> _Planned:
    """Plan for planner's own runtime, with all algorithms, methods and sweeps."""
    deadline, begin = Deadline.of(limit), time.perf_counter()
    alternatives = iteration.alternatives(
        problem, deadline, lambda name: progress(f"planning {name}")
    )
    result = iteration.best_of(problem, alternatives, time.perf_counter() - begin)
    others = compare(
        problem,
        [name for name in concrete(iteration.METHODS) if name != iteration.JOINT],
        solve=iteration.solve,
        time_limit=limit,
        progress=lambda name: progress(f"comparing with {name}"),
    )
    sweeps = sweep(problem, alternatives, time_limit=limit, progress=progress)
    return _Planned(result, alternatives, others, sweeps)


def _for_target(problem: Problem, limit: float | None, progress: Progress) -> _Planned:
    """Plan under a target's rules; compare with its default and a plan without rules."""
    target = problem.target
    assert target is not None
    progress(f"planning for {target.title}")
    result = iteration.solve(problem, method=BUCKETS, time_limit=limit)

    def solved(_: Problem, *, method: str, time_limit: float | None) -> Result[Plan, Evaluation]:
        under = problem if method == target.name else replace(problem, target=None)
        return iteration.solve(under, method=method, time_limit=time_limit)

    others = compare(
        problem,
        (target.name, iteration.JOINT),
        solve=solved,
        time_limit=limit,
        progress=lambda name: progress(f"comparing with {name}"),
    )
    return _Planned(result, (), others, None)


def _beside(
    others: Comparison[Plan, Evaluation], result: Result[Plan, Evaluation]
) -> Comparison[Plan, Evaluation]:
    """Return the comparison with the plan added, before equally good methods."""
    rows = [result, *others.rows]
    rows.sort(key=lambda row: (row.objective_ns is None, row.objective_ns or 0))
    return Comparison(tuple(rows), others.left_out)


def _workload(job: Job, problem: Problem) -> str:
    scale = job.options["computation"]
    return (
        f"{counted(len(problem.graph.parameters), 'parameter')}, "
        f"{format_bytes(sum(problem.pushed))} of gradients, "
        f"{format_ns(problem.base.windows.compute_ns)} to compute"
        + ("" if scale == 1 else f" (× {scale} of the profile)")
    )


def _summary(answered: IterationAnswer) -> str:
    if answered.iteration_ns is UNSET:
        return f"{answered.status}: {'' if answered.reason is UNSET else answered.reason}"
    return f"iteration {format_ns(answered.iteration_ns)} by {sentence(answered)}"


def _command(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the command that makes the same page again, with the non-default options."""
    first = ["planner", "report", options.profile, "--cluster", options.cluster]
    beside = ("run", "parser", "profile", "cluster", "quiet", "verbose", "output")
    return (*first, *given(options, (name for name in vars(options) if name not in beside)))
