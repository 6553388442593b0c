"""Memory of machines: whether a job fits, and the best layers of a triple that fit.

Servers need less memory the more servers there are, and workers less the more workers there are. A
job is infeasible exactly when no configuration passes the checks (`infeasibility`); the named
memory is the least that suffices, also for a part of the space, such as data parallelism.

The best layers that fit are a resource-constrained shortest path (`fitting`): Lagrangian relaxation
of the memory limit, then labels (`planner.families.yan.layer_program`); see docs/yan.md, "When
memory is short".

Complexity: O(log N) numbers of workers, each O(L·P) memory sizes; one dynamic program on a few
choices for each price, then that of the labels. Source: own, after Handler and Zang, "A dual
algorithm for the constrained shortest path problem", Networks 1980.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial

import numpy as np

from planner.families.yan.configuration import Space, Triple
from planner.families.yan.layer_program import (
    Chosen,
    Exact,
    LayerState,
    Limit,
    best_path,
    state_at,
)
from planner.families.yan.layerwise import Layerwise
from planner.families.yan.problem import Choice, Problem, partitions_of
from planner.families.yan.segments import server_bytes, worker_bytes
from planner.families.yan.tables import Array
from planner.solving.result import Infeasibility

PRICES = 40
"""Most prices of memory that are tried."""


def fewest_servers(problem: Problem) -> int:
    """Return how many servers the weights need."""
    if problem.memory_bytes is None:
        return 1
    return max(1, -(-server_bytes(problem, 1) // problem.memory_bytes))


def space_of(problem: Problem) -> Space:
    """Return all triples of a problem."""
    return Space(problem.machines, fewest_servers(problem), problem.machines, problem.machines)


def _any(_: Choice) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class LeastSplit:
    """The split of a job that needs least memory per machine."""

    servers: int
    server_bytes: int  # of each server
    layers: tuple[tuple[int, int], ...]  # per layer: most bytes on a worker, and partitions

    @property
    def worker_bytes(self) -> int:
        """Most bytes on a worker."""
        return sum(needed for needed, _ in self.layers)

    @property
    def needed(self) -> int:
        """Bytes that a machine needs."""
        return max(self.server_bytes, self.worker_bytes)


def least_split(
    problem: Problem, space: Space | None = None, allowed: Callable[[Choice], bool] = _any
) -> LeastSplit:
    """Return the split with least memory in a part of the space, whatever the problem's limit.

    It needs at least 2 machines. `allowed` filters (partitions, copies); it must allow one copy
    wherever it allows more, which never needs less memory. A layer needs least with one thread and
    mostly, but not always, with the most partitions: an inner band of a convolution reads more rows
    than a band at the edge, which has padding.
    """
    space = space or Space(problem.machines, 1, problem.machines, problem.machines)
    needed = cache(lambda place, p: worker_bytes(problem, place, p, 1))

    @cache
    def with_workers(workers: int) -> LeastSplit:
        segments = []
        for place, layer in enumerate(problem.layers):
            parts = partitions_of(problem, layer, workers)
            segments.append(min((needed(place, p), p) for p in parts if allowed((p, 1))))
        servers = space.machines - workers
        return LeastSplit(servers, server_bytes(problem, servers), tuple(segments))

    most = min(space.most_workers, space.machines - 1)
    low, high = 1, most  # servers' need rises with workers, workers' need falls
    while low < high:
        middle = (low + high) // 2
        if with_workers(middle).server_bytes >= with_workers(middle).worker_bytes:
            high = middle
        else:
            low = middle + 1
    return min(
        (with_workers(workers) for workers in range(low, max(1, low - 1) - 1, -1)),
        key=lambda least: least.needed,
    )


def infeasibility(
    problem: Problem, space: Space | None = None, allowed: Callable[[Choice], bool] = _any
) -> Infeasibility | None:
    """Return the reason why no configuration exists, with the smallest relaxation, or None."""
    if problem.machines < 2:
        return Infeasibility(
            "a job needs a parameter server and a worker: machines must be at least 2",
            ("machines",),
        )
    if problem.memory_bytes is None:
        return None
    least = least_split(problem, space, allowed)
    if least.needed <= problem.memory_bytes:
        return None
    workers = f"each worker up to {least.worker_bytes}"
    if least.server_bytes > least.worker_bytes:
        weights = [layer.weights for layer in problem.layers]
        largest = max(range(len(weights)), key=weights.__getitem__)
        share = weights[largest] / sum(weights)
        what = (
            f" of weights and their updates, {share:.0%} of them of layer "
            f"{problem.layers[largest].name!r}; {workers}"
        )
    else:
        largest = max(range(len(least.layers)), key=lambda place: least.layers[place][0])
        needed, partitions = least.layers[largest]
        plural = "s" if partitions > 1 else ""
        what = (
            f" and {workers}, most of it ({needed}) for layer {problem.layers[largest].name!r} in "
            f"{partitions} partition{plural}"
        )
    kind = "" if space is None else " for a configuration of this kind"
    plural = "s" if least.servers > 1 else ""
    return Infeasibility(
        f"memory: at least {least.needed} bytes a machine are needed{kind}, memory_bytes is "
        f"{problem.memory_bytes}; with {least.servers} of {problem.machines} machines as "
        f"server{plural} each server holds {least.server_bytes} bytes{what}",
        ("memory_bytes",),
        (largest,),
    )


class Memory:
    """The layers of triples that fit; `room` is the limit (bytes) of a worker."""

    def __init__(self, layerwise: Layerwise, room: int) -> None:
        self.layerwise, self.room = layerwise, room
        self.threads = layerwise.tables.problem.threads
        self.of = cache(partial(worker_bytes, layerwise.tables.problem))
        self._row = cache(self._bytes)

    def _bytes(self, place: int, partitions: int) -> Array:
        return np.array([float(self.of(place, partitions, h + 1)) for h in range(self.threads)])

    def sizes(self, options: Sequence[Sequence[Choice]]) -> list[Array]:
        """Return the bytes of the largest segment of each layer's choices, by threads."""
        return [
            np.array([self._row(place, p) for p, _ in choices])
            for place, choices in enumerate(options)
        ]

    def fits(self, states: Sequence[LayerState]) -> bool:
        """Return whether a worker has room for the largest segment of every layer."""
        needed = (
            self.of(place, state.partitions, state.threads) for place, state in enumerate(states)
        )
        return sum(needed) <= self.room

    def smallest(self, triple: Triple) -> tuple[LayerState, ...] | None:
        """Return the states that need least memory, or None if even these do not fit."""
        options = self.layerwise.choices(triple.workers)
        states = tuple(
            state_at(choices, *divmod(int(size.argmin()), size.shape[1]))
            for choices, size in zip(options, self.sizes(options), strict=True)
        )
        return states if self.fits(states) else None

    def fitting(
        self, exact: Exact, triple: Triple
    ) -> tuple[Fraction, tuple[LayerState, ...]] | None:
        """Return the exact time of an epoch (ns) and the best layers that fit, or None."""
        layerwise, states = self.layerwise, self.smallest(triple)
        if states is None:
            return None
        lowest, sizes = layerwise.lowest(triple), self.sizes(layerwise.choices(triple.workers))
        best = Chosen(layerwise.time(triple, states), states)
        best_price, best_bound = 0.0, -np.inf
        # Prices of a byte: none, then doubled ones until the layers fit, then bisected.
        price, low, high = 0.0, 0.0, None
        start = best.epoch / self.room * 2.0**-20
        for _ in range(PRICES):
            priced = [cost + price * size for cost, size in zip(lowest, sizes, strict=True)]
            bound = float(sum(costs.min() for costs in priced)) - price * self.room
            if bound > best_bound:
                best_price, best_bound = price, bound
            program = layerwise.few(triple, priced)
            charges = [price * size for size in self.sizes(program.options)]
            states = program.plus(charges).best().states
            if self.fits(states):
                time = layerwise.time(triple, states)
                best = min(best, Chosen(time, states), key=lambda candidate: candidate.epoch)
                high = price
                if price == 0:
                    break
            else:
                low = price
            price = max(2 * price, start) if high is None else (low + high) / 2
        priced = [cost + best_price * size for cost, size in zip(lowest, sizes, strict=True)]
        least = [costs.min() for costs in priced]
        # Times and bytes at their price are compared together, so rounding grows with both.
        cap = (best.epoch + best_price * self.room) * (1 + 4 * layerwise.tables.error)
        keep = [costs - own + sum(least) <= cap for costs, own in zip(priced, least, strict=True)]
        program = layerwise.kept(triple, keep)
        limit = Limit(self.sizes(program.options), self.room, best_price)
        found = best_path(program, exact, triple, limit, cap)
        return found or (exact.epoch(triple, best.states), best.states)
