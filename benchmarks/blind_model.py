"""How `blind.py` predicts a step: from the smallest scale's, the model's sizes and a cluster.

Problem. A model took so long a step on few accelerators. How long on many, with another batch?

Method. A step is computation and communication beside each other. Communication comes from the
library: for replicated parameters the transfers of the rule `ddp` or `horovod` of
`planner.iteration` on the described cluster, with its cheapest algorithm, or the network's tables
where it was measured; for sharded ones its gathers and scatters, one behind the other
(`blind_sharded`). Computation is what makes the smallest scale's prediction equal to its
measurement; elsewhere it is in proportion to the samples of an accelerator, but for a fixed share.

Guarantee: none. Complexity: some ten plans a group. Source: own.
"""

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

from blind_rows import FOLDER, Group, Row
from blind_sharded import Unit, part_ns

from planner.families.iteration import ALGORITHMS, Problem, solve
from planner.families.iteration.synchronisation import synchronisations
from planner.jsonio import read_cluster, read_profile, shipped_clusters
from planner.model.clusters import Cluster
from planner.model.layers import Layer
from planner.model.network import ring_cost
from planner.model.profiles import Profile, Provenance
from planner.model.topologies import Rails

UNIT = 10**9
"""What a profile's computation is made to take; problems scale it."""

FIXED = Fraction(1, 20)
"""Which share of the smallest scale's computation does not shrink with the samples.

The only constant that was fitted: to MLPerf 2.1 and 4.0, after a first look with 0, in steps of
0.01. Sources that are `held_out` were predicted afterwards, for the first time.
"""

CLOSE = 10**5
"""Computation is known to one part in so many of the step."""


@dataclass(frozen=True, slots=True)
class Part:
    """Layers that are alike: how many, their parameters, and their work relative to others."""

    name: str
    count: int
    parameters: int
    work: int


@cache
def parts(model: str) -> tuple[Part, ...]:
    """Return what a model consists of, in the order of the forward pass."""
    if model == "resnet50":  # the shipped profile has its layers' own times
        profile = read_profile(FOLDER.parent / "profiles" / "resnet50.json").chain()
        return tuple(
            Part(layer.name, 1, layer.parameter_bytes // 4, layer.forward_ns + layer.backward_ns)
            for layer in profile.layers
        )
    known = json.loads((FOLDER / "models.json").read_text(encoding="utf-8"))[model]
    return tuple(Part(*part) for part in known["parts"])


@cache
def cluster(name: str, hosts: int) -> Cluster:
    """Return a cluster, of those shipped or those of the rows, with so many hosts."""
    known = read_cluster(name if name in shipped_clusters() else FOLDER / f"{name}.json")
    topology = known.topology
    assert isinstance(topology, Rails)
    return replace(known, machines=hosts, topology=replace(topology, hosts=hosts))


def place(group: Group, row: Row) -> Cluster:
    """Return the cluster a row ran on."""
    return cluster(group.clusters[row.hosts > 1], row.hosts)


def backward_share(group: Group) -> Fraction:
    """Return the backward pass's share of computation: two thirds, or three quarters."""
    return Fraction(3, 4) if group.recomputed else Fraction(2, 3)


@cache
def profile(model: str, gradient_bytes: int) -> Profile:
    """Return a model's layers, with a computation of `UNIT` in all."""
    known = parts(model)
    work = sum(part.count * part.work for part in known)
    layers = tuple(
        Layer(
            f"{part.name}{place}",
            UNIT * part.work // (3 * work),
            UNIT * 2 * part.work // (3 * work),
            part.parameters * gradient_bytes,
        )
        for part in known
        for place in range(part.count)
    )
    return Profile(model, layers, Provenance("synthetic", "sizes of the model"))


def step_ns(group: Group, row: Row, computation_ns: int) -> int:
    """Return how long a step of so much computation takes at a row's scale."""
    if row.accelerators == 1:
        return computation_ns
    rule = _sharded_ns if group.rule == "fsdp" else _replicated_ns
    return rule(group, row, computation_ns)


def _replicated_ns(group: Group, row: Row, computation_ns: int) -> int:
    """Return a step whose gradients are summed up once, beside the last part of the batch."""
    part = computation_ns // row.accumulated
    problem = Problem.from_profile(
        profile(group.model, group.gradient_bytes),
        place(group, row),
        computation=Fraction(max(part, 1), UNIT),
        ignore_memory=True,
        modes=("replicated",),
    )
    known = solve(problem, method=group.rule).evaluation
    assert known is not None
    return computation_ns - part + known.iteration_ns


def _sharded_ns(group: Group, row: Row, computation_ns: int) -> int:
    where = place(group, row)
    ways = synchronisations(where, ("measured",) if where.network else ALGORITHMS)[0]
    known = parts(group.model)
    work = row.accumulated * sum(part.count * part.work for part in known)
    backward = backward_share(group)
    units = []
    for part in known:
        alone = Fraction(computation_ns * part.work, work)
        gathered, scattered = (
            part.parameters * size for size in (group.parameter_bytes, group.gradient_bytes)
        )
        unit = Unit(
            round(alone * (1 - backward)),
            round(alone * backward),
            min(way.pull.cost_ns(gathered) for way in ways) if gathered else 0,
            min(way.half.cost_ns(scattered) for way in ways) if scattered else 0,
        )
        units += [unit] * part.count
    return row.accumulated * part_ns(units, reshard=row.reshard)


def computation_of(group: Group) -> int:
    """Return the computation with which the smallest scale takes what was measured."""
    base = group.base
    computation = base.step_ns
    for _ in range(60):
        off = step_ns(group, base, computation) - base.step_ns
        if abs(off) * CLOSE <= base.step_ns:
            break
        computation = max(computation - off, 0)
    return computation


def scaled_ns(group: Group, row: Row, computation_ns: int, fixed: Fraction = FIXED) -> int:
    """Return the computation at a row's scale, of that at the smallest.

    Parameters
    ----------
    group, row : Group, Row
        Where.
    computation_ns : int
        Computation of a step at the smallest scale.
    fixed : Fraction
        Which share of it every part of a batch takes, however few its samples are.
    """
    base = group.base
    samples = (row.local / row.accumulated) / (base.local / base.accumulated)
    part = Fraction(computation_ns, base.accumulated)
    return round(row.accumulated * part * (fixed + (1 - fixed) * samples))


def linear_ns(group: Group, row: Row) -> int:
    """Return the step if all accelerators were as fast as the fewest."""
    return scaled_ns(group, row, group.base.step_ns, Fraction(0))


def affine_ns(group: Group, row: Row, fixed: Fraction = Fraction(0)) -> int:
    """Return the step if all bytes went along one ring, beside no computation.

    It is what a data sheet says: a start-up, and 2(N-1)/N bytes over the NICs of a host, or over
    the link of an accelerator. The rest of the smallest scale's step is computation.
    """
    computation = max(group.base.step_ns - _ring_ns(group, group.base), 0)
    return scaled_ns(group, row, computation, fixed) + _ring_ns(group, row)


def _ring_ns(group: Group, row: Row) -> int:
    if row.accelerators == 1:
        return 0
    where = place(group, row)
    topology = where.topology
    assert isinstance(topology, Rails)
    nic = where.nic  # all of a host carry the ring on; within a host each link does
    if row.hosts == 1:
        nic = replace(nic, bytes_per_s=topology.link_bytes_per_s, per_machine=1)
    numbers = sum(part.count * part.parameters for part in parts(group.model))
    sent = 2 * numbers * group.gradient_bytes
    if group.rule == "fsdp":
        gathers = 2 if row.reshard else 1
        sent = numbers * (gathers * group.parameter_bytes + group.gradient_bytes)
    cost = ring_cost(nic, row.accelerators)  # of both halves
    times = row.accumulated if group.rule == "fsdp" else 1
    return times * cost.cost_ns(sent // 2)
