"""Epoch times by Yan's performance model, for every number of machines.

Problem: rank the sizes of a cluster for a profiled model without planning.
Method: epoch = iterations * (T + units * startup + (1 + workers) / 2 * bytes / rate), with T the
computation of a batch. Derivation: docs/iteration.md, "Yan's epochs".
Guarantee: exact in the model, which leaves out collectives, overlap and memory.
Complexity: O(1) per number of machines, on one layer.
Source: Yan et al., "Performance Modeling and Scalability Optimization of Distributed Deep Learning
Systems", KDD'15; the restriction is our own.
"""

from dataclasses import dataclass
from fractions import Fraction

from planner.families import yan
from planner.families.collectives.nics import with_measured_nics
from planner.families.iteration.problem import Problem
from planner.families.yan.from_profile import NO_STARTUP_NS, nic_rate
from planner.families.yan.problem import MAX_MACHINES
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.profiles import Profile
from planner.model.validation import MAX_VALUE, shown

MAX_WORKERS = MAX_MACHINES - 1
"""Most workers in Yan's model: one machine is the server."""


@dataclass(frozen=True, slots=True)
class EpochEstimate:
    """The iterations and the time of an epoch by Yan's model with a number of machines (hosts)."""

    machines: int
    iterations: int
    epoch_ns: int


def yan_estimates(
    profile: Profile, problem: Problem, epoch_samples: int
) -> tuple[EpochEstimate, ...]:
    """Return the epoch by Yan's model for each number of machines: best first, fewest if equal.

    Raises `NotApplicableError` if there are too many workers, no computation, or numbers out of the
    model's range; `InvalidInputError` if the profile has no batch size, or an epoch too many
    samples.
    """
    cluster, batch = problem.cluster, batch_size_of(profile)
    if cluster.workers > MAX_WORKERS:
        raise NotApplicableError(
            "cluster.machines",
            f"Yan's model takes at most {MAX_WORKERS} workers, got {cluster.workers}",
        )
    if not computation_ns(problem):
        raise NotApplicableError("profile", "Yan's model expects layers that compute")
    each = cluster.workers // cluster.machines
    iterations = [
        _iterations(epoch_samples, batch * machines * each)
        for machines in range(1, cluster.machines + 1)
    ]

    def estimate(machines: int, iterations: int) -> EpochEstimate:  # a server besides the workers
        workers = machines * each
        job = yan.Problem(
            machines=workers + 1,
            cores=1,
            layers=(layer,),
            constants=constants,
            samples=iterations * batch * workers,
            read_every=batch * workers,
        )
        whole = yan.LayerChoice(partitions=1, threads=1, copies=1, mapping=((0,),))
        configuration = yan.Configuration(
            parameter_servers=1, replicas=workers, workers_per_replica=1, layers=(whole,)
        )
        return EpochEstimate(machines, iterations, yan.estimate(job, configuration).epoch_ns)

    try:
        layer, constants = _layer_and_constants(profile, problem, batch)
        estimates = [estimate(number, count) for number, count in enumerate(iterations, 1)]
    except InvalidInputError as error:
        raise NotApplicableError("profile", f"Yan's model cannot price it: {error}") from None
    return tuple(sorted(estimates, key=lambda estimate: (estimate.epoch_ns, estimate.machines)))


def _layer_and_constants(
    profile: Profile, problem: Problem, batch: int
) -> tuple[yan.NeuronLayer, yan.Constants]:
    """Return a layer that costs a replica of one worker what the whole profile does.

    It is one neuron with a connection per byte of parameters, fed forward and updated. With its
    activation and error function, each as long as a connection, that is the computation of a
    sample. It has one start-up per unit of the chain, as the model reads units sequentially.
    """
    size = sum(problem.pulled)
    layer = yan.NeuronLayer(profile.name, "full", neurons=1, connections=size, weights=size)
    operation = Fraction(computation_ns(problem), batch * (2 * size + 2))
    cluster, _ = with_measured_nics(problem.cluster)
    units = len(profile.chain().layers) if profile.layers else len(problem.pulled)
    return layer, yan.Constants(
        muladd_ns=operation,
        activation_ns=operation,
        error_ns=operation,
        latency_ns=(max(Fraction(units * cluster.nic.startup_ns), NO_STARTUP_NS),),
        nic_bits_per_s=8 * nic_rate(cluster),
        interference=(Fraction(1),),  # a profile's times are those of all cores together
        bits_per_weight=Fraction(8),
    )


def _iterations(epoch_samples: int, together: int) -> int:
    """Return the iterations of an epoch, the last one filled up."""
    most = MAX_VALUE // together
    if epoch_samples > most * together:
        raise InvalidInputError(
            "epoch_samples",
            f"expected an integer <= {most * together}, in iterations of {together} samples, "
            f"got {shown(epoch_samples)}",
        )
    return -(-epoch_samples // together)


def batch_size_of(profile: Profile) -> int:
    """Return the samples of an iteration on one worker; raise `InvalidInputError` if unknown."""
    if profile.batch_size is None:
        raise InvalidInputError(
            "profile.batch_size", "missing: the iterations of an epoch follow from it"
        )
    return profile.batch_size


def computation_ns(problem: Problem) -> int:
    """Return the computation of an iteration on one worker."""
    return sum(op.duration_ns for op in problem.graph.ops)
