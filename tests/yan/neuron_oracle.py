"""Prices a configuration neuron by neuron, as slow and as plain as the definitions.

Every neuron, every pooled unit passed on and every connection is listed; samples are sent one by
one, and what a worker lacks is counted by sets. Nothing comes from `planner.yan`.

A neuron is (channel, row, column), and so is a pooled unit; neuron i of a fully connected layer is
(0, i, 0). A band of a convolution fetches whole rows: those from the first to the last that a
connection of its leads to. A convolution's connections are spread evenly over its rows, and those
into a row of the layer before in proportion to those listed (which leave out padding and list every
input channel); both are rounded down from the first row on.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise, product
from math import lcm
from typing import Any

Unit = tuple[int, int, int]
Pairs = tuple[tuple[Unit, Unit], ...]


def dealt(count: int, parts: int) -> list[int]:
    """The part of each of `count` things in nearly equal ranges, larger ranges first."""
    sizes = [0] * parts
    for thing in range(count):
        sizes[thing % parts] += 1
    return [part for part, size in enumerate(sizes) for _ in range(size)]


@lru_cache(maxsize=256)
def neurons(layer: Any) -> tuple[Unit, ...]:
    if layer.kind == "full":
        return tuple((0, i, 0) for i in range(layer.neurons))
    channels, rows, columns = layer.shape
    return tuple((c, y, x) for c in range(channels) for y in range(rows) for x in range(columns))


@lru_cache(maxsize=256)
def units(layer: Any) -> tuple[Unit, ...]:
    """What is passed on: one unit for each whole pooling window."""
    if layer.kind == "full":
        return neurons(layer)
    corner = layer.pool - 1  # of a window, relative to its first neuron
    listed = set(neurons(layer))
    return tuple(
        (c, y // layer.pool, x // layer.pool)
        for c, y, x in neurons(layer)
        if y % layer.pool == x % layer.pool == 0 and (c, y + corner, x + corner) in listed
    )


def unit_parts(layer: Any, partitions: int) -> dict[Unit, int]:
    """The partition of every unit passed on."""
    rows = dealt(1 + max(row for _, row, _ in units(layer)), partitions)
    return {unit: rows[unit[1]] for unit in units(layer)}


def neuron_parts(layer: Any, partitions: int) -> dict[Unit, int]:
    """The partition of every neuron: that of its pooling window, or the last."""
    rows = dealt(1 + max(row for _, row, _ in units(layer)), partitions)
    return {unit: rows[min(unit[1] // layer.pool, len(rows) - 1)] for unit in neurons(layer)}


@lru_cache(maxsize=256)
def connections(before: Any, layer: Any) -> Pairs:
    """Every connection from a unit of `before` to a neuron of `layer`."""
    if layer.kernel is None:
        return tuple((unit, neuron) for unit in units(before) for neuron in neurons(layer))
    there = set(units(before))
    channels, rows, columns = (1 + max(unit[axis] for unit in there) for axis in range(3))
    offset = []  # of an odd padding the larger half comes first
    for given, passed in ((layer.shape[1], rows), (layer.shape[2], columns)):
        padding = (given - 1) * layer.stride + layer.kernel - passed
        offset.append((max(padding, 0) + 1) // 2)
    pairs = []
    for neuron in neurons(layer):
        top, left = (neuron[axis + 1] * layer.stride - offset[axis] for axis in range(2))
        seen = range(top, top + layer.kernel)
        if layer.kind == "block":  # its rows see whole rows
            pairs += [(unit, neuron) for unit in there if unit[1] in seen]
            continue
        window = product(range(channels), seen, range(left, left + layer.kernel))
        pairs += [(unit, neuron) for unit in window if unit in there]
    return tuple(pairs)


@dataclass
class Segment:
    """A segment: what it holds, and what it misses for each of its samples."""

    worker: int
    neurons: int
    weights: Fraction
    work: int
    outgoing: int
    activations: list[int] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)


def mean(counts: list[int]) -> Fraction:
    return Fraction(sum(counts), len(counts)) if counts else Fraction(0)


def needed_units(before: Any, layer: Any, partitions: int) -> list[set[Unit]]:
    """The units of the layer before that each partition needs: whole rows, first to last."""
    part = neuron_parts(layer, partitions)
    rows: list[set[int]] = [set() for _ in range(partitions)]
    for unit, neuron in connections(before, layer):
        rows[part[neuron]].add(unit[1])
    return [{unit for unit in units(before) if min(mine) <= unit[1] <= max(mine)} for mine in rows]


def wanted_neurons(layer: Any, after: Any, partitions: int) -> list[set[Unit]]:
    """The neurons of the layer after whose error terms each partition needs."""
    part = unit_parts(layer, partitions)
    found: list[set[Unit]] = [set() for _ in range(partitions)]
    for unit, neuron in connections(layer, after):
        found[part[unit]].add(neuron)
    return found


def shares(total: int, counts: list[int]) -> list[int]:
    """Whole shares of a total, in proportion to counts, rounded down from the first one on."""
    ends = [total * seen // sum(counts) for seen in accumulate(counts, initial=0)]
    return [end - start for start, end in pairwise(ends)]


def held(parts: dict[Unit, int], partitions: int) -> list[int]:
    """Number of neurons, or units, of each partition."""
    return [sum(1 for its in parts.values() if its == p) for p in range(partitions)]


def outgoing_shares(layer: Any, after: Any, partitions: int) -> list[int]:
    """Connections from each partition into the layer after."""
    part, counts = unit_parts(layer, partitions), [0] * partitions
    for unit, _ in connections(layer, after):
        counts[part[unit]] += 1
    return shares(after.connections, counts)


def halves(layers: Any, place: int) -> tuple[Fraction, Fraction]:
    """Of a measured layer the time to update it, and that to pass error terms back through it."""
    layer = layers[place]
    if place == 0:
        return layer.backward_ns, Fraction(0)
    if not layer.weights:
        return Fraction(0), layer.backward_ns
    return layer.backward_ns / 2, layer.backward_ns / 2


def computation(problem: Any, place: int, one: Any) -> tuple[Fraction, Fraction, Fraction]:
    """What a partition computes forward, backward and to update, on one thread."""
    layers, constants = problem.layers, problem.constants
    held, work, outgoing = one.neurons, one.work, one.outgoing
    layer, after = layers[place], layers[place + 1] if place + 1 < len(layers) else None
    forward = constants.muladd_ns * work + constants.activation_ns * held
    update = constants.muladd_ns * work
    backward = constants.error_ns * held
    if layer.forward_ns is not None:  # its share of what was measured
        share = Fraction(work, layer.connections)
        forward, update = layer.forward_ns * share, halves(layers, place)[0] * share
        backward = Fraction(0)
    if after is not None and after.forward_ns is not None:
        backward += halves(layers, place + 1)[1] * Fraction(outgoing, after.connections)
    else:
        backward += constants.muladd_ns * outgoing
    return forward, backward, update


def missed(choice: Any, part: dict[Unit, int], needed: set[Unit], sample: int, on: int) -> int:
    """Of what a worker needs of another layer, how much others hold, for one sample."""
    copy = sample % choice.copies
    return sum(choice.mapping[part[one]][copy] != on for one in needed)


def segments(layers: Any, choices: Any) -> list[dict[tuple[int, int], Segment]]:
    """Every segment of every layer by partition and copy, with all samples sent through."""
    found: list[dict[tuple[int, int], Segment]] = []
    for place, (layer, choice) in enumerate(zip(layers, choices, strict=True)):
        count = choice.partitions
        neurons = held(neuron_parts(layer, count), count)
        work = shares(layer.connections, neurons)
        after = layers[place + 1] if place + 1 < len(layers) else None
        outgoing = [0] * count if after is None else outgoing_shares(layer, after, count)
        weights = [Fraction(layer.weights)] * count
        if layer.kind == "full":
            weights = [Fraction(layer.weights, layer.neurons) * each for each in neurons]
        found.append(
            {
                (p, r): Segment(choice.mapping[p][r], neurons[p], weights[p], work[p], outgoing[p])
                for p in range(count)
                for r in range(choice.copies)
            }
        )
        others: list[tuple[str, Any, dict[Unit, int], list[set[Unit]]]] = []
        if place:
            before, other = layers[place - 1], choices[place - 1]
            part = unit_parts(before, other.partitions)
            others.append(("activations", other, part, needed_units(before, layer, count)))
        if after is not None:
            other = choices[place + 1]
            part = neuron_parts(after, other.partitions)
            others.append(("errors", other, part, wanted_neurons(layer, after, count)))
        for sample in range(lcm(*(one.copies for one in choices))):
            for p in range(count):
                mine = found[place][p, sample % choice.copies]
                for name, other, part, needed in others:
                    getattr(mine, name).append(missed(other, part, needed[p], sample, mine.worker))
    return found


def price(problem: Any, configuration: Any) -> list[tuple[Fraction, ...]]:
    """Times of each layer of the slowest replica: forward, backward, update, reading."""
    constants, choices = problem.constants, configuration.layers
    used = configuration.machines or tuple(range(configuration.machines_used))
    machine_speed = [(problem.machine_speeds or [Fraction(1)] * problem.machines)[m] for m in used]
    all_segments = segments(problem.layers, choices)
    replicas = []
    for replica in range(configuration.replicas):
        times: list[list[Fraction]] = []
        first = configuration.parameter_servers + replica * configuration.workers_per_replica
        for place, (choice, mine) in enumerate(zip(choices, all_segments, strict=True)):
            startup = constants.latency_ns[choice.threads - 1]
            each_bit = Fraction(choice.threads * 10**9) / constants.nic_bits_per_s
            found = []
            for one in mine.values():
                factor = constants.interference[choice.threads - 1]
                factor /= machine_speed[first + one.worker]
                phases = [factor * time for time in computation(problem, place, one)]
                for kind, missing in enumerate((mean(one.activations), mean(one.errors))):
                    if missing:
                        phases[kind] += startup + missing * constants.bits_per_activation * each_bit
                found.append(phases)
            at_once = choice.threads * choice.copies * configuration.replicas
            rounds = Fraction(problem.samples) / at_once
            times.append([rounds * max(phases[kind] for phases in found) for kind in range(3)])
        replicas.append(times)
    slowest = max(replicas, key=lambda times: sum(sum(layer) for layer in times))
    readings = Fraction(problem.samples, problem.read_every)
    priced: list[tuple[Fraction, ...]] = []
    for phases, choice, mine in zip(slowest, choices, all_segments, strict=True):
        bits = sum(one.weights for one in mine.values()) * constants.bits_per_weight
        startup = constants.latency_ns[choice.threads - 1] if bits else Fraction(0)  # nothing read
        each = bits / (constants.nic_bits_per_s / choice.threads) * 10**9
        sources = min(configuration.parameter_servers, configuration.workers_per_replica)
        least, most = startup + each / sources, startup + each * configuration.replicas
        read = {"min": least, "max": most, "mean": (least + most) / 2}[problem.read_model]
        priced.append((*phases, readings * read))
    return priced


def epoch(problem: Any, configuration: Any) -> Fraction:
    return sum((time for layer in price(problem, configuration) for time in layer), Fraction(0))


def bytes_up(bits: Fraction) -> int:
    return -int(-bits // 8)


def segment_bytes(problem: Any, place: int, partitions: int, threads: int) -> int:
    """Memory of the largest partition of a layer."""
    layers, constants = problem.layers, problem.constants
    layer = layers[place]
    largest = 0
    for p, neurons in enumerate(held(neuron_parts(layer, partitions), partitions)):
        weights, values = Fraction(layer.weights), 2 * neurons
        if layer.kind == "full":
            weights *= Fraction(neurons, layer.neurons)
        if place:
            values += len(needed_units(layers[place - 1], layer, partitions)[p])
        if place + 1 < len(layers):
            values += len(wanted_neurons(layer, layers[place + 1], partitions)[p])
        bits = 2 * weights * constants.bits_per_weight
        bits += threads * values * constants.bits_per_activation
        largest = max(largest, bytes_up(bits))
    return largest


def worker_bytes(problem: Any, choices: Any) -> int:
    """Memory of a worker that holds the largest partition of every layer."""
    return sum(
        segment_bytes(problem, place, choice.partitions, choice.threads)
        for place, choice in enumerate(choices)
    )


def server_bytes(problem: Any, servers: int) -> int:
    """Memory of a parameter server: weights and their updates, shared by all servers."""
    bits = sum(2 * layer.weights * problem.constants.bits_per_weight for layer in problem.layers)
    return bytes_up(Fraction(bits) / servers)
