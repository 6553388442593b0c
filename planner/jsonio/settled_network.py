"""What one collective costs among some ranks, of a network document that has tables."""

from collections.abc import Sequence
from dataclasses import replace

from planner.collectives.nics import measured_nic
from planner.collectives.predicted import predicted, range_note
from planner.costs import TableCost
from planner.errors import InvalidInputError
from planner.jsonio.network import Described
from planner.measured import COLLECTIVES, Collective
from planner.validation import inside

__all__ = ["settled", "warnings_of"]


def settled(
    measured: Described, wanted: str | None, ranks: int | None = None, path: str = "network"
) -> Described:
    """Return a network with what one collective costs among so many ranks, if tables say it.

    Parameters
    ----------
    measured : Described
        The network; others than tables stay as they are.
    wanted : str or None
        Which collective; None: what the NICs do that carry it.
    ranks : int, optional
        Among how many ranks; by default as many as were measured at most. As many share a host as
        in the table of as many ranks, or else of most.
    path : str
        Where it stands.

    Raises
    ------
    InvalidInputError
        If the tables say nothing of that.
    """
    single = wanted is None and not measured.algorithm.startswith("bml")  # it is no ring's
    if measured.tables is None or (measured.collective is not None and not single):
        return measured
    count, tables = ranks or measured.tables.most_ranks.ranks, measured.tables
    each = max(
        (table.per_host for table in tables.tables if table.ranks == count),
        default=tables.most_ranks.per_host,
    )
    each = each if not count % each else count if count < each else 1
    if wanted is None:
        with inside(path):
            nic, notes = measured_nic(tables, count, each)
        return Described(nic, interference=measured.interference, notes=notes)
    if wanted not in COLLECTIVES:
        raise InvalidInputError(path, f"expected measured {wanted}, got other collectives")
    collective: Collective = wanted
    with inside(path):
        known = predicted(tables, collective, count, each)
    return replace(
        measured, network=known.cost, collective=collective, ranks=count, notes=known.notes
    )


def warnings_of(measured: Described, sizes: Sequence[int]) -> tuple[str, ...]:
    """Return what of a plan's costs was not measured.

    Parameters
    ----------
    measured : Described
        The network, settled.
    sizes : sequence of int
        Bytes of each transfer of the plan.
    """
    cost = measured.network
    if measured.tables is None or not isinstance(cost, TableCost):
        return measured.notes
    beyond = range_note(cost, str(measured.collective), sizes)
    return (*measured.notes, beyond) if beyond else measured.notes
