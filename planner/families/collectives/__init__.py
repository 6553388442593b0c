"""All-reduce algorithms on BCubes, Fat-Trees and rails: their costs and their programs.

Each algorithm has a closed-form cost, an exact `Collective`, and a `Program`, which lists its
messages. `compare` lists all algorithms, `lower_bound` holds for all of them, and
`check` proves that a program is correct.
"""

from planner.families.collectives.checker import check
from planner.families.collectives.cost import (
    Collective,
    Cost,
    Fabric,
    lower_bound,
)
from planner.families.collectives.program import ListedProgram, Message, Program
from planner.families.collectives.rails import RAIL_PROGRAMS, RAILS, RailSteps
from planner.families.collectives.recipes import COLLECTIVES, collective, compare, program

__all__ = [
    "COLLECTIVES",
    "RAILS",
    "RAIL_PROGRAMS",
    "Collective",
    "Cost",
    "Fabric",
    "ListedProgram",
    "Message",
    "Program",
    "RailSteps",
    "check",
    "collective",
    "compare",
    "lower_bound",
    "program",
]
