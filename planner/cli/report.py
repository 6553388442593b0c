"""``planner report``: write a plan as an HTML page."""

import argparse
import shlex
from dataclasses import replace
from typing import Any

from planner.cli.common import command, write_document, write_text
from planner.cli.iteration_options import OF_ITERATION, settle
from planner.cli.parsing import given
from planner.cli.plan_text import about_cluster, sentence, workload
from planner.families import iteration
from planner.families.caramel.for_target import BUCKETS
from planner.families.iteration import Evaluation, Plan, Problem
from planner.families.iteration.sensitivity import sweep
from planner.jsonio.iteration import planned
from planner.model.errors import InvalidInputError
from planner.model.machine import VERSION
from planner.model.units import format_ns
from planner.solving.compare import Comparison, compare
from planner.solving.deadline import Deadline
from planner.solving.methods import without_auto
from planner.solving.result import Result
from planner.solving.targets import FSDP2
from planner.view.page import Report, page
from planner.view.progress import Progress

DEFAULT = "report.html"
"""Default path of the page."""


def add_parser(commands: Any) -> None:
    """Add the command."""
    command(
        commands,
        "report",
        run,
        "plan a whole training iteration and write a page about it",
        "planner report data/profiles/vgg19.json --cluster data/clusters/caramel-16.json "
        "--computation 0.05 -o vgg19.html",
        {
            **OF_ITERATION,
            "--time-limit S": "for each planning; default: no limit",
            f"-o, --output FILE ({DEFAULT})": "write the page, one HTML file, there; '-': standard "
            f"output; default: {DEFAULT}",
        },
        {"--cluster": {"required": True}},
    )


def run(options: argparse.Namespace) -> int:
    """Plan, compare, and write the page."""
    if vars(options)["for"] == FSDP2.name or options.mode == "fsdp":
        told = ("planner", "plan", options.profile, "--cluster", options.cluster, "--for")
        answers = shlex.join([*told, FSDP2.name])
        raise InvalidInputError("--for", f"no page shows plans for {FSDP2.title}: run {answers}")
    job = settle(options)
    Deadline.of(options.time_limit)  # raises on an invalid limit before the work starts
    progress, limit = Progress(quiet=options.quiet), options.time_limit
    target = job.options["target"]
    made = planned(
        job.profile,
        job.cluster,
        job.options,
        method="auto" if target is None else BUCKETS,
        time_limit=limit,
        regret=True,
        unhurried=True,
        progress=lambda what: progress(f"planning {what}"),
    )
    problem, methods = made.problem, [*without_auto(iteration.METHODS)]
    if target is None:
        methods.remove(iteration.JOINT)
    else:
        methods = [target.name, iteration.JOINT]

    def solved(_: Problem, *, method: str, time_limit: float | None) -> Result[Plan, Evaluation]:
        """Solve a method; only the target's default keeps to the rules of the target."""
        ruled = target is None or method == target.name
        under = problem if ruled else replace(problem, target=None)
        return iteration.solve(under, method=method, time_limit=time_limit)

    others = compare(
        problem,
        methods,
        solve=solved,
        time_limit=limit,
        progress=lambda name: progress(f"comparing with {name}"),
    )
    sweeps = None
    if target is None:
        sweeps = sweep(problem, made.alternatives, time_limit=limit, progress=progress)
    progress.done()
    rows = [made.result, *others.rows]  # the plan comes before equally good methods
    rows.sort(key=lambda row: (row.objective_ns is None, row.objective_ns or 0))
    report = Report(
        answer=made.answer,
        profile=job.profile,
        cluster=job.cluster,
        about=about_cluster(job.cluster),
        job=workload(job, problem),
        peers=Comparison(tuple(rows), others.left_out),
        sweeps=sweeps,
        command=_command(options),
        version=VERSION,
    )
    write_document(page(report), options.output)
    if options.output != "-":
        answer, text = made.answer, f"{made.answer.status}: {made.answer.reason or ''}"
        if answer.objective_ns is not None:
            text = f"iteration {format_ns(answer.iteration_ns)} by {sentence(answer)}"
        write_text(f"{options.output}: {text}\n")
    return 0


def _command(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the command that makes the same page again, with the non-default options."""
    first = ["planner", "report", options.profile, "--cluster", options.cluster]
    beside = ("run", "parser", "profile", "cluster", "quiet", "output")
    return (*first, *given(options, (name for name in vars(options) if name not in beside)))
