"""Configurations of a job, and plans."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd
from typing import NamedTuple

from planner.families.yan.layers import NeuronLayer
from planner.model.errors import InvalidInputError
from planner.model.validation import integer, set_integer

# ---
# The canonical mapping: which worker of a replica holds which segment of a layer.
#
# Problem: segments (partition p of copy r) occupy distinct workers, and a worker with segments of
# two consecutive layers fetches less; the mapping must make costs depend on their choices only.
#
# Rule: within each class of copies that share samples, segments of consecutive layers are matched
# evenly, and matched segments share a worker; unmatched ones go to free workers in order. See
# docs/yan.md, "Why the canonical mapping loses little". Guarantee: before a fully connected layer
# no mapping makes the slowest segment fetch less, except for rounding of unequal partitions;
# between convolutions matched bands overlap. Complexity: O(P·R) a layer. Source: own; Yan et al.
# (KDD'15, "Optimizing segment-worker mapping") follow the history greedily
# (`planner.families.yan.greedy`).

LayerMapping = tuple[tuple[int, ...], ...]
"""Worker of partition p, copy r, as ``mapping[p][r]``."""


def matched(count: int, hosts: int) -> list[int | None]:
    """Return the host of each of `count` segments of a class with `hosts` hosts, or None."""
    if count <= hosts:
        return [segment * hosts // count for segment in range(count)]
    hosts_of: list[int | None] = [None] * count
    for host in range(hosts):
        hosts_of[host * count // hosts] = host
    return hosts_of


def segment_at(place: int, group: int, copies: int, classes: int) -> tuple[int, int]:
    """Return partition and copy of a place in the list of one class."""
    each = copies // classes
    return place // each, place % each * classes + group


def canonical_mapping(choices: Sequence[tuple[int, int]], workers: int) -> tuple[LayerMapping, ...]:
    """Return the mapping of every layer.

    Parameters
    ----------
    choices : sequence of (int, int)
        Partitions and copies of each layer, layer 0 first; their product is at most `workers`.
    workers : int
        Workers of the replica.
    """
    mappings: list[LayerMapping] = []
    for partitions, copies in choices:
        before: LayerMapping = mappings[-1] if mappings else ()
        old_copies = len(before[0]) if before else copies
        classes = gcd(copies, old_copies)
        holding = {worker for row in before for worker in row}
        free = iter([worker for worker in range(workers) if worker not in holding])
        mapping = [[-1] * copies for _ in range(partitions)]
        host_of = matched(partitions * copies // classes, len(before) * old_copies // classes)
        unmatched = []
        for group in range(classes):
            for place, host in enumerate(host_of):
                p, r = segment_at(place, group, copies, classes)
                if host is None:
                    unmatched.append((p, r))
                else:
                    old_p, old_r = segment_at(host, group, old_copies, classes)
                    mapping[p][r] = before[old_p][old_r]
        for p, r in sorted(unmatched):
            mapping[p][r] = next(free)
        mappings.append(tuple(map(tuple, mapping)))
    return tuple(mappings)


@dataclass(frozen=True, slots=True)
class LayerChoice:
    """How one layer is run.

    Attributes
    ----------
    partitions : int
        Partitions, ``P_l``.
    threads : int
        Threads, ``H_l``, each with a sample of its own.
    copies : int
        Copies within one replica of the model, ``R_l``; sample i goes to copy i mod R_l.
    mapping : tuple of tuple of int
        ``mapping[p][r]`` is the worker of the replica that holds partition p of copy r; empty for
        the canonical mapping.
    """

    partitions: int
    threads: int
    copies: int
    mapping: tuple[tuple[int, ...], ...] = ()


class Triple(NamedTuple):
    """Workers of a replica, replicas and parameter servers, in the order of the paper's tables."""

    workers: int
    replicas: int
    servers: int


@dataclass(frozen=True, slots=True)
class Space:
    """The triples that are searched."""

    machines: int
    fewest_servers: int
    most_workers: int
    most_replicas: int

    def rows(self) -> Iterator[tuple[int, int]]:
        """Yield each number of replicas, with the largest number of workers of a replica."""
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


@dataclass(frozen=True, slots=True)
class Configuration:
    """How a job is distributed over machines.

    Attributes
    ----------
    parameter_servers : int
        Machines that hold the weights, ``N_ps``.
    replicas : int
        Replicas of the model, ``N_mr``.
    workers_per_replica : int
        Machines of each replica, ``N_wr``.
    layers : tuple of LayerChoice
        Layer 0 first.
    machines : tuple of int, optional
        Where machines differ: the servers' machines, then the workers of each replica.
    """

    parameter_servers: int
    replicas: int
    workers_per_replica: int
    layers: tuple[LayerChoice, ...]
    machines: tuple[int, ...] | None = None

    @property
    def triple(self) -> Triple:
        """Workers of a replica, replicas and parameter servers."""
        return Triple(self.workers_per_replica, self.replicas, self.parameter_servers)

    @property
    def machines_used(self) -> int:
        """Machines in use."""
        return self.parameter_servers + self.replicas * self.workers_per_replica


@dataclass(frozen=True, slots=True)
class Fixed:
    """A configuration to price instead of a search; if layers are left out, the best are found.

    Attributes
    ----------
    parameter_servers, replicas, workers_per_replica : int
        The triple.
    layers : tuple of LayerChoice, optional
        How each layer is run; an empty mapping stands for the canonical one.
    """

    parameter_servers: int
    replicas: int
    workers_per_replica: int
    layers: tuple[LayerChoice, ...] | None = None

    def configuration(self) -> Configuration:
        """Return the configuration, with the canonical mapping for layers without one."""
        layers = self.layers or ()
        choices = [(layer.partitions, layer.copies) for layer in layers]
        mappings = canonical_mapping(choices, self.workers_per_replica)
        return Configuration(
            self.parameter_servers,
            self.replicas,
            self.workers_per_replica,
            tuple(
                layer if layer.mapping else replace(layer, mapping=mapping)
                for layer, mapping in zip(layers, mappings, strict=True)
            ),
        )


def check_choice(
    choice: LayerChoice, layer: NeuronLayer, workers: int, threads: int, path: str
) -> None:
    """Raise InvalidInputError, at a path below `path`, unless `choice` can run `layer`.

    An empty mapping stands for the canonical one.
    """
    for name in ("partitions", "copies", "threads"):
        set_integer(choice, name, minimum=1, path=f"{path}.{name}")
    if choice.partitions > layer.cuts:
        what = "neurons" if layer.kind == "full" else "rows it passes on"
        raise InvalidInputError(
            f"{path}.partitions",
            f"layer {layer.name!r} has {layer.cuts} {what}, expected at most as many partitions, "
            f"got {choice.partitions}",
        )
    if choice.threads > threads:
        raise InvalidInputError(
            f"{path}.threads",
            f"expected at most {threads} (cores, and entries of interference), "
            f"got {choice.threads}",
        )
    check_segments(choice, workers, path)


def check_segments(choice: LayerChoice, workers: int, path: str) -> None:
    """Raise InvalidInputError unless every segment of a layer has a worker of its own.

    An empty mapping stands for the canonical one.
    """
    if choice.partitions * choice.copies > workers:
        raise InvalidInputError(
            path,
            "a worker holds at most one segment of a layer: expected partitions x copies <= "
            f"workers_per_replica ({workers}), got {choice.partitions * choice.copies}",
        )
    if not choice.mapping:
        return
    place = f"{path}.mapping"
    if len(choice.mapping) != choice.partitions or any(
        len(row) != choice.copies for row in choice.mapping
    ):
        raise InvalidInputError(
            place, f"expected {choice.partitions} arrays of {choice.copies} workers"
        )
    taken: set[int] = set()
    for p, row in enumerate(choice.mapping):
        for r, worker in enumerate(row):
            integer(worker, f"{place}[{p}][{r}]", maximum=workers - 1)
            if worker in taken:
                raise InvalidInputError(
                    f"{place}[{p}][{r}]",
                    f"worker {worker} given twice: it holds at most one segment of a layer",
                )
            taken.add(worker)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A configuration with its price; the best of its triple unless its layers were given."""

    configuration: Configuration
    epoch: Fraction  # exact time of an epoch (ns)


@dataclass(frozen=True, slots=True)
class Explored:
    """The number of triples of workers, replicas and servers, and how many of them bounds cut."""

    triples: int
    triples_cut: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The best configuration, and the ranking of others.

    Attributes
    ----------
    configuration : Configuration
        The best one found.
    ranking : tuple of Ranked
        The best configuration of each triple, in order; the first is `configuration`.
    explored : Explored
        How much of the space the search examined.
    any_mapping_bound_ns : int or None
        Lower bound over all configurations and mappings; None if unknown.
    """

    configuration: Configuration
    ranking: tuple[Ranked, ...]
    explored: Explored
    any_mapping_bound_ns: int | None = None
