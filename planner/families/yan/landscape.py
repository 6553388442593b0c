"""The best configuration for each number of workers and replicas, as in a heat map.

Method: for every N_wr and N_mr that leave room for the servers, the dynamic program over layers
(`planner.families.yan.layerwise`) and its exact end (`planner.families.yan.exact_tie_break`). All
remaining machines are servers: more never cost more, and `solve` prefers more among equal times, so
one cell is the plan of method `exact`. Fewer machines for a time: `planner.families.yan.pareto`.

Guarantee: the exact least time of each cell under the canonical mapping.
Complexity: N ln N cells, one program each: 60 cells in 1 s on 20 machines, 473 in 8 s on 100.
Source: own.
"""

from collections.abc import Callable

from planner.families.yan.configuration import Ranked
from planner.families.yan.feasibility import infeasibility
from planner.families.yan.layer_program import Triple
from planner.families.yan.pareto import FrugalEngine
from planner.families.yan.problem import DEPENDS, Problem, refuse_different
from planner.model.errors import NotApplicableError
from planner.solving.deadline import NEVER, Deadline

MAX_CELLS = 2_000
"""Most cells of a landscape, those of about 300 machines."""


def landscape(
    problem: Problem,
    *,
    deadline: Deadline = NEVER,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Ranked, ...]:
    """Return the best configuration for each number of workers and replicas.

    Parameters
    ----------
    problem : Problem
        The problem; its `fixed` and `top` are ignored.
    deadline : Deadline
        When to stop; the remaining cells are missing then.
    progress : callable, optional
        Called after each cell with the number of cells done, and of all.

    Returns
    -------
    tuple of Ranked
        By workers of a replica, then replicas; without cells in which nothing fits in memory. All
        other machines are servers.

    Raises
    ------
    NotApplicableError
        If machines differ, or there are more than `MAX_CELLS` cells.
    """
    refuse_different(problem, "a landscape", DEPENDS)
    if infeasibility(problem) is not None:
        return ()
    engine = FrugalEngine(problem)
    pairs = [
        (workers, replicas)
        for replicas, most in engine.space.pairs()
        for workers in range(1, most + 1)
    ]
    if len(pairs) > MAX_CELLS:
        raise NotApplicableError(
            "machines",
            f"a landscape takes at most {MAX_CELLS} numbers of workers and replicas, "
            f"{problem.machines} machines have {len(pairs)}",
        )
    cells: list[Ranked] = []
    for done, (workers, replicas) in enumerate(sorted(pairs), start=1):
        if deadline.passed:
            break
        triple = Triple(workers, replicas, engine.space.servers(workers, replicas)[-1])
        if engine.solve(triple) is not None:
            cells += engine.ranked([triple])
            engine.forget(triple)
        if progress is not None:
            progress(done, len(pairs))
    return tuple(cells)
