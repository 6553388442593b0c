"""The problem of fully sharded training (`planner.fsdp`) of a profiled model on a cluster.

Method: the layers are those of `Profile.chain`. A mesh is sharded over all workers or, on hosts
with several accelerators, over those of 1, 2, 4 … hosts, with replicas between them. Collectives
cost what measured tables say, else they are rings, as in libraries. All replicas gather at once,
and share the shared medium. Blocks are numbered modules such as ``blocks.3``, and the layers
between them.

Complexity: O(layers + meshes).
Source: own.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

from planner.families import fsdp
from planner.families.fsdp.problem import Channels
from planner.families.iteration.measured import measured_on
from planner.families.iteration.synchronisation import synchronisations
from planner.model.clusters import Cluster
from planner.model.costs import AffineCost, TableCost
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.profiles import Profile
from planner.model.topologies import Rails, Switch
from planner.model.validation import shown
from planner.solving.compare import Place

# ---
# Costs of collectives in parts of a cluster that communicate at the same time.
#
# Problem: the ranks of a cluster, numbered host by host, are cut into copies of consecutive ranks.
# Ranks at the same place of each copy form a row. All copies, or all rows, communicate at once.
# Method: each part is a cluster of its own, with the links and NICs that no other part uses and its
# share of the shared medium. Cases: docs/iteration.md, "Costs within copies and rows". Guarantee:
# all parts together load no link, NIC or shared medium above its rate.

Costs = tuple[AffineCost | TableCost, AffineCost | TableCost, AffineCost | TableCost]
"""Costs of an all-gather, a reduce-scatter and an all-reduce, by the bytes of the whole part."""


def costs_of_part(cluster: Cluster, ranks: int, per_host: int) -> Costs:
    """Return the costs of collectives within parts of `ranks` ranks, all parts at once.

    A part has `per_host` accelerators of each of its hosts. Raises `NotApplicableError` if the cost
    of such parts is not known.
    """
    topology, nic, hosts = cluster.topology, cluster.nic, ranks // per_host
    part, parts, shared = cluster, cluster.workers // ranks, cluster.shared_bytes_per_s
    if parts > 1:
        if isinstance(topology, Rails):
            topology = replace(topology, hosts=hosts, accelerators=per_host)
            nic = replace(nic, per_machine=per_host)
        elif isinstance(topology, Switch):
            topology = Switch(ranks)
        else:
            raise NotApplicableError("shards", f"{ranks} ranks are no part of this topology")
        left = None if shared is None else shared / parts
        part = replace(cluster, machines=hosts, topology=topology, nic=nic, shared_bytes_per_s=left)
    if ranks == 1:
        nothing = AffineCost(0, Fraction(0))
        return nothing, nothing, nothing
    if part.network is not None:
        if shared is not None and parts > 1:
            raise NotApplicableError(
                "shards",
                f"{parts} groups of {part.workers} ranks share the cluster's shared_bytes_per_s, "
                "and the tables of its network are those of one group alone",
            )
        way = measured_on(part)
    else:
        usable, left_out = synchronisations(part, ("ring",))
        if not usable:
            raise NotApplicableError("cluster", left_out[0][1])
        way = usable[0]
    return way.pull, way.half, way.all_reduce


def sharded_problem(
    profile: Profile,
    cluster: Cluster,
    *,
    computation: Fraction | int = 1,
    optimiser: Fraction | int = 0,
    channels: Channels = "one",
    memory_bytes: int | None = None,
    ignore_memory: bool = False,
    recompute: bool = False,
    shards: Sequence[int] | None = None,
) -> fsdp.Problem:
    """Return the problem of fully sharded training.

    `computation` multiplies all computation times. `memory_bytes` replaces the memory of the
    cluster's workers. `recompute` allows layers to be recomputed from the output of the layer
    before. `shards` lists the meshes by their shards; by default `meshes_of` the cluster. Raises
    `InvalidInputError` if no layer has parameters, or a mesh does not exist.
    """
    layers = profile.chain().scaled(computation).layers
    kept = [layer.saved_activation_bytes for layer in layers]
    read = [0, *(layer.activation_bytes for layer in layers)]
    limit = cluster.worker_memory_bytes if memory_bytes is None else memory_bytes
    return fsdp.Problem(
        forward_ns=[layer.forward_ns for layer in layers],
        backward_ns=[layer.backward_ns for layer in layers],
        parameter_bytes=[layer.parameter_bytes for layer in layers],
        gradient_bytes=[layer.pushed_bytes for layer in layers],
        activation_bytes=kept,
        checkpoint_bytes=[*map(min, kept, read)] if recompute else None,
        meshes=meshes_of(cluster, shards),
        channels=channels,
        memory_bytes=None if ignore_memory else limit,
        optimiser=Fraction(optimiser),
        blocks=_blocks([layer.name for layer in layers]),
        element_bytes=profile.element_bytes,
        names=[layer.name for layer in layers],
    )


def _blocks(names: Sequence[str]) -> list[int]:
    """Return where blocks begin: at numbered modules, and at the layers between them."""
    blocks = [
        next((end for end, part in parts if any(map(str.isdigit, part))), 0)
        for parts in (list(enumerate(name.split("."), start=1)) for name in names)
    ]
    keys = [name.split(".")[:end] for name, end in zip(names, blocks, strict=True)]
    return [place for place, key in enumerate(keys) if not place or key != keys[place - 1]]


def meshes_of(cluster: Cluster, shards: Sequence[int] | None = None) -> tuple[fsdp.Mesh, ...]:
    """Return the meshes of a cluster, the one with the most shards first.

    By default all workers, and hosts in powers of two. Raises `InvalidInputError` if a mesh does
    not divide the workers, or the cost of its collectives is unknown.
    """
    workers, topology = cluster.workers, cluster.topology
    if shards is not None:
        for place, count in enumerate(shards):
            if not 1 <= count <= workers or workers % count:
                raise InvalidInputError(
                    f"shards[{place}]", f"expected a divisor of {workers} ranks, got {shown(count)}"
                )
        return tuple(_mesh(cluster, count) for count in sorted(set(shards), reverse=True))
    meshes = [_mesh(cluster, workers)]
    if isinstance(topology, Rails):
        for hosts in (1 << power for power in reversed(range(topology.hosts.bit_length()))):
            if hosts < topology.hosts and not topology.hosts % hosts:
                with suppress(NotApplicableError):
                    meshes.append(_mesh(cluster, hosts * topology.accelerators))
    return tuple(meshes)


def _mesh(cluster: Cluster, shards: int) -> fsdp.Mesh:
    size, replicas = cluster.workers_per_host, cluster.workers // shards
    if shards % size and size % shards:
        raise NotApplicableError(
            "shards",
            f"groups of {shards} ranks straddle hosts of {size} accelerators: expected whole "
            "hosts, or an equal share of one",
        )
    gather, scatter, _ = costs_of_part(cluster, shards, min(shards, size))
    between = None
    if replicas > 1:
        between = costs_of_part(cluster, replicas, max(size // shards, 1))[2]
    return fsdp.Mesh(
        shards=shards,
        replicas=replicas,
        all_gather=gather,
        reduce_scatter=scatter,
        all_reduce=between,
        # Copies of one whole host use its links, and rows its NICs.
        own_links=isinstance(cluster.topology, Rails) and shards in (1, size),
    )


def from_profile(profile: Profile, place: Place, options: Mapping[str, Any]) -> fsdp.Problem:
    """Return the problem of a profile on a cluster, with the options of `planner.fsdp.FSDP`."""
    assert place.cluster is not None
    return sharded_problem(
        profile,
        place.cluster,
        optimiser=options["optimiser_ratio"],
        channels=options["channels"],
        memory_bytes=options["memory"],
        shards=options["shards"],
        ignore_memory=options["ignore_memory"],
        recompute=options["recompute"],
    )
