"""How far predictions from tables are off, estimated by leaving out what was measured.

Problem. A cost is linear between measured sizes, and between or beyond measured numbers of ranks it
is predicted. How far is that off where nothing was measured?

Method. Leave one size of a table out, all but its first and last, and predict it from the others;
leave one number of ranks out, and predict its table from the others; or predict the largest number
of ranks from all smaller ones, and the next larger one from those below it.

Guarantee. None: an estimate. What is between two sizes left in is a gap twice as wide as that in
use, so that the estimate is rather too large where costs are smooth.

Complexity. O(tables · sizes · tables). Source: leave-one-out cross-validation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planner.families.collectives.prediction import predicted
from planner.model.errors import InvalidInputError
from planner.model.measured import Measured, MeasuredNetwork

LARGE = 2**20
"""Sizes from which on bandwidth decides more than protocols do."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One time that was measured, and predicted without it.

    Attributes
    ----------
    table : Measured
        Whose it is.
    size_bytes, measured_ns, predicted_ns : int
        Its size, and the two times.
    """

    table: Measured
    size_bytes: int
    measured_ns: int
    predicted_ns: int

    @property
    def error(self) -> float:
        """By how much the prediction exceeds the measurement, relative to it."""
        return self.predicted_ns / self.measured_ns - 1


def sizes_left_out(table: Measured) -> Iterator[HeldOut]:
    """Yield each inner size of a table, predicted from the others."""
    for place in range(1, len(table.points) - 1):
        rest = replace(table, points=(*table.points[:place], *table.points[place + 1 :]))
        size, time = table.points[place]
        yield HeldOut(table, size, time, rest.cost.cost_ns(size))


def ranks_left_out(network: MeasuredNetwork) -> Iterator[HeldOut]:
    """Yield all times of each number of ranks between others, predicted from the others."""
    for table in network.tables:
        others = _comparable(network, table)
        if any(other.ranks < table.ranks for other in others) and any(
            other.ranks > table.ranks for other in others
        ):
            yield from _predict(network, table, others)


def from_smaller(network: MeasuredNetwork) -> Iterator[HeldOut]:
    """Yield all times of each number of ranks, predicted from smaller numbers of ranks only."""
    for table in network.tables:
        smaller = [other for other in _comparable(network, table) if other.ranks < table.ranks]
        if smaller:
            yield from _predict(network, table, smaller)


def summary(held_out: Sequence[HeldOut], at_least: int = LARGE) -> tuple[int, float, float] | None:
    """Return how many there are from a size on, and their mean and largest errors; None if none."""
    errors = [abs(left.error) for left in held_out if left.size_bytes >= at_least]
    if not errors:
        return None
    return len(errors), sum(errors) / len(errors), max(errors)


def _comparable(network: MeasuredNetwork, table: Measured) -> list[Measured]:
    """Return the other tables of a collective among as many ranks a host, or all in one host."""
    return [
        other
        for other in network.of(table.collective)
        if other is not table
        and (other.hosts > 1) == (table.hosts > 1)
        and (other.per_host == table.per_host or table.hosts == 1)
    ]


def _predict(
    network: MeasuredNetwork, table: Measured, others: Sequence[Measured]
) -> Iterator[HeldOut]:
    left = replace(network, tables=tuple(others))
    try:
        known = predicted(left, table.collective, table.ranks, table.per_host)
    except InvalidInputError:
        return
    low, high = known.cost.points[0][0], known.cost.points[-1][0]
    for size, time in table.points:
        if low <= size <= high:
            yield HeldOut(table, size, time, known.cost.cost_ns(size))
