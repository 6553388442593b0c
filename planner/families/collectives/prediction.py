"""Predicts unmeasured costs: a collective among other numbers of ranks, and its NIC.

Problem: a network has tables of times by size, each of one collective among some ranks, g per host.
What does a collective cost among N ranks?
Method: a table of exactly these ranks is used unchanged. Between two tables times are interpolated,
linear in log N. Beyond them the nearest table is scaled by a fitted cost p·steps + q·volume. A
collective without tables is composed of the others. Details: docs/calibration.md, "Collectives
among other numbers of ranks".
Guarantee: the cost never falls with the size; between two tables that rise with the ranks it lies
between them. Notes name everything that was not measured. Exact fractions: the same on all
machines.
Complexity: O(tables · sizes). Source: own; the costs are those of `planner.collectives`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import log2

from planner.families.collectives.ring import bruck_cost
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.fitting import fit_affine
from planner.model.measured import COLLECTIVES, Collective, Measured, MeasuredNetwork, never_falling
from planner.model.network import scattered
from planner.model.topologies import BCube, Rails
from planner.model.units import format_ns, format_rate


@dataclass(frozen=True, slots=True)
class Predicted:
    """The cost of a collective by size, with notes on what was not measured."""

    cost: TableCost
    notes: tuple[str, ...] = ()


@lru_cache(maxsize=256)
def predicted(
    network: MeasuredNetwork, collective: Collective, ranks: int, per_host: int
) -> Predicted:
    """Return the cost of a collective, with notes on what was not measured.

    `ranks` is at least 2, `per_host` a divisor of it. Tables within a host say nothing about
    several hosts, nor the reverse: an `InvalidInputError`.
    """
    tables = network.of(collective)
    if not tables:
        return _of_others(network, collective, ranks, per_host)
    exact = [table for table in tables if (table.ranks, table.per_host) == (ranks, per_host)]
    if exact:
        return Predicted(exact[0].cost)
    notes = []
    alike = _alike(tables, ranks, per_host)
    if not alike:
        near = min(
            (table for table in tables if (table.hosts > 1) == (ranks > per_host)),
            key=lambda table: (abs(log2(table.per_host / per_host)), table.per_host),
            default=None,
        )
        if near is None:
            where = "within a host" if ranks > per_host else "across hosts"
            raise InvalidInputError(
                f"collectives.{collective}",
                f"expected a table like among {ranks} ranks, {per_host} a host, "
                f"got only such {where}",
            )
        alike = [
            table
            for table in tables
            if table.per_host == near.per_host and (table.hosts > 1) == (near.hosts > 1)
        ]
        notes.append(
            f"{collective} among ranks {per_host} a host taken for that with "
            f"{near.per_host} a host, as it was measured"
        )
        same = [table for table in alike if table.ranks == ranks]
        if same:
            return Predicted(same[0].cost, tuple(notes))
    alike.sort(key=lambda table: table.ranks)
    below = [table for table in alike if table.ranks < ranks]
    above = [table for table in alike if table.ranks > ranks]
    if below and above:
        low, high = below[-1], above[0]
        notes.append(
            f"{collective} among {ranks} ranks interpolated between {low.ranks} and {high.ranks}"
        )
        return _made(_between(low, high, ranks), notes)
    base = below[-1] if below else above[0]
    measured = ", ".join(str(table.ranks) for table in alike)
    notes.append(f"{collective} among {ranks} ranks extrapolated from {measured}")
    return _made(_beyond(network, alike, base, ranks, per_host), notes)


def _made(rows: Iterable[tuple[int, tuple[int]]], notes: Iterable[str]) -> Predicted:
    return Predicted(TableCost(never_falling(rows)), tuple(notes))


def range_note(cost: TableCost, what: str, sizes: Sequence[int]) -> str | None:
    """Return a note if some of the sizes (bytes) lie outside a table, else None."""
    least, most = cost.points[0][0], cost.points[-1][0]
    small = sum(size < least for size in sizes)
    large = sum(size > most for size in sizes)
    parts = []
    if small:
        parts.append(f"{small} of {len(sizes)} are below its least size ({least:,} B): as it costs")
    if large:
        parts.append(
            f"{large} of {len(sizes)} are above its largest ({most:,} B): by its last slope"
        )
    return f"beyond the table of {what}: {'; '.join(parts)}" if parts else None


def _of_others(
    network: MeasuredNetwork, collective: Collective, ranks: int, per_host: int
) -> Predicted:
    """Return the cost of a collective without tables, composed of other collectives."""
    known = network.collectives
    if collective == "all_reduce":
        halves = [
            predicted(network, half, ranks, per_host) for half in COLLECTIVES if half in known
        ]
        if len(halves) == 1:
            halves *= 2
        first, second = halves
        sizes = sorted({size for half in halves for size, _ in half.cost.points})
        rows = [(size, (first.cost.cost_ns(size) + second.cost.cost_ns(size),)) for size in sizes]
        note = "all_reduce was not measured: taken for both halves, one after the other"
        return _made(rows, (*first.notes, *second.notes, note))
    other: Collective = "reduce_scatter" if collective == "all_gather" else "all_gather"
    if other in known:
        half = predicted(network, other, ranks, per_host)
        note = f"{collective} was not measured: taken for {other}"
        return Predicted(half.cost, (*half.notes, note))
    whole = predicted(network, "all_reduce", ranks, per_host)
    rows = [(size, (-(-time // 2),)) for size, time in whole.cost.points]
    note = f"{collective} was not measured: taken for half of an all_reduce"
    return _made(rows, (*whole.notes, note))


def _alike(tables: Sequence[Measured], ranks: int, per_host: int) -> list[Measured]:
    """Return the tables with the same ranks per host; within one host, the tables of one host."""
    if ranks == per_host:
        return [table for table in tables if table.hosts == 1]
    return [table for table in tables if table.hosts > 1 and table.per_host == per_host]


def _between(low: Measured, high: Measured, ranks: int) -> Iterator[tuple[int, tuple[int]]]:
    """Yield the times interpolated between two tables, at sizes that both cover."""
    share = Fraction(round(log2(ranks / low.ranks) / log2(high.ranks / low.ranks) * 2**20), 2**20)
    sizes = sorted({size for table in (low, high) for size, _ in table.cost.points})
    first = max(table.cost.points[0][0] for table in (low, high))
    last = min(table.cost.points[-1][0] for table in (low, high))
    kept = [size for size in sizes if first <= size <= last]
    for size in kept if len(kept) > 1 else sizes:
        less, more = low.cost.cost_ns(size), high.cost.cost_ns(size)
        yield size, (round(less + share * (more - less)),)


def _beyond(
    network: MeasuredNetwork,
    tables: Sequence[Measured],
    base: Measured,
    ranks: int,
    per_host: int,
) -> Iterator[tuple[int, tuple[int]]]:
    """Yield the times of the base table, scaled by the fitted cost of the algorithm."""
    collective = base.collective
    shapes = {table: _shape(network, collective, table.ranks, table.per_host) for table in tables}
    aim, own = _shape(network, collective, ranks, per_host), shapes[base]
    _, rate = _fitted([((Fraction(1), Fraction(size)), time) for size, time in base.cost.points])
    for size, time in base.cost.points:
        inside = [
            (shapes[table], table.cost.cost_ns(size))
            for table in tables
            if table.cost.points[0][0] <= size <= table.cost.points[-1][0]
        ]
        step, volume = _fitted(inside) if len(inside) > 1 else _of_one(own, time, rate * size)
        there = step * own[0] + volume * own[1]
        yield size, (round(time * (step * aim[0] + volume * aim[1]) / there),)


def _shape(
    network: MeasuredNetwork, collective: Collective, ranks: int, per_host: int
) -> tuple[Fraction, Fraction]:
    """Return the factor by which start-ups grow, and the volume, of one half."""
    if ranks == per_host:
        return Fraction(1), scattered(ranks) / network.link_rate(ranks)
    members = ranks // per_host
    steps = bruck_cost(members).steps // 2 if collective == "all_reduce" else members - 1
    return Fraction(steps), scattered(ranks)


def _of_one(
    shape: tuple[Fraction, Fraction], time: int, sending: Fraction
) -> tuple[Fraction, Fraction]:
    """Return the times of a step and of the volume, from a single table."""
    volume = min(sending, Fraction(time))
    return (time - volume) / shape[0], volume / shape[1]


def _fitted(
    known: Sequence[tuple[tuple[Fraction, Fraction], int]],
) -> tuple[Fraction, Fraction]:
    """Fit the times of a step and of the volume by least squares on relative errors, both >= 0."""
    rows = [(steps / time, volume / time) for (steps, volume), time in known]
    aa = sum(a * a for a, _ in rows)
    bb = sum(b * b for _, b in rows)
    ab = sum(a * b for a, b in rows)
    a1, b1 = sum(a for a, _ in rows), sum(b for _, b in rows)
    determinant = aa * bb - ab * ab
    if determinant:
        step, volume = (a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant
        if step >= 0 and volume >= 0:
            return Fraction(step), Fraction(volume)
    only_step, only_volume = Fraction(a1) / aa, Fraction(b1) / bb
    lost_by_step = sum((only_step * a - 1) ** 2 for a, _ in rows)
    lost_by_volume = sum((only_volume * b - 1) ** 2 for _, b in rows)
    if lost_by_step < lost_by_volume:
        return only_step, Fraction(0)
    return Fraction(0), only_volume


# ---
# The NIC on which a ring (or BML) would cost as much as a measured collective.
#
# Yan's model, BML and slices on Spark send single messages, and need NICs where collectives are
# measured as a whole. A ring among N ranks takes N-1 steps per half and carries (N-1)/N bytes per
# byte. BML on BCube(n, k) takes 2k steps of n-1 messages (further messages count as start-up) and
# carries 2(N-1)/(kN) over each NIC. Tables are first fitted by an affine cost. Guarantee: a ring on
# this NIC costs what the affine cost says, up to rounding. Complexity: O(sizes). Source: own; the
# inverse of `planner.families.iteration.synchronisation`.

FIRST: tuple[Collective, ...] = ("all_gather", "reduce_scatter", "all_reduce")
"""Collectives in order of preference: the time of a half says most about single messages."""


def nic_of(cost: AffineCost, ranks: int, bcube: BCube | None = None, halves: int = 2) -> Nic:
    """Return the NICs on which a collective would have the given affine cost.

    `halves` is 2 for an all-reduce and 1 for an all-gather or reduce-scatter. With a `bcube`, BML
    is assumed, else a ring over one NIC per machine. A cost without a slope is an
    `InvalidInputError`.
    """
    if not cost.ns_per_byte:
        raise InvalidInputError("ns_per_byte", "expected above 0: time larger transfers")
    nics, steps = (1, ranks - 1) if bcube is None else (bcube.k, bcube.k)
    carried = Fraction(halves * (ranks - 1), nics * ranks)
    return Nic(
        bytes_per_s=Fraction(round(10**9 * carried / cost.ns_per_byte)) or Fraction(1),
        startup_ns=round(Fraction(cost.startup_ns, halves * steps)),
        per_machine=nics,
    )


@lru_cache(maxsize=64)
def measured_nic(
    network: MeasuredNetwork, ranks: int, per_host: int
) -> tuple[Nic, tuple[str, ...]]:
    """Return the NIC of each rank, and notes on assumptions."""
    collective = next(name for name in FIRST if name in network.collectives)
    known = predicted(network, collective, ranks, per_host)
    cost = fit_affine(known.cost.points)
    nic = nic_of(cost, ranks, halves=2 if collective == "all_reduce" else 1)
    note = (
        f"a NIC's start-up, {format_ns(nic.startup_ns)}, and its {format_rate(nic.bytes_per_s)} "
        f"are those on which a ring's {collective} among {ranks} ranks costs what was measured"
    )
    return nic, (*known.notes, note)


def with_measured_nics(cluster: Cluster) -> tuple[Cluster, tuple[str, ...]]:
    """Return the cluster with NICs fitted to its measured network, and notes on assumptions.

    A cluster with failures keeps its NICs.
    """
    if cluster.network is None or cluster.failed or cluster.workers == 1:
        return cluster, ()
    nic, notes = measured_nic(cluster.network, cluster.workers, cluster.workers_per_host)
    levels = 1 if isinstance(cluster.topology, Rails) else cluster.nic.per_machine
    alone = replace(
        cluster.nic,
        bytes_per_s=nic.bytes_per_s / levels,
        startup_ns=nic.startup_ns,
        message_ns=0,
    )
    return replace(cluster, nic=alone), notes
