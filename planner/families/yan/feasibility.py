"""The triples of a problem, and whether a job fits in the machines' memory.

Problem: servers need less memory the more servers there are, and workers less the more workers
there are; is there a split with which both fit? Method: one replica, all other machines as servers;
bisection for the number of workers at which the servers' need exceeds the workers'.

Guarantee: infeasible exactly when no configuration passes the checker; the named memory is the
least that suffices. The same for a part of the space, such as data parallelism.
Complexity: O(log N) numbers of workers, each O(L·P) memory sizes. Source: own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from planner.families.yan.problem import Problem
from planner.families.yan.segments import server_bytes, worker_bytes
from planner.families.yan.tables import Choice, partitions_of
from planner.solving.result import Infeasibility


@dataclass(frozen=True, slots=True)
class Space:
    """The triples that are searched."""

    machines: int
    fewest_servers: int
    most_workers: int
    most_replicas: int

    def rows(self) -> Iterator[tuple[int, int]]:
        """Yield numbers of replicas, and the most workers of each."""
        room = self.machines - self.fewest_servers
        for replicas in range(1, min(self.most_replicas, room) + 1):
            yield replicas, min(self.most_workers, room // replicas)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield numbers of workers of a replica, and of replicas."""
        for replicas, most in self.rows():
            for workers in range(1, most + 1):
                yield workers, replicas

    @property
    def count(self) -> int:
        """Number of triples."""
        return sum(len(self.servers(*pair)) for pair in self.pairs())

    def servers(self, workers: int, replicas: int) -> range:
        """Return the numbers of servers possible with these workers."""
        return range(self.fewest_servers, self.machines - workers * replicas + 1)


def fewest_servers(problem: Problem) -> int:
    """Return how many servers the weights need."""
    if problem.memory_bytes is None:
        return 1
    whole = server_bytes(problem, 1)
    servers = max(1, -(-whole // problem.memory_bytes))
    while server_bytes(problem, servers) > problem.memory_bytes:
        servers += 1
    return servers


def space_of(problem: Problem) -> Space:
    """Return all triples of a problem."""
    return Space(problem.machines, fewest_servers(problem), problem.machines, problem.machines)


def _any(_: Choice) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class LeastSplit:
    """The split of a job that needs least memory a machine."""

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
