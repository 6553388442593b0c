"""The cost of one collective among some ranks, from the measured tables of a network document."""

from collections.abc import Sequence
from dataclasses import replace

from planner.families.collectives.nics import measured_nic
from planner.families.collectives.prediction import predicted, range_note
from planner.jsonio.network import Described
from planner.model.costs import TableCost
from planner.model.errors import InvalidInputError
from planner.model.measured import COLLECTIVES, Collective
from planner.model.validation import inside


def settled(
    measured: Described, wanted: str | None, ranks: int | None = None, path: str = "network"
) -> Described:
    """Return the network with its tables resolved to the cost of one collective.

    `wanted` is the collective; None asks for the NICs that would carry it. `ranks` is by default
    the largest number measured. The ranks per host are those of the table with as many ranks, or
    else of the largest table. Other networks are returned unchanged. Raises InvalidInputError, at
    `path`, if the tables do not determine the cost.
    """
    single = wanted is None and not measured.algorithm.startswith("bml")  # not a ring's
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
    """Return warnings about costs of a plan's transfers (sizes in bytes) that were not measured."""
    cost = measured.network
    if measured.tables is None or not isinstance(cost, TableCost):
        return measured.notes
    beyond = range_note(cost, str(measured.collective), sizes)
    return (*measured.notes, beyond) if beyond else measured.notes
