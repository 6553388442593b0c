"""Measured times of collectives on a network: tables of times by size, made non-decreasing.

Problem: samples are noisy, but planners need a cost that never falls with the size.
Method: `never_falling` is isotonic regression with the least sum of absolute deviations from all
samples (neighbouring sizes whose medians do not rise are pooled and get the median of their
samples). A cost is linear between its points. The last slope continues for ever, so of sizes pooled
at the end only the last is kept.

Guarantee: a table's cost never falls; its last slope is above 0 unless all times are equal.
Complexity: O(n log n) per merge of n samples; at most as many merges as sizes. Source: own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from statistics import median_low
from typing import Literal

from planner.model.costs import TableCost
from planner.model.errors import InvalidInputError
from planner.model.validation import integer, one_of, set_exact, set_integer

Collective = Literal["all_reduce", "all_gather", "reduce_scatter"]
"""Collectives: sum gradients, pull a batch of parameters, push a batch of gradients."""

COLLECTIVES: tuple[Collective, ...] = ("all_reduce", "all_gather", "reduce_scatter")

MAX_RANKS = 2**16


def never_falling(samples: Iterable[tuple[int, Sequence[int]]]) -> tuple[tuple[int, int], ...]:
    """Return non-decreasing rows (bytes, ns) by isotonic regression.

    `samples` are pairs of a size and its times (ns), sizes increasing. Neighbours are pooled until
    all medians rise.
    """
    pools: list[tuple[list[int], tuple[int, ...]]] = []
    for size, samples_ns in samples:
        sizes, times = [size], tuple(samples_ns)
        while pools and median_low(pools[-1][1]) >= median_low(times):
            before = pools.pop()
            sizes, times = before[0] + sizes, before[1] + times
        pools.append((sizes, times))
    if len(pools) > 1:
        pools[-1] = pools[-1][0][-1:], pools[-1][1]
    return tuple((size, median_low(times)) for sizes, times in pools for size in sizes)


@dataclass(frozen=True)
class Measured:
    """The measured times of one collective among some number of ranks.

    Sizes are those of the whole message: of a pull or push, of the whole batch.
    """

    collective: Collective
    ranks: int  # at least 2
    per_host: int  # ranks per host
    points: tuple[tuple[int, int], ...]  # (bytes, ns): at least 2, bytes increasing, times > 0

    def __post_init__(self) -> None:
        one_of(self.collective, "collective", COLLECTIVES)
        set_integer(self, "ranks", minimum=2, maximum=MAX_RANKS)
        set_integer(self, "per_host", minimum=1)
        if self.ranks % self.per_host:
            raise InvalidInputError(
                "ranks_per_host", f"expected a divisor of {self.ranks}, got {self.per_host}"
            )
        if len(self.points) < 2:
            raise InvalidInputError(
                "table", f"expected at least 2 sizes, got {len(self.points)}: one tells no slope"
            )
        points: list[tuple[int, int]] = []
        for place, (size, time) in enumerate(self.points):
            integer(size, f"table[{place}][0]", minimum=points[-1][0] + 1 if points else 0)
            integer(time, f"table[{place}][1]", minimum=1)
            points.append((size, time))
        object.__setattr__(self, "points", tuple(points))

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return self.ranks // self.per_host

    @cached_property
    def cost(self) -> TableCost:
        """The cost by size, made non-decreasing."""
        return TableCost(never_falling((size, (time,)) for size, time in self.points))


@dataclass(frozen=True)
class Link:
    """A link between ranks of a host, with data-sheet numbers (not measured)."""

    ranks: int  # largest number of ranks that it joins, at least 2
    bytes_per_s: Fraction  # in one direction

    def __post_init__(self) -> None:
        set_integer(self, "ranks", minimum=2, maximum=MAX_RANKS)
        set_exact(self, "bytes_per_s", positive=True)


@dataclass(frozen=True)
class MeasuredNetwork:
    """All measured tables of a network.

    `links`: if a host has several kinds of links, by increasing ranks the slowest link needed to
    join that number of ranks; empty if all links are alike.
    """

    tables: tuple[Measured, ...]  # by collective, ranks per host, ranks
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        if not self.tables:
            raise InvalidInputError("collectives", "expected at least one table, got none")
        keys = [(table.collective, table.per_host, table.ranks) for table in self.tables]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InvalidInputError(
                f"collectives.{twice[0]}",
                f"two tables among {twice[2]} ranks, {twice[1]} a host: give them in one",
            )
        order = sorted(
            self.tables,
            key=lambda table: (COLLECTIVES.index(table.collective), table.per_host, table.ranks),
        )
        object.__setattr__(self, "tables", tuple(order))
        counts = [link.ranks for link in self.links]
        for place, (less, more) in enumerate(pairwise(counts), start=1):
            if more <= less:
                raise InvalidInputError(
                    f"links[{place}].ranks", f"expected more than {less}, as before it, got {more}"
                )
        object.__setattr__(self, "links", tuple(self.links))

    def link_rate(self, ranks: int) -> Fraction:
        """Return the bandwidth of the slowest link among ranks of a host; 1 if unknown.

        Only ratios of these rates are used.
        """
        if not self.links:
            return Fraction(1)
        fits = (link for link in self.links if link.ranks >= ranks)
        return next(fits, self.links[-1]).bytes_per_s

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """The collectives that were timed."""
        return tuple(dict.fromkeys(table.collective for table in self.tables))

    def of(self, collective: Collective) -> tuple[Measured, ...]:
        """Return the tables of one collective."""
        return tuple(table for table in self.tables if table.collective == collective)

    @property
    def most_ranks(self) -> Measured:
        """The table with the most ranks; ties go to the most ranks per host."""
        return max(self.tables, key=lambda table: (table.ranks, table.per_host))
