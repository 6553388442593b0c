"""``planner plan``: a whole iteration of a model on a cluster."""

import argparse
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from planner import iteration
from planner.cli.common import Progress, check_writable, command, write_json, write_text
from planner.cli.iteration_options import Subject, add_iteration_options, settle
from planner.cli.plan_text import lines
from planner.draw import GANTT
from planner.iteration import Alternative, Plan, Problem
from planner.jsonio import PROBLEMS
from planner.jsonio.iteration_answer import IterationAnswer, answer
from planner.methods import deadline_in
from planner.results import Result

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(
        commands,
        "plan",
        run,
        "plan a whole training iteration of a profiled model on a cluster",
        "planner plan data/profiles/vgg19.json --cluster data/clusters/caramel-16.json "
        "--computation 0.05\n"
        "  planner plan data/profiles/gpt2_small.json --cluster data/clusters/h100-8.json "
        "--computation 1/500 --optimiser-ratio 2 --picture plan.svg -o plan.json",
    )
    add_iteration_options(parser)
    parser.add_argument(
        "--method",
        default="auto",
        metavar="NAME",
        help="auto (default): the joint plan; or what a family by itself, or another system "
        f"does: {', '.join(iteration.METHODS[1:])}",
    )
    parser.add_argument("--time-limit", type=float, metavar="S", help="seconds of planning")
    parser.add_argument("--picture", metavar="FILE", help="draw the plan (.svg, .png, .json.gz)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the plan as JSON")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON, no text")


def run(options: argparse.Namespace) -> int:
    """Plan."""
    subject = settle(options)
    draw = GANTT.writer(Path(options.picture)) if options.picture else None
    for option in ("--picture", "--output"):
        path = vars(options)[option.removeprefix("--")]
        if path and path != "-":
            check_writable(path, option)
    progress = Progress()
    problem, result, found = _solved(subject, options, progress)
    progress.done()
    given = answer(problem, result, found, model=subject.profile.name)
    if options.output and options.output != "-":
        write_json(_encoded(given), options.output)
    if options.json or options.output == "-":
        write_json(_encoded(given), None)
    chart = None
    if given.transfers is not UNSET:
        chart = PROBLEMS["iteration"].chart(given, subject.profile.name)
    if not options.json and options.output != "-":
        text = "\n".join(lines(subject, problem, given)) + "\n"
        if chart is not None:
            width = shutil.get_terminal_size((100, 24)).columns
            text += "\n" + GANTT.text(chart, width) + "\n"
        write_text(text)
    if draw is not None and chart is not None:
        draw(chart, Path(options.picture))
    return 0


def _solved(
    subject: Subject, options: argparse.Namespace, progress: Progress
) -> tuple[Problem, Result[Plan], tuple[Alternative, ...]]:
    problem = subject.problem()
    if options.method != "auto":
        result = iteration.solve(problem, method=options.method, time_limit=options.time_limit)
        return problem, result, ()
    deadline = deadline_in(options.time_limit)
    begin = time.perf_counter()
    found = iteration.alternatives(problem, deadline, lambda name: progress(f"planning {name}"))
    return problem, iteration.best_of(problem, found, time.perf_counter() - begin), found


def _encoded(given: IterationAnswer) -> str:
    return msgspec.json.encode(given).decode() + "\n"
