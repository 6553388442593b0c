"""The units of a chain that can fit into memory, in arrays, and the least time around them.

Problem: which ranges of layers can be units, how much may units before a layer keep, and how long
do all units from a layer on keep the channel busy, or idle while they compute?
Method: two recurrences over the units, from the last layer on; each unit by itself.
Guarantee: necessary conditions and lower bounds, used by `planner.families.fsdp.whole_transfers`.
Complexity: O(units that can fit), in arrays. Source: own.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from planner.families.fsdp.channel_bound import concave_above
from planner.families.fsdp.min_memory import finest_units
from planner.families.fsdp.problem import Mesh, Problem
from planner.model.costs import TransferCost
from planner.solving.deadline import Deadline

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

NEVER_NS = 2**60
"""Time of an infeasible choice."""


class _Arcs(NamedTuple):
    """Units that can fit, as arcs from a place to a later place."""

    start: "Ints"
    stop: "Ints"
    cost: "Ints"  # least time of the unit's transfers, and of the idle channel meanwhile


class Chain:
    """Bytes and times of the layers at which units may begin, and the units that can fit."""

    def __init__(self, problem: Problem, mesh: Mesh, deadline: Deadline) -> None:
        assert problem.memory_bytes is not None
        self.mesh, self.channels = mesh, problem.channels
        starts = [*(start for start, _ in finest_units(problem)), problem.layers]
        self.starts = starts
        shares = problem.share_sums[mesh.shards]
        least = map(min, problem.checkpoints, problem.activations)
        self.room = problem.memory_bytes - problem.state_bytes(mesh.shards)
        self.count = len(starts) - 1

        def at(values: Sequence[int]) -> "Ints":
            return np.array([values[start] for start in starts], np.int64)

        sums = problem.prefixes
        self.sizes, self.made = at(sums["parameter_bytes"]), at(sums["gradients"])
        self.forward, self.backward = at(sums["forward_ns"]), at(sums["backward_ns"])
        self.saved = at(list(accumulate(least, initial=0)))
        self.later = at([shares[-1] - share for share in shares])
        self.following = np.append(np.diff(self.made), 0)
        self.shares = [shares[start] for start in starts]
        sizes = np.diff(self.sizes)
        self.gathers = Ahead(mesh.all_gather, np.concatenate([sizes, sizes[::-1]]))
        self.reduces = Ahead(mesh.reduce_scatter, np.diff(self.made))
        self._find(deadline)

    def _find(self, deadline: Deadline) -> None:
        """Find the units that can fit, and bounds on the time and the kept bytes around them."""
        self.from_here = np.full(self.count + 1, NEVER_NS)  # least time of the units from a place
        self.from_here[-1] = 0
        self.most_kept = np.full(self.count + 1, -1)  # before a place
        self.most_kept[-1] = self.room
        arcs_by_start = []
        for place in range(self.count - 1, -1, -1):
            deadline.check()
            arcs, most = self._from(place)
            if len(arcs.stop):
                self.most_kept[place] = most.max()
                self.from_here[place] = (arcs.cost + self.from_here[arcs.stop]).min()
                arcs_by_start.append(arcs)
        self.arcs = arcs_by_start[::-1]

    def _from(self, place: int) -> tuple[_Arcs, "Ints"]:
        """Return the units that begin at a place, and the most bytes earlier units may keep."""
        last = int(np.searchsorted(self.sizes, self.sizes[place] + self.room // 2, side="right"))
        stops = np.arange(place + 1, last)
        size, made = self.sizes[stops] - self.sizes[place], self.made[stops] - self.made[place]
        after = self.later[stops] + self.following[stops]
        left = self.room - self.saved[stops] - size
        most = np.minimum(left - made - after, self.room - self.saved[place] - 2 * size)
        scattering = self.room - self.saved[place] - 2 * made - self.later[stops]
        most = np.minimum(most, np.where(made > 0, scattering, most))
        most = np.minimum(most, self.most_kept[stops])
        keeps = (size <= self.most_kept[stops]) | (stops == self.count)
        frees = left - size - after >= 0
        fits = np.flatnonzero((most >= 0) & (keeps | frees))
        stops, size, made, left, keeps = (x[fits] for x in (stops, size, made, left, keeps))
        gather, reduce = times_of(self.mesh.all_gather, size), 0 * size
        in_turn = 2 * self.count - place
        hidden = self.gathers.most(in_turn, in_turn, left - made)
        if self.channels != "two":
            reduce = times_of(self.mesh.reduce_scatter, made)
            hidden += self.reduces.most(stops, stops, left - made)
        forward, backward = (x[stops] - x[place] for x in (self.forward, self.backward))
        idle = np.maximum(forward - self.gathers.most(stops, stops, left), 0)
        idle += np.maximum(backward - hidden, 0)
        cost = np.where(keeps, 1, 2) * gather + reduce + idle
        return _Arcs(np.full(len(stops), place), stops, cost), most[fits]

    def held(self, place: int, number: int) -> int:
        """Return the least bytes of gradients of this many units from a place on."""
        return int(self.made[min(place + number, self.count)] - self.made[place])

    def useful_until(self, limit: int) -> list[tuple[int, "Ints"]]:
        """Return units that may be part of a plan that takes less than a time.

        Returns places, in order, and for each the starts of units that end there.
        """
        to_here = np.full(self.count + 1, NEVER_NS)
        to_here[0] = 0
        useful = []
        for arcs in self.arcs:
            time = to_here[arcs.start] + arcs.cost
            to_here[arcs.stop] = np.minimum(to_here[arcs.stop], time)
            rows = np.flatnonzero(time + self.from_here[arcs.stop] < limit)
            useful.append((arcs.start[rows], arcs.stop[rows]))
        starts, stops = (np.concatenate(columns) for columns in zip(*useful, strict=True))
        order = np.argsort(stops, kind="stable")
        places, cuts = np.unique(stops[order], return_index=True)
        ends = [*cuts[1:].tolist(), len(order)][: len(cuts)]
        parts = zip(places.tolist(), cuts.tolist(), ends, strict=True)
        return [(place, starts[order[begin:end]]) for place, begin, end in parts]


class Ahead:
    """Longest transfer time of consecutive smallest units, in any units, that fit into some bytes.

    Uses the least concave cost that is nowhere below the real cost: with it, two transfers never
    take less than one transfer of both.
    """

    def __init__(self, cost: TransferCost, sizes: "Ints") -> None:
        whole = sizes.tolist()
        above = concave_above(cost, sum(whole))
        self._sizes = np.array(list(accumulate(whole, initial=0)))
        times = (above(size) if size else 0 for size in whole)
        self._times = np.array(list(accumulate(times, initial=0)))

    def most(self, first: "Ints | int", latest: "Ints | int", left: "Ints") -> "Ints":
        """Return the longest time of `left` bytes, from between two places on."""
        last = np.searchsorted(self._sizes, self._sizes[latest] + left, side="right") - 1
        return np.where(left >= 0, self._times[last] - self._times[first], 0)


def times_of(cost: TransferCost, sizes: "Ints") -> "Ints":
    """Return the times of transfers; empty transfers take none."""
    return np.where(sizes > 0, cost.costs_ns(sizes), 0)
