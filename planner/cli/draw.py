"""``planner draw``: a plan as a picture, a trace or text."""

import argparse
import shutil
from pathlib import Path
from typing import Any

from planner.cli.common import command, in_file, read, save_picture, write_text
from planner.draw import Chart, text_gantt
from planner.errors import InvalidInputError
from planner.jsonio import PROBLEMS, decode_answer

__all__ = ["add_parser", "chart_of"]


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
        answer, _ = decode_answer(read(options.plan))
    except InvalidInputError as error:
        raise in_file(options.plan, error) from None
    chart = chart_of(answer)
    if options.output is None:
        write_text(text_gantt(chart, shutil.get_terminal_size((100, 24)).columns) + "\n")
    else:
        save_picture(chart, Path(options.output))
    return 0


def chart_of(answer: Any, name: str = "") -> Chart:
    """Return what there is to draw of an answer, about the model `name` if it has one."""
    face = PROBLEMS[answer.problem]
    title = f"{name}: {face.headline(answer)}" if name else face.headline(answer)
    return Chart(title, face.timeline(answer), answer.lower_bound_ns)
