"""The problem: a network, machines, the options of the search, and what methods require."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, NamedTuple

from planner.families.yan.configuration import Fixed, check_choice
from planner.families.yan.layers import MAX_COUNT, Fields, NeuronLayer, fields
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.validation import exact, inside, integer, one_of, set_integer, shown

MAX_MACHINES = 2**12
MAX_THREADS = 2**10
MAX_LAYERS = 2**10
MAX_TOP = 2**14
MAX_FIXED = 2**10
MAX_DECIMALS = 150

COMPUTATION = ("muladd_ns", "activation_ns", "error_ns")
"""Constants that are times of computation."""


def _positive(value: Any, path: str) -> Fraction:
    """Return a number above 0 with few enough decimals for fast searches."""
    number = exact(value, path, positive=True, decimals=MAX_DECIMALS)
    if number.denominator > 10**MAX_DECIMALS:
        raise InvalidInputError(
            path, f"expected a number of at most {MAX_DECIMALS} decimals, got {shown(value)}"
        )
    return number


def _all_positive(values: Any, path: str) -> tuple[Fraction, ...]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidInputError(path, f"expected an array, got {shown(values)}")
    numbers = tuple(_positive(value, f"{path}[{place}]") for place, value in enumerate(values))
    if not numbers:
        raise InvalidInputError(path, "expected at least one element, got an empty array")
    return numbers


@dataclass(frozen=True, slots=True)
class Constants:
    """Measured or fitted constants of the machines and the network, all above 0.

    Decimal numbers are kept exactly as written.

    Attributes
    ----------
    muladd_ns : Fraction
        One multiply-add, ``C_muladd``.
    activation_ns : Fraction
        The activation function of one neuron, ``C_act``.
    error_ns : Fraction
        The error function of one neuron, ``C_err``.
    latency_ns : tuple of Fraction
        Start-up of a transfer while 1, 2, … threads communicate, ``C_ncost(H)``.
    nic_bits_per_s : Fraction
        Bandwidth of a machine's NIC, which its threads share, ``C_nbw``.
    bits_per_activation, bits_per_weight : Fraction
        ``C_bits`` of activations and error terms, and of weights.
    interference : tuple of Fraction
        Factor on computation time with 1, 2, … threads, ``C_interf(H)``.
    """

    muladd_ns: Fraction
    activation_ns: Fraction
    error_ns: Fraction
    latency_ns: Sequence[Fraction]
    nic_bits_per_s: Fraction
    interference: Sequence[Fraction]
    bits_per_activation: Fraction = Fraction(32)
    bits_per_weight: Fraction = Fraction(32)

    def __post_init__(self) -> None:
        for field in (
            "muladd_ns",
            "activation_ns",
            "error_ns",
            "nic_bits_per_s",
            "bits_per_activation",
            "bits_per_weight",
        ):
            object.__setattr__(self, field, _positive(getattr(self, field), f"constants.{field}"))
        for field in ("latency_ns", "interference"):
            path = f"constants.{field}"
            object.__setattr__(self, field, _all_positive(getattr(self, field), path))
        integer(len(self.interference), "constants.interference", maximum=MAX_THREADS)


class Rates(NamedTuple):
    """Times of a layer's operations (ns on one thread)."""

    forward: Fraction  # a connection of its own, fed forward
    update: Fraction  # a connection of its own, updated
    backward: Fraction  # error terms of a connection into the next layer
    activation: Fraction  # a neuron's activation function
    error: Fraction  # a neuron's error function


@dataclass(frozen=True)
class Problem:
    """A network, machines, and the options of the search.

    Attributes
    ----------
    machines : int
        Machines of the cluster, ``N``.
    cores : int
        Cores of each machine, ``K``.
    layers : tuple of NeuronLayer
        Layer 0 nearest the input.
    constants : Constants
        Constants of the machines and the network.
    samples : int
        Samples of an epoch, ``N_sample``.
    read_every : int
        Samples between two readings of the weights, ``N_read``.
    read_model : {"mean", "min", "max"}
        Weights are read in the best case (`min`), the worst case (`max`), or half way between.
    partitions : {"all", "powers_of_two"}
        Numbers of partitions that are tried.
    max_copies : int, optional
        Most copies of a layer within a replica that are tried; 1 for plain model parallelism.
    memory_bytes : int, optional
        Memory of each machine.
    machine_speeds : sequence of Fraction, optional
        Speed of each machine's computation, relative to `constants`.
    fixed : tuple of Fixed
        Configurations to price instead of a search.
    top : int
        Triples to rank; if configurations are fixed, all are ranked.
    """

    machines: int
    cores: int
    layers: Sequence[NeuronLayer]
    constants: Constants
    samples: int
    read_every: int
    read_model: Literal["mean", "min", "max"] = "mean"
    partitions: Literal["all", "powers_of_two"] = "all"
    max_copies: int | None = None
    memory_bytes: int | None = None
    machine_speeds: Sequence[Fraction] | None = None
    fixed: Sequence[Fixed] = ()
    top: int = 8

    def __post_init__(self) -> None:
        set_integer(self, "machines", minimum=1, maximum=MAX_MACHINES)
        set_integer(self, "cores", minimum=1)
        set_integer(self, "samples", minimum=1)
        set_integer(self, "read_every", minimum=1)
        set_integer(self, "top", minimum=1, maximum=MAX_TOP)
        if self.max_copies is not None:
            set_integer(self, "max_copies", minimum=1)
        if self.memory_bytes is not None:
            set_integer(self, "memory_bytes", minimum=1, maximum=MAX_COUNT)
        one_of(self.read_model, ("mean", "min", "max"), "read_model")
        one_of(self.partitions, ("all", "powers_of_two"), "partitions")
        if self.machine_speeds is not None:
            speeds = _all_positive(self.machine_speeds, "machine_speeds")
            if len(speeds) != self.machines:
                raise InvalidInputError(
                    "machine_speeds", f"expected one a machine ({self.machines}), got {len(speeds)}"
                )
            object.__setattr__(self, "machine_speeds", speeds)
        self._check_layers()
        if not isinstance(self.constants, Constants):
            raise InvalidInputError("constants", f"expected Constants, got {shown(self.constants)}")
        if len(self.constants.latency_ns) < self.threads:
            raise InvalidInputError(
                "constants.latency_ns",
                f"expected a value for each of up to {self.threads} threads, "
                f"got {len(self.constants.latency_ns)}",
            )
        if not isinstance(self.fixed, Sequence):
            raise InvalidInputError("fixed", f"expected an array, got {shown(self.fixed)}")
        object.__setattr__(self, "fixed", tuple(self.fixed))
        if len(self.fixed) > MAX_FIXED:
            raise InvalidInputError(
                "fixed", f"expected at most {MAX_FIXED} elements, got {len(self.fixed)}"
            )
        for place, fixed in enumerate(self.fixed):
            self._check_fixed(fixed, f"fixed[{place}]")

    def _check_layers(self) -> None:
        try:
            layers = tuple(self.layers)
        except TypeError:
            raise InvalidInputError(
                "layers", f"expected an array, got {shown(self.layers)}"
            ) from None
        if not 1 <= len(layers) <= MAX_LAYERS:
            raise InvalidInputError(
                "layers", f"expected 1 to {MAX_LAYERS} elements, got {len(layers)}"
            )
        for place, layer in enumerate(layers):
            if not isinstance(layer, NeuronLayer):
                raise InvalidInputError(
                    f"layers[{place}]", f"expected a NeuronLayer, got {shown(layer)}"
                )
        object.__setattr__(self, "layers", layers)
        assert self.fields is not None

    @cached_property
    def fields(self) -> tuple[Fields, ...]:
        """Connections of layers l and l+1."""
        # Deep networks repeat their layers.
        known: dict[tuple[NeuronLayer, NeuronLayer], Fields] = {}
        connections = []
        for place in range(1, len(self.layers)):
            pair = (self.layers[place - 1], self.layers[place])
            key = (replace(pair[0], name=""), replace(pair[1], name=""))
            if key not in known:
                with inside(f"layers[{place}]"):
                    known[key] = fields(*pair)
            connections.append(known[key])
        return tuple(connections)

    @cached_property
    def rates(self) -> tuple[Rates, ...]:
        """Times of the operations of each layer, measured or from the constants."""
        muladd, nothing = self.constants.muladd_ns, Fraction(0)
        functions = self.constants.activation_ns, self.constants.error_ns
        rates = []
        backward = muladd  # of the connections into the next layer
        for place, layer in reversed(list(enumerate(self.layers))):
            if layer.forward_ns is None or layer.backward_ns is None:
                rates.append(Rates(muladd, muladd, backward, *functions))
                backward = muladd
                continue
            forward = layer.forward_ns / layer.connections
            each = layer.backward_ns / layer.connections
            # Error terms for the layer before and the update do equal work; some layers do only
            # one.
            both = bool(place and layer.weights)
            update = each / 2 if both else nothing if place else each
            rates.append(Rates(forward, update, backward, nothing, nothing))
            backward = each - update
        return tuple(reversed(rates))

    @property
    def threads(self) -> int:
        """Most threads of a layer: cores with a known interference."""
        return min(self.cores, len(self.constants.interference))

    @property
    def uniform(self) -> bool:
        """Whether all machines are equal."""
        return self.machine_speeds is None or len(set(self.machine_speeds)) == 1

    def _check_fixed(self, fixed: Fixed, path: str) -> None:
        if not isinstance(fixed, Fixed):
            raise InvalidInputError(path, f"expected a Fixed, got {shown(fixed)}")
        for field in ("parameter_servers", "replicas", "workers_per_replica"):
            set_integer(fixed, field, 1, MAX_MACHINES, f"{path}.{field}")
        used = fixed.parameter_servers + fixed.replicas * fixed.workers_per_replica
        if used > self.machines:
            raise InvalidInputError(
                path,
                "parameter_servers + replicas x workers_per_replica: expected at most machines "
                f"({self.machines}), got {used}",
            )
        if fixed.layers is None:
            return
        if len(fixed.layers) != len(self.layers):
            raise InvalidInputError(
                f"{path}.layers",
                f"expected as many as the network has ({len(self.layers)}), "
                f"got {len(fixed.layers)}",
            )
        for place, (choice, layer) in enumerate(zip(fixed.layers, self.layers, strict=True)):
            here = f"{path}.layers[{place}]"
            check_choice(choice, layer, fixed.workers_per_replica, self.threads, here)


def scaled(problem: Problem, constant: str, factor: Fraction) -> Problem:
    """Return the problem with one constant scaled.

    InvalidInputError if the value is too large, or has too many decimals.
    """
    constants = problem.constants
    if constant == "muladd_ns":  # measured times consist of multiply-adds, too
        problem = replace(problem, layers=[layer.times(factor) for layer in problem.layers])
    value: Any
    if constant == "latency_ns":
        value = [factor * latency for latency in constants.latency_ns]
    else:
        value = factor * getattr(constants, constant)
    return replace(problem, constants=replace(constants, **{constant: value}))


Choice = tuple[int, int]
"""Partitions and copies of a layer."""


def choices(problem: Problem, layer: NeuronLayer, workers: int) -> list[Choice]:
    """Return the choices of a layer on this number of workers, fewest segments first."""
    copies = problem.max_copies or workers
    pairs = [
        (p, r)
        for p in partitions_of(problem, layer, workers)
        for r in range(1, min(copies, workers // p) + 1)
    ]
    return sorted(pairs, key=lambda choice: (choice[0] * choice[1], choice[0]))


def partitions_of(problem: Problem, layer: NeuronLayer, workers: int) -> list[int]:
    """Return the possible numbers of partitions of a layer on this number of workers."""
    most = min(layer.cuts, workers)
    if problem.partitions == "all":
        return list(range(1, most + 1))
    return [1 << power for power in range(most.bit_length())]


# ---
# Preconditions of methods, checked with the same messages everywhere.


def refuse_fixed(problem: Problem, method: str) -> None:
    """Raise NotApplicableError if configurations are fixed: the method only searches."""
    if problem.fixed:
        raise NotApplicableError("fixed", f"{method} prices no given configuration; use 'auto'")


DEPENDS = (
    "takes machines that are all alike: where they differ, time depends on which ones are in use"
)
"""Why studies over numbers of machines need equal machines."""


def refuse_different(
    problem: Problem, what: str, why: str = "is for machines that are alike; use 'auto'"
) -> None:
    """Raise NotApplicableError if the machines differ."""
    if not problem.uniform:
        raise NotApplicableError("machine_speeds", f"{what} {why}")
