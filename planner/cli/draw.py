"""``planner draw``: draw a plan as a chart, a trace or text."""

import argparse
import shutil
from pathlib import Path
from typing import Any

from planner.cli.common import command, in_option, read_as, warn, write_text
from planner.cli.compare_tables import warning_lines
from planner.cli.writing import replacing
from planner.jsonio import decode_answer
from planner.view.drawing import drawing_of, plan_chart


def add_parser(commands: Any) -> None:
    """Add the command."""
    command(
        commands,
        "draw",
        run,
        "draw a plan as a chart, a trace for Perfetto, or text",
        "planner solve request.json | planner draw - -o plan.svg",
        {
            "plan PLAN": "an answer of planner solve; '-': standard input",
            "-o, --output FILE": "a chart (.svg) or, of a plan with a timeline, a Chrome/Perfetto "
            "trace (.json, .json.gz); default: text on the terminal",
        },
    )


def run(options: argparse.Namespace) -> int:
    """Draw a plan."""
    answer, view = read_as(options.plan, decode_answer)
    drawing, chart = drawing_of(answer.problem), plan_chart(answer, view)
    if options.output is None:
        width = shutil.get_terminal_size((100, 24)).columns
        write_text(drawing.text(chart, width) + "\n")
    else:
        path = Path(options.output)
        with in_option("--output"):
            write = drawing.writer(path)
        with replacing(path) as place:
            write(chart, place)
    warn(warning_lines(answer.warnings or ()))
    return 0
