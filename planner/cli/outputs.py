"""The outputs of a command for the answer it chose: a file, JSON or text, and a picture."""

import argparse
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from planner.cli.common import complain, in_option, write_json, write_text
from planner.cli.writing import replacing
from planner.jsonio import PROBLEMS
from planner.jsonio.answer_base import AnswerBase
from planner.view.drawing import Drawing, drawing_of, plan_chart


@dataclass(frozen=True, slots=True)
class Outputs:
    """The options ``--output``, ``--json`` and ``--picture``, checked."""

    options: argparse.Namespace
    drawing: Drawing
    draw: Callable[[Any, Path], None] | None

    @classmethod
    def of(cls, options: argparse.Namespace, problem: str) -> "Outputs":
        """Return the outputs that options ask for; check the picture's format before any work."""
        drawing = drawing_of(problem)
        with in_option("--picture"):
            draw = drawing.writer(Path(options.picture)) if options.picture else None
        return cls(options, drawing, draw)

    def write(
        self,
        answer: AnswerBase | None,
        name: str,
        lines: Callable[[], Iterable[str]],
        printed: Callable[[], Any] | None = None,
    ) -> None:
        """Write the answer, if there is one; `lines` are its text, `name` the model's.

        `printed` returns what ``--json`` prints in place of the answer alone.
        """
        options, chart = self.options, None
        encoded = "" if answer is None else msgspec.json.encode(answer).decode() + "\n"
        if answer is not None and answer.status not in ("infeasible", "time_limit"):
            chart = plan_chart(answer, PROBLEMS[answer.problem].view(answer), name)
        if encoded and options.output not in (None, "-"):  # before a reader may stop early
            write_json(encoded, options.output)
        try:
            if options.json and printed is not None:
                write_json(msgspec.json.encode(printed()).decode() + "\n", None)
            elif encoded and (options.json or options.output == "-"):
                write_json(encoded, None)
            else:
                text = "\n".join(lines()) + "\n"
                if chart is not None:
                    width = shutil.get_terminal_size((100, 24)).columns
                    text += "\n" + self.drawing.text(chart, width) + "\n"
                write_text(text)
        finally:
            if self.draw is not None and chart is not None:
                with replacing(options.picture) as place:
                    self.draw(chart, place)
        if self.draw is not None and chart is None:
            complain(f"planner: there is no plan, so {options.picture} is not written")
