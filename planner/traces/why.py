"""The complete analysis of recorded ranks: time breakdown, waits, causes, possible saving."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.model.costs import AffineCost
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph
from planner.traces.breakdown import (
    Breakdown,
    StepParts,
    breakdown_of,
    clipped,
    length,
    parts_of,
    periods_of,
    without,
)
from planner.traces.recorded import Recorded
from planner.traces.saving import Saving, saving_of
from planner.traces.waits import CAUSES, Wait, costs_of, one_of_several, waits_of


@dataclass(frozen=True, slots=True)
class Why:
    """The analysis of recorded ranks.

    Attributes
    ----------
    ranks : tuple of Recorded
        The recorded traces.
    breakdowns : tuple of Breakdown
        Time breakdown of each rank over the whole trace.
    parts : tuple of StepParts
        Time breakdown of each step of each rank.
    waits : tuple of Wait
        Waits of all steps and ranks, the longest first.
    causes : mapping of str to int
        Sums over all waits, by cause (ns).
    costs : mapping of str to AffineCost
        The lowest cost of each collective; empty for one rank of several.
    steps : int
        Least number of steps of a rank; 1 if none are marked.
    in_all : int
        Steps of all ranks together.
    saving : Saving
        Possible saving of a step, as the mean over ranks and steps.
    """

    ranks: tuple[Recorded, ...]
    breakdowns: tuple[Breakdown, ...]
    parts: tuple[StepParts, ...]
    waits: tuple[Wait, ...]
    causes: Mapping[str, int]
    costs: Mapping[str, AffineCost]
    steps: int
    in_all: int
    saving: Saving

    @property
    def unexplained(self) -> bool:
        """Whether transfers may be hidden in the computation of a rank, or are missing."""
        return any(rank.unexplained for rank in self.ranks)

    @property
    def one_of_several(self) -> bool:
        """Whether the only recorded rank belongs to a job of several."""
        return one_of_several(self.ranks)


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
        A recorded step's dataflow; None if unknown, for the `reason`.
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
    waits, costs = waits_of(ranks), costs_of(ranks)
    parts = tuple(part for rank in ranks for part in parts_of(rank))
    in_all = sum(max(1, len(rank.steps)) for rank in ranks)
    known = {
        name: sum(
            transfer.size_bytes or 0
            for rank in ranks
            for transfer in rank.transfers
            if transfer.collective == name and (transfer.step >= 0 or not rank.steps)
        )
        // in_all
        for name in costs
    }
    exposed = sum(wait.waited_ns - wait.causes["input"] - wait.causes["host"] for wait in waits)
    if one_of_several(ranks):
        given = f"one rank of {ranks[0].ranks}" if ranks[0].ranks else "one rank of several"
        reason = (
            f"from {given} start-ups cannot be told from waiting for other ranks: give the traces "
            "of all ranks"
        )
        graph = None
    return Why(
        ranks=tuple(ranks),
        breakdowns=tuple(map(breakdown_of, ranks)),
        parts=parts,
        waits=tuple(sorted(waits, key=lambda wait: -wait.waited_ns)),
        causes={name: sum(wait.causes[name] for wait in waits) for name in CAUSES},
        costs=costs,
        steps=max(1, min(len(rank.steps) for rank in ranks)),
        in_all=in_all,
        saving=saving_of(
            exposed // in_all,
            sum(wait.causes["straggler"] for wait in waits) // in_all,
            sum(part.compute_ns for part in parts) // in_all,
            known,
            costs,
            graph,
            doubtful_ns=sum(map(_doubtful_ns, ranks)) // in_all,
            workers=max(2, max((rank.ranks or 0 for rank in ranks), default=0)),
            reason=reason,
            time_limit=time_limit,
        ),
    )


def _doubtful_ns(rank: Recorded) -> int:
    """Return the additional wait if the doubtful kernels were transfers (ns)."""
    if rank.certain is None:
        return 0
    doubtful = without(rank.computation, rank.certain)
    return sum(length(clipped(doubtful, period)) for period in periods_of(rank))
