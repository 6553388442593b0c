"""The whole answer: where time went on each rank, which transfers were waited for and why.

Complexity: that of its parts. Source: own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from planner.costs import AffineCost
from planner.errors import InvalidInputError
from planner.graphs import Graph
from planner.traces.breakdown import Breakdown, breakdown_of
from planner.traces.recorded import Recorded
from planner.traces.saving import Saving, saving_of
from planner.traces.waits import CAUSES, Wait, costs_of, waits_of

__all__ = ["Why", "why"]


@dataclass(frozen=True, slots=True)
class Why:
    """What computation waited for.

    Attributes
    ----------
    ranks : tuple of Recorded
        What was recorded.
    breakdowns : tuple of Breakdown
        Where the time of each rank went.
    waits : tuple of Wait
        Of all transfers of all ranks, the longest first.
    causes : mapping of str to int
        Sums over all waits, by cause.
    costs : mapping of str to AffineCost
        What no transfer of each collective undercut.
    steps : int
        Steps of a rank; 1 if none are marked.
    saving : Saving
        What a better plan saves of a step, in the mean of ranks and steps.
    """

    ranks: tuple[Recorded, ...]
    breakdowns: tuple[Breakdown, ...]
    waits: tuple[Wait, ...]
    causes: Mapping[str, int]
    costs: Mapping[str, AffineCost]
    steps: int
    saving: Saving


def why(
    ranks: Sequence[Recorded],
    graph: Graph | None = None,
    reason: str = "",
    *,
    time_limit: float | None = None,
) -> Why:
    """Return what computation waited for, and what a better plan could save.

    Parameters
    ----------
    ranks : sequence of Recorded
        One rank, or several of one job.
    graph : Graph or None
        A step's dataflow, as it was recorded; None if unknown, for the `reason`.
    reason : str
        Why there is no graph.
    time_limit : float, optional
        Seconds for planning.

    Raises
    ------
    InvalidInputError
        If two traces are of one rank.
    """
    numbers = Counter(rank.rank for rank in ranks)
    if twice := [rank for rank, count in numbers.items() if count > 1]:
        raise InvalidInputError(
            "traces", f"{numbers[twice[0]]} are of rank {twice[0]}: expected one trace a rank"
        )
    breakdowns = tuple(map(breakdown_of, ranks))
    waits, costs = waits_of(ranks), costs_of(ranks)
    steps = max(1, min(len(rank.steps) for rank in ranks))
    known = {
        name: sum(
            transfer.size_bytes or 0
            for rank in ranks
            for transfer in rank.transfers
            if transfer.collective == name
        )
        // (steps * len(ranks))
        for name in costs
    }
    planned = [wait for wait in waits if wait.transfer.collective in costs]
    return Why(
        ranks=tuple(ranks),
        breakdowns=breakdowns,
        waits=tuple(sorted(waits, key=lambda wait: -wait.waited_ns)),
        causes={name: sum(wait.causes[name] for wait in waits) for name in CAUSES},
        costs=costs,
        steps=steps,
        saving=saving_of(
            sum(wait.waited_ns - wait.causes["input"] - wait.causes["host"] for wait in planned)
            // (steps * len(ranks)),
            sum(wait.causes["straggler"] for wait in planned) // (steps * len(ranks)),
            round(fmean(breakdown.compute_ns for breakdown in breakdowns)) // steps,
            known,
            costs,
            graph,
            workers=max(2, max((rank.ranks or 0 for rank in ranks), default=0)),
            reason=reason,
            time_limit=time_limit,
        ),
    )
