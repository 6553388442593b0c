"""Lower bound by whole transfers under the memory limit: labels of units, from the first on.

Problem: a gather holds its whole buffer from its issue on and ends before its unit computes, a unit
is kept as a whole, and reduce-scatters wait for their units. How long is an iteration at least?
Method: shortest path through the units. A label describes the units before a layer as seen from
both passes: time, bytes kept, transfers done in advance, sizes of the last unit. Too many labels
are merged to the least of each field. Labels that cannot end before a known time are dropped.
Proof: docs/fsdp.md, "Why the bounds hold".
Guarantee: no plan is faster, or the known time if that is less.
Complexity: O(units that fit · `LABELS`), in arrays. Source: own.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from planner.families.fsdp.chain import NEVER_NS, Chain, times_of
from planner.families.fsdp.problem import Mesh, Problem
from planner.solving.deadline import NEVER, Deadline

if TYPE_CHECKING:
    from planner.families.fsdp.chain import Ints

LABELS = 512
"""Most labels at a layer; fewer if many units fit."""

EFFORT, LEAST_LABELS = 300_000, 8
"""Most labels times units, and most labels at a layer if even more units fit."""

KEPT_CELLS, TIME_CELLS = 4, 2
"""Labels are merged if kept bytes and times fall into the same of these cells, and sizes do."""

MAX_LAYERS = 1000
"""Longest chain."""


class _Labels(NamedTuple):
    """Columns of labels, one row each; less is better in each of them.

    Times are sums: from time 0 to a moment of the last unit's forward pass (its start, or when the
    channel has gathered it), and to the end from a moment of its backward pass (when its gradients
    leave; or from then on through gathers, or reduce-scatters, only).
    """

    start_leave: "Ints"
    start_gathers: "Ints"
    start_reduces: "Ints"
    channel_leave: "Ints"
    channel_gathers: "Ints"
    channel_reduces: "Ints"
    kept: "Ints"  # bytes of parameters kept
    spare: "Ints"  # negative: bytes left while the unit before it computes, with its buffer
    size: "Ints"  # bytes of its parameters and time of its second gather; 0 if it is kept
    again: "Ints"
    outer: "Ints"  # bytes of the unit before it; 0 if that is kept
    made: "Ints"  # bytes of its gradients
    forward: "Ints"  # its computation
    backward: "Ints"
    first: "Ints"  # place of its first layer, of the earliest of merged labels
    latest: "Ints"  # the same of the latest, negative


def least_time(
    problem: Problem, mesh: Mesh, deadline: Deadline = NEVER, enough_ns: int | None = None
) -> int:
    """Return the bound on one mesh, at most `enough_ns`; raise `TimeUpError`."""
    if _beyond(problem, mesh):
        return 0
    chain = Chain(problem, mesh, deadline)
    least = NEVER_NS if enough_ns is None else enough_ns
    for buffers in (1, 2, 3):
        last = _Paths(chain, buffers, least).last(deadline, real=False)
        least = least if last is None else last.time
    return least


def fastest_units(
    problem: Problem, mesh: Mesh, deadline: Deadline, enough_ns: int
) -> tuple[tuple[int, int, bool], ...]:
    """Return units (start, stop, kept) that may take less than a time; none if none are found.

    Nothing is recomputed, and every layer saves the less of activations and checkpoint. Raises
    `TimeUpError`.
    """
    if _beyond(problem, mesh):
        return ()
    chain = Chain(problem, mesh, deadline)
    paths = _Paths(chain, 1, enough_ns)
    last = paths.last(deadline, real=True)
    return () if last is None else tuple(paths.units(last))


def _beyond(problem: Problem, mesh: Mesh) -> bool:
    """Return whether a chain is too long, or its times or bytes too large."""
    sums = problem.prefixes
    whole = 2 * sums["parameter_bytes"][-1] + sums["gradients"][-1]
    times = mesh.gather_ns(whole) + mesh.reduce_ns(whole) + mesh.sum_ns(whole) + problem.compute_ns
    held = 4 * whole + sums["activations"][-1]
    most = max(3 * problem.layers * times, held, problem.memory_bytes or 0)
    return problem.layers > MAX_LAYERS or most > NEVER_NS // 4


class _Last(NamedTuple):
    """The last unit of the best path: time, first layer (as a place), row of the label before."""

    time: int
    start: int
    row: int


class _Paths:
    """Labels at all places, in one table with a row of the label before."""

    def __init__(self, chain: Chain, buffers: int, limit: int) -> None:
        self.chain, self.buffers, self.limit = chain, buffers, limit
        self.ends = chain.useful_until(limit)
        useful = sum(len(starts) for _, starts in self.ends)
        self.most = max(min(LABELS, EFFORT // max(useful, 1)), LEAST_LABELS)
        rows = (max(self.most, 2 * KEPT_CELLS * TIME_CELLS) + 1) * (chain.count + 1)
        self.table = np.zeros((len(_Labels._fields) + 1, rows), np.int64)

    def last(self, deadline: Deadline, *, real: bool) -> _Last | None:
        """Return the last unit of the path of least time below the limit, or None.

        `real` paths exist, and labels are left out; otherwise labels are merged, and no path is
        faster.
        """
        begins, counts = np.zeros((2, self.chain.count + 1), np.int64)
        counts[0], end = 1, 1
        for stop, starts in self.ends:
            deadline.check()
            number = counts[starts]
            skipped = np.cumsum(number) - number
            rows = np.arange(number.sum()) + np.repeat(begins[starts] - skipped, number)
            labels = _Labels(*self.table[:-1, rows])
            step = _Step(self.chain, labels, np.repeat(starts, number), stop, self.buffers)
            if stop == self.chain.count:
                times = step.ended()
                best = int(times.argmin()) if len(times) else -1
                if best < 0 or times[best] >= self.limit:
                    return None
                return _Last(int(times[best]), int(step.starts[best]), int(rows[step.rows[best]]))
            new, before = step.labels(self.limit)
            new = self._thinned(np.vstack([new, rows[before]]), stop, real=real)
            begins[stop], counts[stop] = end, new.shape[1]
            self.table[:, end : end + new.shape[1]] = new
            end += new.shape[1]
        return None

    def units(self, last: _Last) -> list[tuple[int, int, bool]]:
        """Return the units of a path of labels that were not merged."""
        starts, size = self.chain.starts, _Labels._fields.index("size")
        units = [(starts[last.start], starts[-1], True)]
        row = last.row
        while row:
            first = starts[self.table[_Labels._fields.index("first"), row]]
            units.append((first, units[-1][0], not self.table[size, row]))
            row = self.table[-1, row]
        return units[::-1]

    def _thinned(self, labels: "Ints", stop: int, *, real: bool) -> "Ints":
        """Return fewer labels: the best ones, or alike ones merged to the least of each field."""
        if labels.shape[1] <= self.most:
            return labels
        if real:
            labels = labels[:, np.argsort(_promise(labels), kind="stable")[: 4 * self.most]]
            labels = _better(_better(labels, "channel_gathers"), "start_leave")
            return labels[:, np.argsort(_promise(labels), kind="stable")[: self.most]]
        columns = _Labels(*labels[:-1])
        kept = columns.kept * KEPT_CELLS // (int(self.chain.most_kept[stop]) + 1)
        time = columns.start_leave - columns.start_leave.min()
        time = time * TIME_CELLS // (int(time.max()) + 1)
        kind = (kept * 2 + (columns.size > 0)) * TIME_CELLS + time
        seen = np.flatnonzero(np.bincount(kind))
        groups = max(self.most // len(seen), 1)
        size = (self.chain.sizes[stop] - self.chain.sizes[columns.first]).astype(float)
        group = (size - size.min()) * ((groups - 0.01) / max(size.max() - size.min(), 1))
        key = np.searchsorted(seen, kind) * groups + group.astype(np.int64)
        order = np.argsort(key.astype(np.int16), kind="stable")  # a radix sort
        begins = np.flatnonzero(np.diff(key[order], prepend=-1))
        return np.minimum.reduceat(labels[:, order], begins, axis=1)


class _Step:
    """Units that end at a place, each behind the labels of the units before it."""

    def __init__(
        self, chain: Chain, labels: _Labels, starts: "Ints", stop: int, buffers: int
    ) -> None:
        self.chain, self.stop, self.buffers = chain, stop, buffers
        size, made = chain.sizes[stop] - chain.sizes[starts], chain.made[stop] - chain.made[starts]
        later = int(chain.later[stop])
        # Inputs of reduce-scatters: while this unit computes, and the unit before this one.
        following, more = (chain.held(stop, number) for number in (buffers, buffers - 1))
        room = chain.room - labels.kept - chain.saved[starts]
        left = chain.room - labels.kept - chain.saved[stop] - size
        copying = np.where(made > 0, room - 2 * made - later - more, room)
        next_to = np.minimum(left - made - following - later, copying)
        behind = room - labels.size - labels.made - made - more - chain.later[starts]
        again = behind + labels.made - labels.size
        fits = np.minimum(np.minimum(room - 2 * size, next_to), np.minimum(behind, again))
        rows = self.rows = np.flatnonzero(fits >= 0)
        self.early = (labels.size <= next_to)[rows]  # may be gathered while this unit computes
        self.before = _Labels(*(column[rows] for column in labels))
        self.starts, self.size, self.made = starts[rows], size[rows], made[rows]
        self.left = left[rows]
        self.gather = times_of(chain.mesh.all_gather, self.size)
        self.spare = (room - labels.size - size)[rows]
        held = chain.reduces.most(stop, stop, (behind + more)[rows]) * (buffers > 1)
        start, channel = self._forward()
        self.start = self._backward(start, next_to[rows], held)
        self.channel = self._backward(channel, next_to[rows], held)

    def _forward(self) -> tuple[list["Ints"], list["Ints"]]:
        """Follow the unit's gather, during the computation of the unit before."""
        before, start, channel = self.before, [], []
        fitting = self.gather + self.chain.gathers.most(self.stop, self.stop, self.spare)
        unhidden = self.gather - np.where(self.spare >= 0, fitting, 0)
        earlier = self.size <= -before.spare
        for begun, free in zip(before[:3], before[3:6], strict=True):
            gathered = np.where(earlier, free, begun) + self.gather
            gathered = np.maximum(gathered, begun + before.forward + unhidden)
            channel.append(gathered)
            start.append(np.maximum(begun + before.forward, gathered))
        return start, channel

    def _backward(self, times: list["Ints"], next_to: "Ints", held: "Ints") -> list["Ints"]:
        """Follow the unit's reduce-scatter, and the second gather of the unit before."""
        before, chain = self.before, self.chain
        leave, gathers, reduces = times
        reduce = times_of(chain.mesh.reduce_scatter, self.made)
        last = np.where(self.starts == 0, chain.mesh.sum_ns(chain.shares[self.stop]), 0)
        done = leave + before.backward  # when the unit before begins, back from the end
        begun, parted = done, chain.channels == "two"
        sent = reduces + reduce
        if chain.channels == "one":  # a later gather waits for the reduce-scatter
            begun = np.where(self.early, done, done + reduce)
        through = gathers if parted else np.maximum(gathers, sent)
        through = np.where(before.size > 0, np.maximum(begun, through), through) + before.again
        hidden = np.where(self.early, self._earlier(next_to), 0)
        leave = np.maximum(done, through - hidden)
        if parted:
            leave = np.maximum(leave, sent)
        else:
            if chain.channels == "one":
                sent = np.where(self.early, sent, np.maximum(sent, begun))
            sent = sent + before.again
        # Reduce-scatters end when their inputs are waited for, or as late as memory holds inputs.
        waits = {1: leave, 2: times[0]}.get(self.buffers, sent)
        reduces = np.maximum(np.maximum(sent, waits), leave - held)
        if not parted and self.buffers == 1:  # none is left when the unit leaves
            reduces = through = np.maximum(through, reduces)
        return [leave + last, through + last, reduces + last]

    def _earlier(self, left: "Ints") -> "Ints":
        """Return the longest time of gathers for units before that fit into these bytes."""
        before, places = self.before, 2 * self.chain.count
        first, latest = places - before.first, places + before.latest
        left = left - before.size
        others = self.chain.gathers.most(latest, first, left)
        others = np.where(before.outer <= left, others, 0)  # a whole unit comes first
        return np.where(left >= 0, before.again + others, 0)

    def ended(self) -> "Ints":
        """Return the times of iterations whose last units these are."""
        chain = self.chain
        forward, backward = (
            computes[self.stop] - computes[self.starts]
            for computes in (chain.forward, chain.backward)
        )
        time = np.maximum(self.start[0] + forward + backward, self.channel[1])
        ends: Ints = np.maximum(time, self.start[1] + forward - self._earlier(self.left))
        return ends

    def labels(self, limit: int) -> tuple["Ints", "Ints"]:
        """Return the labels that may lead to less than a time, and the rows of those before."""
        chain, before = self.chain, self.before
        computed = chain.forward + chain.backward
        least = self.start[0] + computed[-1] - computed[self.starts]
        work = self.channel[1 if chain.channels == "two" else 2]
        least = np.maximum(least, work + chain.from_here[self.stop])
        after = chain.later[self.stop] + chain.following[self.stop]
        most, soon = chain.most_kept[self.stop], least < limit
        freed = np.flatnonzero(soon & (before.kept <= most) & (self.left - self.size - after >= 0))
        kept = np.flatnonzero(soon & (before.kept + self.size <= most))
        rows, free = np.concatenate([freed, kept]), np.arange(len(freed) + len(kept)) < len(freed)
        starts, size = self.starts[rows], self.size[rows]
        in_turn = [  # in order of `_Labels`
            *(time[rows] for time in (*self.start, *self.channel)),
            before.kept[rows] + np.where(free, 0, size),
            -self.spare[rows],
            np.where(free, size, 0),
            np.where(free, self.gather[rows], 0),
            before.size[rows],
            self.made[rows],
            chain.forward[self.stop] - chain.forward[starts],
            chain.backward[self.stop] - chain.backward[starts],
            starts,
            -starts,
        ]
        return np.array(in_turn), self.rows[rows]


def _promise(labels: "Ints") -> "Ints":
    columns = _Labels(*labels[:-1])
    return np.maximum(columns.start_leave, columns.channel_gathers)


def _better(labels: "Ints", time: str) -> "Ints":
    """Return the labels, but those that the label of least time of the same unit dominates."""
    columns = _Labels(*labels[:-1])
    unit = 2 * columns.first + (columns.size == 0)
    order = np.lexsort((columns.kept, getattr(columns, time), unit))
    labels, unit = labels[:, order], unit[order]
    begins = np.diff(unit, prepend=-1) > 0
    leader = np.flatnonzero(begins)[np.cumsum(begins) - 1]
    better = (labels[:-1] < labels[:-1, leader]).any(axis=0)
    return labels[:, better | begins]
