"""Yan's problem made from a profile and a cluster.

Problem: a profile lists convolutions, normalisations, branches and sums; the model is a chain of
layers with weights, connections and a way to be cut. Method: docs/yan.md, "How a profile becomes
layers". The model's sample is a batch of the profile, computed and sent at once with one start-up,
so the predicted time of an uncut layer is the measured one. A batch uses a whole machine, as
profiled.

Guarantee: sums of times, connections and weights are kept, and the chain is valid for the model. On
one machine without network the predicted epoch is exactly batches times the profile's computation.
Two approximations: rows that two bands both need inside a block are computed once, and statistics
of a normalisation are not exchanged. Assumptions beyond profile and cluster are listed.
Complexity: O(layers + ops). Source: own; the model is that of Yan et al., KDD'15.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from math import prod
from typing import Any, NamedTuple

from planner.families.collectives.prediction import with_measured_nics
from planner.families.yan.layers import MAX_SIDE, NeuronLayer, fields
from planner.families.yan.problem import MAX_MACHINES, Constants, Problem
from planner.families.yan.windows import Window, block_window, rows_read
from planner.model.clusters import Cluster
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.layers import Layer, merged, unique_names
from planner.model.profiles import NUMBER_BYTES, Profile
from planner.model.topologies import Rails
from planner.model.units import counted, format_ns
from planner.model.validation import integer, shown

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
    if not isinstance(cluster.topology, Rails):  # on rails each accelerator has one NIC
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
        "sent with it; nothing overlaps computation, and gradients reach servers for nothing"
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


NEEDED = ("kind", "output_shape", "connections", "weights")
"""Fields that the model needs of every layer, besides its times."""

WINDOW = ("kernel", "stride")
"""Fields that the model needs of layers that see a window."""

LIGHT = ("norm", "activation", "pool", "view")
"""Kinds without products."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """Layers that become one layer of the model, with their window of rows if they can be cut."""

    layers: tuple[Layer, ...]
    rows: int
    window: Window | None

    @property
    def light(self) -> bool:
        return all(layer.kind in LIGHT for layer in self.layers)

    @property
    def vector(self) -> bool:
        """Whether the unit is a fully connected layer, at most with operations on neurons."""
        full = [layer for layer in self.layers if layer.kind == "full"]
        others = [layer for layer in self.layers if layer.kind != "full"]
        return (
            len(full) == 1
            and prod((full[0].output_shape or (0,))[:-1]) == 1
            and all(layer.kind in LIGHT and not layer.weights for layer in others)
        )

    def followed(self, block: "_Unit") -> "_Unit | None":
        """Return this unit joined with the next block, or None if the block stays separate."""
        if not block.light:
            return None
        both = (*self.layers, *block.layers)
        if all(layer.kind == "view" for layer in block.layers):
            return _Unit(both, self.rows, self.window)
        if self.vector or self.window is None:
            pools = any(layer.kind == "pool" for layer in block.layers)
            return None if pools else _Unit(both, self.rows, self.window)
        window = block.window
        if window is None or block.rows != self.window.rows:
            return None
        if window.rows == 1 < block.rows:
            return None  # separate, so that the unit before can be cut
        return _Unit(both, self.rows, window.behind(self.window))


def neuron_layers(profile: Profile, computation: Fraction | int = 1) -> tuple[NeuronLayer, ...]:
    """Return the layers of Yan's model; their times are those of the profile's batch.

    `computation` scales all times. InvalidInputError, as in `refuse_incomplete`, if a field is
    missing.
    """
    refuse_incomplete(profile)
    units = _units(profile)
    layers: list[NeuronLayer] = []
    for place, unit in enumerate(units):
        after = units[place + 1] if place + 1 < len(units) else None
        before = layers[-1] if layers else None
        layers.append(_neuron_layer(unit, before, after, Fraction(computation)))
    names = unique_names(layer.name for layer in layers)
    return tuple(replace(layer, name=name) for layer, name in zip(layers, names, strict=True))


def refuse_incomplete(profile: Profile) -> None:
    """Raise InvalidInputError at the first field that the model needs and the profile lacks."""
    if profile.batch_size is None:
        raise InvalidInputError(
            "batch_size",
            "missing: planner profile and planner import take --batch-size; a factory of a model "
            "with its own inputs takes batch_size",
        )
    if not profile.layers:
        raise InvalidInputError("layers", "missing: Yan's model is of layers, not of a graph alone")
    for place, layer in enumerate(profile.layers):
        window = WINDOW if layer.kind in ("conv", "pool") else ()
        for field in (*NEEDED, *window):
            if getattr(layer, field) is None:
                raise InvalidInputError(
                    f"layers[{place}].{field}",
                    f"missing of layer {shown(layer.name)}, and Yan's model needs it: planner "
                    "profile records it of a torch model, planner import works it out of shapes "
                    "and the right --batch-size; else write it into the profile",
                )


def _units(profile: Profile) -> list[_Unit]:
    names = [f"{name}/forward" for name in unique_names(layer.name for layer in profile.layers)]
    keys = [
        (layer.block, place if layer.block is None else -1)
        for place, layer in enumerate(profile.layers)
    ]
    units: list[_Unit] = []
    for _, group in groupby(range(len(names)), key=keys.__getitem__):
        members = {names[place]: profile.layers[place] for place in group}
        layers = tuple(members.values())
        before = units[-1] if units else None
        passed = None if before is None or before.window is None else before.window.rows
        rows = rows_read(layers[0], passed)
        block = _Unit(layers, rows, block_window(members, profile.graph, rows))
        together = None if before is None else before.followed(block)
        if together is None:
            units.append(block)
        else:
            units[-1] = together
    return units


def _neuron_layer(
    unit: _Unit, before: NeuronLayer | None, after: _Unit | None, computation: Fraction
) -> NeuronLayer:
    """Return a unit as a layer of the model: fully connected, cut into bands, or not cut."""
    known = [layer for layer in unit.layers if layer.output_shape is not None]
    read = None
    # an embedding reads the model's input
    if after is not None and after.layers[0].kind != "embedding":
        read = after.layers[0].input_shape
    shape = read or known[-1].output_shape
    assert shape is not None
    passed, whole = prod(shape), merged(list(unit.layers))
    common: dict[str, Any] = {
        "name": whole.name or unit.layers[0].name,
        "connections": max(1, sum(layer.connections or 0 for layer in unit.layers)),
        "weights": sum(layer.weights or 0 for layer in unit.layers),
        "forward_ns": computation * sum(layer.forward_ns for layer in unit.layers),
        "backward_ns": computation * sum(layer.backward_ns for layer in unit.layers),
    }
    choices: list[dict[str, Any]] = []
    if unit.vector:
        choices.append({"kind": "full", "neurons": passed})
    window = unit.window
    if window is not None and window.rows <= MAX_SIDE and passed % window.rows == 0:
        kernel, fits = window.high - window.low + 1, before is None or before.units == unit.rows
        if fits and max(kernel, window.step) <= MAX_SIDE:
            sides = _sides(shape, window.rows)
            choices.append({"kernel": kernel, "stride": window.step, "shape": sides})
    rows = rows_read(after.layers[0], None) if after else 1
    if rows > MAX_SIDE or passed % rows:
        rows = 1
    choices.append({"shape": _sides(shape, rows)})
    for choice in choices:
        try:
            layer = NeuronLayer(**{"kind": "block", "neurons": passed, **common, **choice})
            if before is not None:
                fields(before, layer)
        except InvalidInputError:
            if choice is choices[-1]:
                raise
            continue
        return layer
    raise AssertionError


def _sides(shape: Sequence[int], rows: int) -> tuple[int, int, int]:
    columns = shape[2] if len(shape) == 3 and shape[1] == rows else 1
    return prod(shape) // (rows * columns), rows, columns
