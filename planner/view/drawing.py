"""The text and file formats in which each problem's plans are drawn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from planner.jsonio.answer_base import AnswerBase
from planner.model.errors import InvalidInputError
from planner.view.bars import Panels, draw_panels, text_panels
from planner.view.chart import Chart
from planner.view.gantt import save_gantt
from planner.view.panels import compared, groups, ranked, scaling
from planner.view.svg import save_svg
from planner.view.text import text_gantt
from planner.view.trace import save_trace

_TRACES = (".json", ".json.gz")
_CHART = ".svg"
_EXPECTED = f"expected a name ending in {_CHART} (a chart)"


@dataclass(frozen=True, slots=True)
class Drawing:
    """How one kind of plan is drawn: by a Gantt chart, or by panels if it does not say when."""

    panels: Callable[[Chart[Any]], Panels] | None = None

    def text(self, chart: Chart[Any], width: int) -> str:
        """Return the drawing as text of some width."""
        if self.panels is None:
            return text_gantt(chart, width)
        return text_panels(chart.title, self.panels(chart), width)

    def save(self, chart: Chart[Any], path: Path) -> None:
        """Draw into a file as SVG."""
        if self.panels is None:
            save_gantt(chart, path)
        else:
            save_svg(path, chart.title, partial(draw_panels, self.panels(chart)))

    def writer(self, path: Path) -> Callable[[Any, Path], None]:
        """Return the function that writes the file's format, or raise InvalidInputError."""
        if path.name.endswith(_CHART) and path.name != _CHART:
            return self.save
        timed = self.panels is None
        if timed and path.name.endswith(_TRACES) and path.name not in _TRACES:
            return save_trace
        traces = f" or {', '.join(_TRACES)} (a trace)" if timed else ""
        raise InvalidInputError(str(path), f"{_EXPECTED}{traces}")


GANTT = Drawing()

DRAWINGS: Mapping[str, Drawing] = {
    **dict.fromkeys(("ibatch", "caramel", "fsdp", "iteration", "overlap"), GANTT),
    "yan": Drawing(scaling),
    "bml": Drawing(compared),
    "drizzle": Drawing(groups),
    "bigdl": Drawing(ranked),
}
"""The drawing of each problem's plans."""


def drawing_of(problem: str) -> Drawing:
    """Return the drawing of a problem's plans; of a family that was registered a Gantt chart."""
    return DRAWINGS.get(problem, GANTT)


def plan_chart(answer: AnswerBase, view: Any, name: str = "") -> Chart[Any]:
    """Return the chart of an answer and its view (from `planner.jsonio.decode_answer`).

    `name` is the model's, for the title.
    """
    headline = answer.headline()
    title = f"{name}: {headline[:1].lower()}{headline[1:]}" if name else headline
    return Chart(title, view, answer.lower_bound_ns)
