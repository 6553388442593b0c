"""The output of ``planner plan``: JSON, text and a picture."""

import argparse
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from planner.cli.common import write_json, write_text
from planner.cli.complaint import complain
from planner.cli.writing import replacing
from planner.solving.timeline import Timeline
from planner.view import GANTT
from planner.view.chart import Chart


def write_plan(
    options: argparse.Namespace,
    encoded: str,
    chart: Chart[Timeline] | None,
    lines: Callable[[], Iterable[str]],
    draw: Callable[[Chart[Timeline], Path], None] | None,
) -> None:
    """Write the answer to ``--output``, ``--json``, standard output and ``--picture``.

    `encoded` is the answer as JSON, `lines` returns the text, `draw` writes the picture.
    """
    if options.output and options.output != "-":
        write_json(encoded, options.output)
    if options.json or options.output == "-":
        write_json(encoded, None)
    if not options.json and options.output != "-":
        text = "\n".join(lines()) + "\n"
        if chart is not None:
            width = shutil.get_terminal_size((100, 24)).columns
            text += "\n" + GANTT.text(chart, width) + "\n"
        write_text(text)
    if draw is not None and chart is not None:
        with replacing(options.picture) as place:
            draw(chart, place)
    elif draw is not None:
        complain(f"planner: there is no plan, so {options.picture} is not written")
