"""The text and file formats in which each problem's plans are drawn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from planner.jsonio.heads import Head
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
    """How one kind of plan is drawn: as text of some width, into the file of a chart, as a trace.

    Only plans that say when things happen are `timed` and can become traces.
    """

    text: Callable[[Any, int], str]
    save: Callable[[Any, Path], None]
    timed: bool = True

    def writer(self, path: Path) -> Callable[[Any, Path], None]:
        """Return the function that writes the file's format, or raise InvalidInputError."""
        if path.name.endswith(_CHART) and path.name != _CHART:
            return self.save
        as_trace = path.name.endswith(_TRACES) and path.name not in _TRACES
        if as_trace and self.timed:
            return save_trace
        traces = f" or {', '.join(_TRACES)} (a trace)" if self.timed else ""
        raise InvalidInputError(str(path), f"{_EXPECTED}{traces}")


def _charted(panels_of: Callable[[Chart[Any]], Panels]) -> Drawing:
    """Return the drawing of plans that are shown in panels."""

    def text(chart: Chart[Any], width: int) -> str:
        return text_panels(chart.title, panels_of(chart), width)

    def save(chart: Chart[Any], path: Path) -> None:
        save_svg(path, chart.title, partial(draw_panels, panels_of(chart)))

    return Drawing(text, save, timed=False)


GANTT = Drawing(text_gantt, save_gantt)

DRAWINGS: Mapping[str, Drawing] = {
    "ibatch": GANTT,
    "caramel": GANTT,
    "yan": _charted(scaling),
    "bml": _charted(compared),
    "drizzle": _charted(groups),
    "bigdl": _charted(ranked),
    "fsdp": GANTT,
    "iteration": GANTT,
    "overlap": GANTT,
}
"""The drawing of each problem's plans."""


def drawing_of(problem: str) -> Drawing:
    """Return the drawing of a problem's plans; of a family that was registered a Gantt chart."""
    return DRAWINGS.get(problem, GANTT)


def plan_chart(answer: Head, view: Any, name: str = "") -> Chart[Any]:
    """Return the chart of an answer and its view (from `planner.jsonio.decode_answer`).

    `name` is the model's, for the title.
    """
    headline = answer.headline()
    title = f"{name}: {headline[:1].lower()}{headline[1:]}" if name else headline
    return Chart(title, view, answer.lower_bound_ns)
