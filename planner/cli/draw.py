"""``planner draw``: a plan as a picture, a trace or text."""

import argparse
import shutil
from pathlib import Path
from typing import Any

from planner.cli.common import command, in_file, read, save_picture, write_text
from planner.draw import Chart, text_gantt
from planner.errors import InvalidInputError
from planner.jsonio import decode_answer
from planner.timeline import Timeline
from planner.units import format_ns

__all__ = ["add_parser", "title"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(
        commands,
        "draw",
        run,
        "draw a plan as a Gantt chart, a trace for Perfetto, or text",
        "planner solve request.json | planner draw - -o plan.svg",
    )
    parser.add_argument(
        "plan", metavar="PLAN", help="an answer of planner solve; '-': standard input"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="a chart (.svg, .png, .pdf) or a Chrome/Perfetto trace (.json, .json.gz); "
        "default: text on the terminal",
    )


def run(options: argparse.Namespace) -> int:
    """Draw."""
    try:
        answer, timeline = decode_answer(read(options.plan))
    except InvalidInputError as error:
        raise in_file(options.plan, error) from None
    chart = Chart(title(answer, timeline), timeline, answer.lower_bound_ns)
    if options.output is None:
        write_text(text_gantt(chart, shutil.get_terminal_size((100, 24)).columns) + "\n")
    else:
        save_picture(chart, Path(options.output))
    return 0


def title(answer: Any, timeline: Timeline, name: str = "") -> str:
    """Return one line that says what a plan is and what it costs."""
    count = len({interval.batch for interval in timeline.intervals})
    batches = f"{count} batch{'es' if count > 1 else ''}"
    text = (
        f"{answer.problem} {answer.direction} · {answer.method} · {batches} · "
        f"makespan {format_ns(timeline.end_ns)} · {answer.status}"
    )
    return f"{name}: {text}" if name else text
