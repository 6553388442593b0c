"""Colours of all pictures; a colour means the same in all schedules.

The palette follows Okabe and Ito: colour-blind readers can distinguish it.
"""

from collections.abc import Mapping

from planner.solving.timeline import Kind

COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#0072B2", "#D55E00")
GREY = "#9A9A9A"
LATE = "#d0003a"

KINDS: Mapping[Kind, str] = {
    "backward": "#9a9a9a",
    "forward": "#dadada",
    "computation": "#9a9a9a",
    "all_reduce": "#56b4e9",
    "collective": "#56b4e9",
    "push": "#e69f00",
    "pull": "#2db88c",
    "all_gather": "#2db88c",
    "reduce_scatter": "#e69f00",
}
"""Colour of each kind of interval, in charts and on pages; start-ups are hatched."""
