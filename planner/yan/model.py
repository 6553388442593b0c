"""The performance model: how long an epoch takes in a given configuration.

Problem: price a configuration. Every configuration is checked and priced here, whoever made it.

Model: a sample passes the layers forward, then backward, then weights are updated; each phase of a
layer lasts as long as its slowest segment takes to receive what other workers hold and to compute:

    forward   C_interf(H)·(C_muladd·W + C_act·n)  + [C_ncost(H) + A·C_bits·H / C_nbw if A > 0]
    backward  C_interf(H)·(C_muladd·W' + C_err·n) + [C_ncost(H) + E·C_bits·H / C_nbw if E > 0]
    update    C_interf(H)·C_muladd·W

with n neurons, W connections into the segment, W' connections from it into the next layer (0 for
the last), A activations and E error terms that other workers hold (0 for the first, and the last
layer; averages over the samples the segment sees). An epoch takes this times samples / (H·R·N_mr).
Once in ``read_every`` samples a layer's weights are read by the workers:

    min   C_ncost(H) + V·C_bits·H / (C_nbw·min(N_ps, N_wr))     no other replica reads
    max   C_ncost(H) + V·C_bits·H·N_mr / C_nbw                  all read from one server
    mean  half the sum of both

where V counts the weights in all segments of the layer: every copy, and every band of a
convolution, reads its own.

Of a layer whose computation was measured, the forward pass has C_muladd = forward_ns / W, and
back-propagation into it and its update C_muladd = backward_ns / 2W: both do as much. The first
layer has no error terms to pass back, and one without weights no update. C_act = C_err = 0 there.

Where machines differ, computation is divided by a machine's speed and bandwidth multiplied by its
NIC's; replicas share the samples evenly, so the slowest one counts, and weights are read at the
rate of the slowest NIC.

Guarantee: exact rational arithmetic on the constants as written, rounded up once.

Complexity: O(Σ P·R) a configuration, times replicas where machines differ.

Source: Yan et al., "Performance Modeling and Scalability Optimization of Distributed Deep Learning
Systems", KDD'15, slides "Performance Model". Corrected: units of the weights' traffic; connections
(work) apart from weights (traffic); the slowest partition; no start-up where nothing is received;
copies of a layer read their weights too (otherwise one replica with all layers copied is data
parallelism that reads for nobody).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from planner.yan.checker import check
from planner.yan.configuration import Configuration
from planner.yan.layers import NeuronLayer
from planner.yan.problem import Problem
from planner.yan.segments import Segment, segments_of

__all__ = [
    "Estimate",
    "LayerTimes",
    "Phases",
    "cut",
    "estimate",
    "phases",
    "priced",
    "reading",
    "reading_factor",
    "volume",
]


class LayerTimes(NamedTuple):
    """What one layer adds to an epoch, in nanoseconds, each phase of its slowest segment.

    Attributes
    ----------
    forward_computation, forward_communication : Fraction
        Feed-forward evaluation, ``U_f`` and ``M_f``.
    backward_computation, backward_communication : Fraction
        Back-propagation, ``U_b`` and ``M_b``.
    weight_update : Fraction
        ``U_w``.
    weight_reading : Fraction
        The layer's part of ``M_w``.
    """

    forward_computation: Fraction
    forward_communication: Fraction
    backward_computation: Fraction
    backward_communication: Fraction
    weight_update: Fraction
    weight_reading: Fraction


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an epoch costs, and where the time goes.

    Attributes
    ----------
    layers : tuple of LayerTimes
        Layer 0 first; of the slowest replica.
    """

    layers: tuple[LayerTimes, ...]

    @property
    def epoch(self) -> Fraction:
        """Time of an epoch in nanoseconds, exact."""
        return sum((sum(times, Fraction(0)) for times in self.layers), Fraction(0))

    @property
    def epoch_ns(self) -> int:
        """Time of an epoch, rounded up."""
        return -int(-self.epoch // 1)

    @property
    def computation(self) -> Fraction:
        """All computation of an epoch."""
        return sum(
            (layer.forward_computation + layer.backward_computation + layer.weight_update)
            for layer in self.layers
        ) + Fraction(0)


def estimate(problem: Problem, configuration: Configuration) -> Estimate:
    """Return what an epoch costs in a configuration, layer by layer and phase by phase.

    Parameters
    ----------
    problem : Problem
        The network and the machines.
    configuration : Configuration
        A configuration of the problem, with its mapping.

    Raises
    ------
    InvalidPlanError
        If the configuration is none of the problem's.
    """
    return priced(problem, configuration, cut(problem, configuration))


def cut(problem: Problem, configuration: Configuration) -> list[list[Segment]]:
    """Return the segments of each layer, which no constant changes; raises as `estimate`."""
    check(problem, configuration)
    chosen = (None, *configuration.layers, None)
    return [
        segments_of(problem, place, choice, chosen[place], chosen[place + 2])
        for place, choice in enumerate(configuration.layers)
    ]


def priced(
    problem: Problem, configuration: Configuration, segments: Sequence[Sequence[Segment]]
) -> Estimate:
    """Return `estimate`, given what `cut` returns for these layers and this configuration."""
    replicas = _replicas(problem, configuration)
    epochs = [
        tuple(
            _layer_times(problem, configuration, place, own, speeds, nics)
            for place, own in enumerate(segments)
        )
        for speeds, nics in replicas
    ]
    slowest = epochs[0]
    if len(epochs) > 1:
        slowest = max(epochs, key=lambda layers: sum((sum(times) for times in layers), Fraction(0)))
    reading = _reading(problem, configuration)
    return Estimate(
        tuple(
            LayerTimes._make((*times, read)) for times, read in zip(slowest, reading, strict=True)
        )
    )


def _replicas(
    problem: Problem, configuration: Configuration
) -> list[tuple[Sequence[Fraction] | None, Sequence[Fraction] | None]]:
    """Return the speeds of the workers of each replica, and those of their NICs."""
    if problem.uniform:
        machine, nic = problem.machine_speeds, problem.nic_speeds
        count = configuration.workers_per_replica
        return [
            (
                None if machine is None else [machine[0]] * count,
                None if nic is None else [nic[0]] * count,
            )
        ]
    machines = configuration.machines
    assert machines is not None
    replicas: list[tuple[Sequence[Fraction] | None, Sequence[Fraction] | None]] = []
    for start in range(
        configuration.parameter_servers, len(machines), configuration.workers_per_replica
    ):
        mine = machines[start : start + configuration.workers_per_replica]
        replicas.append(
            (
                problem.machine_speeds and [problem.machine_speeds[machine] for machine in mine],
                problem.nic_speeds and [problem.nic_speeds[machine] for machine in mine],
            )
        )
    return replicas


class Phases(NamedTuple):
    """What one layer's slowest segments take for one sample, in nanoseconds.

    Attributes
    ----------
    forward, backward : (Fraction, Fraction)
        Computation and communication.
    update : Fraction
        Weight update.
    """

    forward: tuple[Fraction, Fraction]
    backward: tuple[Fraction, Fraction]
    update: Fraction


def phases(
    problem: Problem,
    place: int,
    threads: int,
    segments: Iterable[Segment],
    speeds: Sequence[Fraction] | None = None,
    nics: Sequence[Fraction] | None = None,
) -> Phases:
    """Return what a layer's slowest segments take for one sample with so many threads.

    Parameters
    ----------
    problem : Problem
        The constants.
    place : int
        Which layer.
    threads : int
        Its threads.
    segments : iterable of Segment
        Of one replica.
    speeds, nics : sequence of Fraction, optional
        Of each worker, relative to the constants; all 1 by default.
    """
    constants = problem.constants
    slower = constants.interference[threads - 1]
    latency = constants.latency_ns[threads - 1]
    each = constants.bits_per_activation * threads * 10**9 / constants.nic_bits_per_s
    rates = problem.rates[place]
    nothing = Fraction(0)
    forward, backward, update = (nothing, nothing), (nothing, nothing), nothing
    differ = speeds is not None or nics is not None
    kinds: dict[tuple[int, ...], Segment] = {}  # equal ones cost alike; fractions are slow to hash
    for segment in segments:
        received = (*segment.activations.as_integer_ratio(), *segment.errors.as_integer_ratio())
        kinds[segment[1:4] + received + ((segment.worker,) if differ else ())] = segment
    for segment in sorted(kinds.values()):
        compute = slower / speeds[segment.worker] if speeds else slower
        receive = each / nics[segment.worker] if nics else each
        work = compute * (rates.forward * segment.connections + rates.activation * segment.neurons)
        fetch = latency + segment.activations * receive if segment.activations else nothing
        forward = max(forward, (work, fetch), key=sum)
        work = compute * (rates.backward * segment.outgoing + rates.error * segment.neurons)
        fetch = latency + segment.errors * receive if segment.errors else nothing
        backward = max(backward, (work, fetch), key=sum)
        update = max(update, compute * rates.update * segment.connections)
    return Phases(forward, backward, update)


def _layer_times(
    problem: Problem,
    configuration: Configuration,
    place: int,
    segments: Sequence[Segment],
    speeds: Sequence[Fraction] | None,
    nics: Sequence[Fraction] | None,
) -> tuple[Fraction, ...]:
    """Return the phases of a layer over an epoch."""
    choice = configuration.layers[place]
    times = phases(problem, place, choice.threads, segments, speeds, nics)
    share = Fraction(problem.samples, choice.threads * choice.copies * configuration.replicas)
    return tuple(share * time for time in (*times.forward, *times.backward, times.update))


def reading_factor(problem: Problem, workers: int, replicas: int, servers: int) -> Fraction:
    """Return what multiplies the time to read one replica's weights from one server."""
    best, worst = Fraction(1, min(servers, workers)), Fraction(replicas)
    return {"min": best, "max": worst, "mean": (best + worst) / 2}[problem.read_model]


def volume(layer: NeuronLayer, partitions: int, copies: int) -> int:
    """Return the weights in all segments of a layer: each band of rows has all filters."""
    return layer.weights * copies * (1 if layer.kind == "full" else partitions)


def reading(problem: Problem, weights: int, threads: int, factor: Fraction) -> Fraction:
    """Return how long so many weights of one layer are read in an epoch."""
    if not weights:
        return Fraction(0)
    constants = problem.constants
    sending = weights * constants.bits_per_weight * threads * 10**9 / constants.nic_bits_per_s
    each = constants.latency_ns[threads - 1] + factor * sending
    return Fraction(problem.samples, problem.read_every) * each


def _reading(problem: Problem, configuration: Configuration) -> list[Fraction]:
    """Return how long each layer's weights are read in an epoch."""
    factor = reading_factor(problem, *configuration.triple)
    if problem.nic_speeds is not None:
        machines = configuration.machines or (0,)
        factor /= min(problem.nic_speeds[machine] for machine in machines)
    return [
        reading(problem, volume(layer, choice.partitions, choice.copies), choice.threads, factor)
        for layer, choice in zip(problem.layers, configuration.layers, strict=True)
    ]
