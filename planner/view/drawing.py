"""The text and file formats in which each kind of plan is drawn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.model.errors import InvalidInputError
from planner.view.bars import comparison_bars, save_bars
from planner.view.chart import Chart
from planner.view.gantt import save_gantt
from planner.view.groups_panels import save_groups
from planner.view.hot_spots import save_hot_spots, text_hot_spots
from planner.view.panels import save_scaling
from planner.view.text import text_bars, text_gantt, text_groups, text_scaling
from planner.view.trace import save_trace

_TRACES = (".json", ".json.gz")
_CHARTS = ".svg, .png, .pdf (a chart)"


@dataclass(frozen=True, slots=True)
class Drawing:
    """How one kind of plan is drawn.

    `chart` returns the chart of a title, a view and a lower bound (ns). `text` returns a chart as
    text of some width. `writers` maps file suffixes to functions that write a chart. `refused` maps
    suffixes to the reason why that format is impossible.
    """

    chart: Callable[[str, Any, int | None], Any]
    text: Callable[[Any, int], str]
    writers: Mapping[str, Callable[[Any, Path], None]]
    refused: Mapping[str, str] = field(default_factory=dict)

    def writer(self, path: Path) -> Callable[[Any, Path], None]:
        """Return the function that writes the file's format, or raise InvalidInputError."""
        for ending, write in self.writers.items():
            if _ends(path.name, ending):
                return write
        for ending, reason in self.refused.items():
            if _ends(path.name, ending):
                raise InvalidInputError(str(path), reason)
        known = _CHARTS
        if any(ending in self.writers for ending in _TRACES):
            known += " or .json, .json.gz (a trace)"
        raise InvalidInputError(str(path), f"expected a name ending in {known}")


def _ends(name: str, ending: str) -> bool:
    return name.endswith(ending) and name != ending


def _charts(save: Callable[[Any, Path], None]) -> dict[str, Callable[[Any, Path], None]]:
    return dict.fromkeys((".svg", ".png", ".pdf"), save)


def _without_times(
    chart: Callable[..., Any],
    text: Callable[[Any, int], str],
    save: Callable[[Any, Path], None],
    why: str,
) -> Drawing:
    """Return the drawing of plans without times, for which traces are impossible."""
    refusal = f"a trace shows when things happen, and {why}: expected a name ending in {_CHARTS}"
    return Drawing(chart, text, _charts(save), dict.fromkeys(_TRACES, refusal))


GANTT = Drawing(Chart, text_gantt, {**_charts(save_gantt), **dict.fromkeys(_TRACES, save_trace)})
"""Plans with a timeline."""

SCALING = _without_times(
    Chart, text_scaling, save_scaling, "a configuration says only how long they take"
)
"""Plans that are a job configuration."""

GROUPS = _without_times(Chart, text_groups, save_groups, "a group size says only how often")
"""Plans that are a group size."""

HOT_SPOTS = _without_times(Chart, text_hot_spots, save_hot_spots, "turns say only in which order")
"""Plans that are a pull order."""

BARS = _without_times(
    comparison_bars, text_bars, save_bars, "a comparison says only how long they take"
)
"""Plans shown by a comparison with other algorithms."""
