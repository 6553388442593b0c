"""The paper's search: greedy mapping of each layer onto the workers, given the layer before.

Problem: as `planner.families.yan.exact`, under another mapping. Method: a dynamic program over
layers that keeps the best prefix of each state (partitions, copies, threads) and its placement;
best-first search over triples; states that are slower than a known configuration under every
mapping are cut. Guarantee: a valid configuration, priced by the model; not optimal even among
greedy mappings (docs/yan.md, "Why greedy mappings are not optimal"). The bound holds for every
mapping. Where memory is short, the exact method chooses the layers.
Complexity: O(L·C·S·M·N_wr + L·C·M·N_wr·K) a triple: C choices a layer, S segments, M placements of
the layer before (at most one a state). Source: Yan et al., KDD'15, slides "Efficient Search
Algorithm", with one segment of a layer a worker.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from planner.families.yan.configuration import (
    LayerMapping,
    Plan,
    Ranked,
    Triple,
)
from planner.families.yan.exact import quick, searched
from planner.families.yan.layer_program import Chosen, LayerProgram, state_at
from planner.families.yan.memory import infeasibility
from planner.families.yan.model import estimate
from planner.families.yan.problem import Choice, Problem, refuse_different, refuse_fixed
from planner.families.yan.search import GRACE_S, Engine, Solved, configuration_of, rank
from planner.families.yan.tables import MAX_ELEMENTS, Array, Places
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.methods import Outcome


def greedy(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Return a good configuration.

    NotApplicableError if machines differ or configurations are fixed.
    """
    refuse_different(problem, "greedy")
    refuse_fixed(problem, "greedy")
    nothing = infeasibility(problem)
    if nothing is not None:
        return Outcome(None, infeasibility=nothing)
    try:
        return searched(Greedy(problem, deadline=deadline), proven=False)
    except TimeUpError:
        return quick(problem)


class _Placed(NamedTuple):
    """Placements of one layer by different prefixes, one row each; -1 for an empty worker."""

    row: Places  # index of the layer's choice
    partition: Places
    copy: Places

    def mapping(self, which: int) -> LayerMapping:
        """Return one placement as a mapping of the model."""
        partition, copy = self.partition[which].tolist(), self.copy[which].tolist()
        count, copies = max(partition) + 1, max(copy) + 1
        mapping = [[-1] * copies for _ in range(count)]
        for worker, (p, r) in enumerate(zip(partition, copy, strict=True)):
            if p >= 0:
                mapping[p][r] = worker
        return tuple(map(tuple, mapping))


class _Layer(NamedTuple):
    """State of the dynamic program for one layer; arrays by choice and threads."""

    value: Array  # least time of a prefix
    placed: _Placed
    which: Places  # row of `placed`; -1 for none
    before: Places  # placement of the layer before, from which the state came
    threads: Places  # threads of the layer before


class _Seen(NamedTuple):
    """Data of a layer's placements that the next layer needs, by placement and worker."""

    start: Places  # units that a worker holds: start … stop-1
    stop: Places
    low: Places  # rows low … high-1 of the next layer whose error terms it needs
    high: Places
    work: Array  # its back-propagation
    copies: Places
    copy: Places


class Greedy(Engine):
    """Greedy solver of one problem's triples; after the deadline it tries few choices."""

    def path_of(self, triple: Triple) -> Chosen | None:
        """Return the path of a triple; None if none fits."""
        solved = self.solved(triple)
        return None if solved is None else solved.chosen

    def ranked(self, triples: Iterable[Triple]) -> list[Ranked]:
        """Return the paths of solved triples with their exact prices, in order."""
        ranking = []
        for triple in triples:
            path = self.path_of(triple)
            assert path is not None
            configuration = configuration_of(triple, path.states, path.mappings)
            ranking.append(Ranked(configuration, estimate(self.problem, configuration).epoch))
        return sorted(ranking, key=rank)

    def _solve(self, triple: Triple) -> Solved | None:
        layerwise = self.layerwise
        try:
            through, _ = layerwise.coarse(triple)
        except TimeUpError:
            through = layerwise.lowest(triple)
        first = layerwise.few(triple, through)
        best = self.path(first, triple.workers, self.deadline.at_least(GRACE_S))
        limit = best.epoch * (1 + 2 * self.tables.error)
        keep = [costs <= limit for costs in through]
        if self.deadline.passed:
            self.stopped = True
        elif not (program := layerwise.kept(triple, keep)).within(first):
            try:
                path = self.path(program, triple.workers, self.deadline)
                best = min(best, path, key=lambda candidate: candidate.epoch)
            except TimeUpError:
                self.stopped = True
        if self.memory is not None and not self.memory.fits(best.states):
            states = self.memory.smallest(triple)
            if states is None:
                return None
            if not self.deadline.passed:
                fitted = self.memory.fitting(self.exact, triple)
                assert fitted is not None
                states = fitted[1]
            best = self.path(self.layerwise.only(triple, states), triple.workers)
        return Solved(best, None, 0.0)

    def path(self, program: LayerProgram, workers: int, deadline: Deadline | None = None) -> Chosen:
        """Return the result of the paper's dynamic program on the given choices of each layer."""
        layers = [self._first(program, workers)]
        for place in range(1, len(program.options)):
            layers.append(self._next(program, place, layers[-1], deadline))
        b, h = divmod(int(layers[-1].value.argmin()), layers[-1].value.shape[1])
        epoch, states, mappings = float(layers[-1].value[b, h]), [], []
        which = int(layers[-1].which[b, h])
        for layer, options in zip(reversed(layers), reversed(program.options), strict=True):
            b = int(layer.placed.row[which])
            states.append(state_at(options, b, h))
            mappings.append(layer.placed.mapping(which))
            which, h = int(layer.before[b, h]), int(layer.threads[b, h])
        return Chosen(epoch, tuple(reversed(states)), tuple(reversed(mappings)))

    def _first(self, program: LayerProgram, workers: int) -> _Layer:
        value = program.own[0]
        count = len(value)
        partition = np.full((count, workers), -1)
        copy = np.full((count, workers), -1)
        for row, (p, r) in enumerate(program.options[0]):
            partition[row, : p * r], copy[row, : p * r] = np.divmod(np.arange(p * r), r)
        which = np.where(np.isfinite(value), np.arange(count)[:, None], -1)
        nothing = np.full(value.shape, -1)
        return _Layer(value, _Placed(np.arange(count), partition, copy), which, nothing, nothing)

    def _next(
        self, program: LayerProgram, place: int, before: _Layer, deadline: Deadline | None
    ) -> _Layer:
        own, options = program.own[place], program.options[place]
        seen = self._seen(place - 1, before.placed, program.options[place - 1])
        # V of the layer before, by placement and threads; infinite where the state has another
        # placement.
        known = np.arange(len(before.placed.row))[:, None]
        value = before.value[before.placed.row]
        value = np.where(before.which[before.placed.row] == known, value, np.inf)
        arrived, which = np.full(own.shape, np.inf), np.full(own.shape, -1)
        came, threads = which.copy(), which.copy()
        kept: dict[tuple[int, bytes], tuple[int, int, Places, Places]] = {}
        for b, choice in enumerate(options):
            if deadline is not None and deadline.passed:
                raise TimeUpError
            if not np.isfinite(own[b]).any():
                continue
            partition, copy, ahead = self._placements(place, choice, seen)
            back = self._back(place, choice, seen, partition, copy)
            # V(b, H) = own(b, H) + min over placements [F(H) + min over H' (V(H') + B(H'))], as in
            # `planner.families.yan.layerwise`; ties take the first.
            left = value + back / program.replicas
            by_threads = left.argmin(axis=1)
            total = left.min(axis=1)[:, None] + ahead / program.replicas
            best = total.argmin(axis=0)
            arrived[b] = own[b] + total.min(axis=0)
            came[b], threads[b] = best, by_threads[best]
            # States with the same placement share a row, so that the next layer evaluates it once.
            for h in np.flatnonzero(np.isfinite(arrived[b])).tolist():
                held = partition[best[h]], copy[best[h]]
                key = b, held[0].tobytes() + held[1].tobytes()
                which[b, h] = kept.setdefault(key, (len(kept), b, *held))[0]
        _, rows, partitions, copies = (
            np.array(column) for column in zip(*kept.values(), strict=True)
        )
        return _Layer(arrived, _Placed(rows, partitions, copies), which, came, threads)

    def _seen(self, place: int, placed: _Placed, options: Sequence[Choice]) -> _Seen:
        layer = self.tables.problem.layers[place]
        shape = placed.partition.shape
        start, stop, low, high = (np.zeros(shape, np.int64) for _ in range(4))
        work = np.zeros(shape)
        copies = np.array([options[row][1] for row in placed.row.tolist()])
        for row in np.unique(placed.row).tolist():
            partitions = options[row][0]
            chosen = np.flatnonzero(placed.row == row)
            held = placed.partition[chosen]
            units = np.array(layer.passed(partitions))
            lowest, highest = self.tables.errors(place, partitions)
            of = (units[:-1], units[1:], lowest, highest, self.tables.work(place, partitions)[1])
            for into, values in zip((start, stop, low, high, work), of, strict=True):
                into[chosen] = np.where(held >= 0, values[held], 0)
        return _Seen(start, stop, low, high, work, copies, placed.copy)

    def _placements(self, place: int, choice: Choice, seen: _Seen) -> tuple[Places, Places, Array]:
        """Return partition and copy on each worker, and feed-forward, for each placement."""
        p, r = choice
        low, high = self.tables.inputs(place, p)
        count = len(seen.copies)
        classes = np.gcd(seen.copies, r)[:, None]
        partition = np.full(seen.start.shape, -1)
        copy = np.full(seen.start.shape, -1)
        on_worker = np.empty((count, p * r))
        every = np.arange(count)
        for part in range(p):
            shared = np.minimum(seen.stop, high[part]) - np.maximum(seen.start, low[part])
            shared = np.maximum(shared, 0)
            for own_copy in range(r):
                # The free worker that holds most of the inputs; -1 excludes the others, and
                # `argmax` takes the first of equal ones. A free worker always exists: p·r <= N_wr.
                gain = np.where((seen.copy - own_copy) % classes == 0, shared, 0)
                worker = np.where(partition < 0, gain, -1).argmax(axis=1)
                partition[every, worker], copy[every, worker] = part, own_copy
                on_worker[:, part * r + own_copy] = gain[every, worker]
        width = self.tables.problem.layers[place - 1].width
        # For g = gcd(R, R'), copy r finds the activations of a share g / R' of its samples locally.
        wanted = np.repeat(high - low, r) * width
        remote = wanted - on_worker * (classes / seen.copies[:, None] * width)
        work = np.repeat(self.tables.work(place, p)[0], r)[:, None] * self.tables.slower
        return partition, copy, self._slowest(work[None], remote) / r

    def _back(
        self, place: int, choice: Choice, seen: _Seen, partition: Places, copy: Places
    ) -> Array:
        """Return the back-propagation of the layer before `place`, for each placement."""
        p, r = choice
        layer = self.tables.problem.layers[place]
        rows = np.array(layer.held(p))
        holds = partition >= 0
        start, stop = (np.where(holds, rows[partition + end], 0) for end in (0, 1))
        classes = np.gcd(seen.copies, r)[:, None]
        own = np.minimum(stop, seen.high) - np.maximum(start, seen.low)
        own = np.where((seen.copy - copy) % classes == 0, np.maximum(own, 0), 0)
        width = layer.neurons // layer.rows
        remote = (seen.high - seen.low - own * (classes / r)) * width
        work = seen.work[..., None] * self.tables.slower
        return self._slowest(work, remote) / seen.copies[:, None]

    def _slowest(self, work: Array, remote: Array) -> Array:
        """Return the slowest segment's time of each placement, by threads, as for one copy."""
        slowest = np.empty((len(remote), len(self.tables.share)))
        step = max(1, MAX_ELEMENTS // (remote.shape[1] * len(self.tables.share)))
        for start in range(0, len(remote), step):
            block = slice(start, start + step)
            mine = work if len(work) == 1 else work[block]
            slowest[block] = self.tables.with_fetch(mine, remote[block]).max(axis=1)
        return slowest * self.tables.share
