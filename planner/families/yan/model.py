"""The performance model: the time of an epoch in a configuration.

The one place where configurations of all methods are priced. Formulas, also for measured layers and
machines that differ: docs/yan.md, "The model"; symbols W', A and E are 0 where no layer follows or
precedes.

Guarantee: exact rational arithmetic on the constants as written, rounded up once. Complexity: O(Σ
P·R), times replicas where machines differ. Source: Yan et al., KDD'15, slides "Performance Model",
with the corrections that docs/yan.md lists.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from planner.families.yan.configuration import Configuration
from planner.families.yan.layers import NeuronLayer
from planner.families.yan.problem import Problem
from planner.families.yan.segments import Segment, check, segments_of


class LayerTimes(NamedTuple):
    """Time of one layer in an epoch (ns), each phase of its slowest segment.

    In the paper's symbols ``U_f``, ``M_f``, ``U_b``, ``M_b``, ``U_w``, and the layer's part of
    ``M_w``.
    """

    forward_computation: Fraction
    forward_communication: Fraction
    backward_computation: Fraction
    backward_communication: Fraction
    weight_update: Fraction
    weight_reading: Fraction


@dataclass(frozen=True, slots=True)
class Estimate:
    """Time of an epoch, by layer and phase.

    Attributes
    ----------
    layers : tuple of LayerTimes
        Layer 0 first; of the slowest replica.
    """

    layers: tuple[LayerTimes, ...]

    @property
    def epoch(self) -> Fraction:
        """Exact time of an epoch in nanoseconds."""
        return sum((sum(times, Fraction(0)) for times in self.layers), Fraction(0))

    @property
    def epoch_ns(self) -> int:
        """Time of an epoch, rounded up."""
        return -int(-self.epoch // 1)

    @property
    def computation(self) -> Fraction:
        """Computation of an epoch (ns)."""
        return sum(
            (layer.forward_computation + layer.backward_computation + layer.weight_update)
            for layer in self.layers
        ) + Fraction(0)


def estimate(problem: Problem, configuration: Configuration) -> Estimate:
    """Return the time of an epoch in a configuration, by layer and phase.

    Parameters
    ----------
    problem : Problem
        The network and the machines.
    configuration : Configuration
        A configuration of the problem, with its mapping.

    Raises
    ------
    InvalidPlanError
        If the configuration is not valid for the problem.
    """
    segments = cut(problem, configuration)
    epochs = [
        [
            computed_times(problem, configuration, place, own, speeds)
            for place, own in enumerate(segments)
        ]
        for speeds in speeds_of(problem, configuration)
    ]
    slowest = epochs[0]
    if len(epochs) > 1:
        slowest = max(epochs, key=lambda layers: sum((sum(times) for times in layers), Fraction(0)))
    reading = reading_times(problem, configuration)
    return Estimate(
        tuple(
            LayerTimes._make((*times, read)) for times, read in zip(slowest, reading, strict=True)
        )
    )


def cut(problem: Problem, configuration: Configuration) -> list[list[Segment]]:
    """Return the segments of each layer, which do not depend on constants; raises as `estimate`."""
    check(problem, configuration)
    chosen = (None, *configuration.layers, None)
    return [
        segments_of(problem, place, choice, chosen[place], chosen[place + 2])
        for place, choice in enumerate(configuration.layers)
    ]


Speeds: TypeAlias = Sequence[Fraction] | None
"""Speeds of the workers of a replica; None if all are as in the constants."""


def computed_times(
    problem: Problem,
    configuration: Configuration,
    place: int,
    segments: Sequence[Segment],
    speeds: Speeds,
) -> tuple[Fraction, ...]:
    """Return the times of a layer in an epoch, without reading its weights, on one replica."""
    choice = configuration.layers[place]
    times = phases(problem, place, choice.threads, segments, speeds)
    share = choice.threads * choice.copies * configuration.replicas
    samples = Fraction(problem.samples, share)
    return tuple(samples * time for time in (*times.forward, *times.backward, times.update))


def speeds_of(problem: Problem, configuration: Configuration) -> list[Speeds]:
    """Return the speeds of the workers of each replica; equal replicas appear only once."""
    count, speeds = configuration.workers_per_replica, problem.machine_speeds
    if speeds is None or problem.uniform:
        return [None if speeds is None else (speeds[0],) * count]
    machines = configuration.machines
    assert machines is not None
    of_each = [speeds[machine] for machine in machines[configuration.parameter_servers :]]
    starts = range(0, len(of_each), count)
    return list(dict.fromkeys(tuple(of_each[start : start + count]) for start in starts))


class Phases(NamedTuple):
    """Times of one layer's slowest segments for one sample (ns): computation, communication."""

    forward: tuple[Fraction, Fraction]
    backward: tuple[Fraction, Fraction]
    update: Fraction


def phases(
    problem: Problem,
    place: int,
    threads: int,
    segments: Iterable[Segment],
    speeds: Speeds = None,
) -> Phases:
    """Return the times of a layer's slowest segments for one sample with `threads` threads.

    `speeds` are relative to the constants, by worker; 1 by default.
    """
    constants = problem.constants
    slower = constants.interference[threads - 1]
    latency = constants.latency_ns[threads - 1]
    receive = constants.bits_per_activation * threads * 10**9 / constants.nic_bits_per_s
    rates = problem.rates[place]
    nothing = Fraction(0)
    forward, backward, update = (nothing, nothing), (nothing, nothing), nothing
    for segment in distinct(segments, differ=speeds is not None):
        compute = slower / speeds[segment.worker] if speeds else slower
        work = compute * (rates.forward * segment.connections + rates.activation * segment.neurons)
        fetch = latency + segment.activations * receive if segment.activations else nothing
        forward = max(forward, (work, fetch), key=sum)
        work = compute * (rates.backward * segment.outgoing + rates.error * segment.neurons)
        fetch = latency + segment.errors * receive if segment.errors else nothing
        backward = max(backward, (work, fetch), key=sum)
        update = max(update, compute * rates.update * segment.connections)
    return Phases(forward, backward, update)


def distinct(segments: Iterable[Segment], *, differ: bool) -> list[Segment]:
    """Return one of all equal segments, in order; `differ`: segments on other workers differ."""
    kinds: dict[tuple[int, ...], Segment] = {}
    for segment in segments:  # hashing fractions is slow
        received = (*segment.activations.as_integer_ratio(), *segment.errors.as_integer_ratio())
        kinds[segment[1:4] + received + ((segment.worker,) if differ else ())] = segment
    return sorted(kinds.values())


def reading_factor(problem: Problem, workers: int, replicas: int, servers: int) -> Fraction:
    """Return the factor on the time to read one replica's weights from one server."""
    best, worst = Fraction(1, min(servers, workers)), Fraction(replicas)
    return {"min": best, "max": worst, "mean": (best + worst) / 2}[problem.read_model]


def volume(layer: NeuronLayer, partitions: int, copies: int) -> int:
    """Return the weights in all segments of a layer: each band of rows has all filters."""
    return layer.weights * copies * (1 if layer.kind == "full" else partitions)


def reading(problem: Problem, weights: int, threads: int, factor: Fraction) -> Fraction:
    """Return the time of an epoch in which one layer's weights are read (ns)."""
    if not weights:
        return Fraction(0)
    constants = problem.constants
    sending = weights * constants.bits_per_weight * threads * 10**9 / constants.nic_bits_per_s
    each = constants.latency_ns[threads - 1] + factor * sending
    return Fraction(problem.samples, problem.read_every) * each


def reading_times(problem: Problem, configuration: Configuration) -> list[Fraction]:
    """Return the time in which each layer's weights are read in an epoch (ns)."""
    factor = reading_factor(problem, *configuration.triple)
    return [
        reading(problem, volume(layer, choice.partitions, choice.copies), choice.threads, factor)
        for layer, choice in zip(problem.layers, configuration.layers, strict=True)
    ]
