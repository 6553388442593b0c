"""Yan's problem made from a profile and a cluster.

Method: layers and measured times come from `planner.families.yan.units`. The model's sample is a
batch of the profile, computed and sent at once with one start-up, so the predicted time of an uncut
layer is the measured one. A batch uses a whole machine, as profiled.

Guarantee: on one machine without network the predicted epoch is exactly batches times the profile's
computation. Assumptions beyond profile and cluster are listed.
Complexity: O(layers + ops). Source: own; the model is that of Yan et al., KDD'15.
"""

from collections import Counter
from fractions import Fraction
from math import prod
from typing import Any, NamedTuple

from planner.families.collectives.prediction import with_measured_nics
from planner.families.yan.problem import MAX_MACHINES, Constants, Problem
from planner.families.yan.units import neuron_layers, refuse_incomplete
from planner.model.clusters import Cluster
from planner.model.errors import NotApplicableError
from planner.model.profiles import NUMBER_BYTES, Profile
from planner.model.topologies import Rails
from planner.model.units import counted, format_ns
from planner.model.validation import integer

NO_STARTUP_NS = Fraction(1, 10**9)
"""Stands for a start-up of 0 in Yan's model, whose constants are above 0."""

ALL_PARTITIONS = 32
"""Most machines for which every number of partitions is tried by default, else powers of two."""

NUMBERS = (1, 2, 4, 8)
"""Possible sizes of a number (bytes)."""


class ProfiledProblem(NamedTuple):
    """A problem made from a profile; its samples are batches of `batch_size` samples."""

    problem: Problem
    batch_size: int
    assumptions: tuple[str, ...]  # beyond the profile and the cluster


def nic_rate(cluster: Cluster) -> Fraction:
    """Return the bandwidth of a worker (bytes per second) over its NICs and any shared link."""
    rate = cluster.nic.bytes_per_s
    if not isinstance(cluster.topology, Rails):  # there each accelerator has one NIC
        rate *= cluster.nic.per_machine
    shared = cluster.shared_bytes_per_s
    return rate if shared is None else min(rate, shared)


def profiled(
    profile: Profile,
    cluster: Cluster,
    samples: int,
    *,
    read_every: int | None = None,
    computation: Fraction | int = 1,
    **options: Any,
) -> ProfiledProblem:
    """Return Yan's problem of a profiled model on a cluster.

    The profile needs kinds, shapes, connections, weights and a batch size. Workers and servers are
    the cluster's machines; on rails, its accelerators. The last batch of `samples` is filled up.
    `read_every` (samples) is by default a batch for each machine. `computation` scales all times.
    `options` are fields of `Problem`; `memory_bytes` is by default the cluster's.

    InvalidInputError with its path if the profile lacks a field; NotApplicableError if there are
    more machines than the model takes.
    """
    refuse_incomplete(profile)
    batch = profile.batch_size
    assert batch is not None
    integer(samples, "samples", minimum=1)
    machines = cluster.workers
    if not 2 <= machines <= MAX_MACHINES:
        raise NotApplicableError(
            "cluster.machines",
            f"expected 2 to {MAX_MACHINES}, a worker and a parameter server at least, "
            f"got {machines}",
        )
    if read_every is not None:
        integer(read_every, "read_every", minimum=1)
    together = read_every or batch * machines
    layers = neuron_layers(profile, computation)
    cluster, notes = with_measured_nics(cluster)
    startup = max(Fraction(cluster.nic.startup_ns), NO_STARTUP_NS)
    unused = Fraction(1)  # every layer has measured times
    constants = Constants(
        muladd_ns=unused,
        activation_ns=unused,
        error_ns=unused,
        latency_ns=(startup,),
        nic_bits_per_s=8 * nic_rate(cluster),
        interference=(Fraction(1),),
        bits_per_activation=Fraction(8 * batch * _number_bytes(profile, batch)),
        bits_per_weight=Fraction(8 * _number_bytes(profile, None)),
    )
    problem = Problem(
        machines=machines,
        cores=1,
        layers=layers,
        constants=constants,
        samples=-(-samples // batch),
        read_every=-(-together // batch),
        **{
            "memory_bytes": cluster.worker_memory_bytes,
            "partitions": "all" if machines <= ALL_PARTITIONS else "powers_of_two",
            **options,
        },
    )
    assumed = _assumed(problem, cluster, batch, read_every)
    return ProfiledProblem(problem, batch, (*notes, *assumed))


def _number_bytes(profile: Profile, batch: int | None) -> int:
    """Return the size (bytes) of most numbers: activations of a batch, or parameters (None)."""
    sizes: Counter[int] = Counter()
    for layer in profile.layers:
        if batch is None:
            numbers, size = layer.weights or 0, layer.parameter_bytes
        else:
            numbers, size = batch * prod(layer.output_shape or (0,)), layer.activation_bytes
        if numbers and size % numbers == 0 and size // numbers in NUMBERS:
            sizes[size // numbers] += numbers
    return sizes.most_common(1)[0][0] if sizes else NUMBER_BYTES


def _assumed(problem: Problem, cluster: Cluster, batch: int, read_every: int | None) -> list[str]:
    """Return the assumptions beyond the profile and the cluster."""
    computed = (
        f"a machine computes one batch of {counted(batch, 'sample')} at a time, as profiled; how "
        "threads with batches of their own slow down each other is unknown, so none are tried"
    )
    halves = (
        "half of a layer's backward pass is error terms, half its weights' gradients; a part of a "
        "layer takes its share of the layer's time, and what two parts need is computed once"
    )
    transfers = (
        f"every transfer of a batch starts up in {format_ns(cluster.nic.startup_ns)}, whatever is "
        "sent beside it; nothing overlaps computation, and gradients reach servers for nothing"
    )
    assumed = [computed, halves, transfers]
    if read_every is None:
        together = counted(problem.read_every * batch, "sample")
        assumed.append(f"weights are read every {together}, a batch for each machine")
    whole = sum(layer.cuts == 1 for layer in problem.layers)
    if whole:
        layers = counted(len(problem.layers), "layer")
        assumed.append(f"{whole} of {layers} mix positions or have one row: not cut")
    return assumed
