"""All-reduce algorithms on BCubes, Fat-Trees and rails: their costs and their programs.

Each algorithm has a closed-form cost, an exact `Collective`, and a `Program`, which lists its
messages. `compare` lists all algorithms, `choose` returns the fastest, `lower_bound` holds for
all of them, `check` proves that a program is correct, and `time_of` prices it.
"""

from planner.families.collectives.bml import bml_bcube
from planner.families.collectives.checker import check
from planner.families.collectives.comparison import (
    COLLECTIVES,
    PROGRAMS,
    choose,
    collective,
    compare,
    program,
)
from planner.families.collectives.cost import (
    Collective,
    Cost,
    Fabric,
    cost_of,
    lower_bound,
    time_of,
)
from planner.families.collectives.exchange import (
    k_nics_fattree,
    ps_bcube,
    ps_fattree,
    shuffle_bcube,
    shuffle_fattree,
)
from planner.families.collectives.halving_doubling import (
    halving_doubling_bcube,
    halving_doubling_fattree,
)
from planner.families.collectives.hierarchical import (
    groups_of,
    hierarchical_bcube,
    hierarchical_cost,
    hierarchical_fattree,
    tree_groups,
)
from planner.families.collectives.program import ListedProgram, Message, Program
from planner.families.collectives.rails import RAIL_PROGRAMS, RAILS, RailSteps
from planner.families.collectives.ring import gray_cycle, ring_bcube, ring_fattree
from planner.families.collectives.tensor_servers import (
    least_loaded,
    ps_tensors_fattree,
    ps_tensors_greedy_fattree,
    round_robin,
)

__all__ = [
    "COLLECTIVES",
    "PROGRAMS",
    "RAILS",
    "RAIL_PROGRAMS",
    "Collective",
    "Cost",
    "Fabric",
    "ListedProgram",
    "Message",
    "Program",
    "RailSteps",
    "bml_bcube",
    "check",
    "choose",
    "collective",
    "compare",
    "cost_of",
    "gray_cycle",
    "groups_of",
    "halving_doubling_bcube",
    "halving_doubling_fattree",
    "hierarchical_bcube",
    "hierarchical_cost",
    "hierarchical_fattree",
    "k_nics_fattree",
    "least_loaded",
    "lower_bound",
    "program",
    "ps_bcube",
    "ps_fattree",
    "ps_tensors_fattree",
    "ps_tensors_greedy_fattree",
    "ring_bcube",
    "ring_fattree",
    "round_robin",
    "shuffle_bcube",
    "shuffle_fattree",
    "time_of",
    "tree_groups",
]
