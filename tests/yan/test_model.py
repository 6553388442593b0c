"""The performance model against the neuron-by-neuron oracle, and the canonical mapping."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from math import gcd
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.yan.configuration import Configuration, LayerChoice, canonical_mapping
from planner.families.yan.layers import NeuronLayer
from planner.families.yan.model import Estimate, estimate
from planner.families.yan.problem import Choice, Problem
from planner.families.yan.segments import check, server_bytes, worker_bytes
from planner.model.errors import BrokenConstraintError, InvalidPlanError
from tests.present import present
from tests.yan import neuron_oracle, yan_strategies
from tests.yan.yan_strategies import alike, any_configurations, configurations, mapped, problems


def phases(found: Estimate) -> list[tuple[Fraction, Fraction, Fraction, Fraction]]:
    """Times of each layer: forward, backward, update, reading."""
    return [
        (
            layer.forward_computation + layer.forward_communication,
            layer.backward_computation + layer.backward_communication,
            layer.weight_update,
            layer.weight_reading,
        )
        for layer in found.layers
    ]


any_problems = st.one_of(
    problems(max_machines=10),
    problems(min_machines=6, max_machines=10, min_layers=2),
    problems(speeds=True, max_machines=8),
)


@settings(max_examples=450)
@given(any_problems, st.sampled_from([configurations, any_configurations]), st.data())
def test_configurations_cost_what_the_oracle_says(
    problem: Problem,
    drawn: Callable[[Problem], st.SearchStrategy[Configuration]],
    data: st.DataObject,
) -> None:
    configuration = data.draw(drawn(problem))
    found = estimate(problem, configuration)
    assert phases(found) == neuron_oracle.price(problem, configuration)
    assert found.epoch == neuron_oracle.epoch(problem, configuration)
    assert found.epoch_ns - 1 < found.epoch <= found.epoch_ns
    assert found.computation == sum(
        layer.forward_computation + layer.backward_computation + layer.weight_update
        for layer in found.layers
    )


@given(problems(max_machines=8, memory=True), st.data())
@settings(max_examples=250)
def test_memory_is_what_the_oracle_says_and_kept_or_named_as_broken(
    problem: Problem, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(problem.layers) - 1))
    partitions = data.draw(st.integers(1, problem.layers[place].cuts))
    asked = problem, place, partitions, data.draw(st.integers(1, problem.threads))
    assert worker_bytes(*asked) == neuron_oracle.segment_bytes(*asked)
    servers = data.draw(st.integers(1, problem.machines))
    assert server_bytes(problem, servers) == neuron_oracle.server_bytes(problem, servers)
    configuration, memory = data.draw(configurations(problem)), present(problem.memory_bytes)
    on_server = neuron_oracle.server_bytes(problem, configuration.parameter_servers)
    on_worker = neuron_oracle.worker_bytes(problem, configuration.layers)
    if max(on_server, on_worker) <= memory:
        check(problem, configuration)
        return
    with pytest.raises(BrokenConstraintError) as caught:
        check(problem, configuration)
    assert caught.value.binding == "memory_bytes"
    assert caught.value.path == ("parameter_servers" if on_server > memory else "layers")
    assert str(on_server if on_server > memory else on_worker) in caught.value.message


# By hand, and what is refused.


BITS = {"bits_per_activation": 8, "bits_per_weight": 16}  # each takes a nanosecond
TIMES: dict[str, Any] = {"activation_ns": 10, "error_ns": 100, "latency_ns": (1000, 2000)}
CONSTANTS = alike(1, **TIMES, **BITS, interference=(1, 1.5))
LAYERS = [NeuronLayer("a", "full", 4, 12, 16), NeuronLayer("b", "full", 2, 8, 8)]
PROBLEM = Problem(8, 2, LAYERS, CONSTANTS, samples=12, read_every=3)
CHOSEN = LayerChoice(2, 1, 1, ((0,), (1,))), LayerChoice(2, 2, 2, ((0, 1), (2, 3)))
CONFIGURATION = Configuration(2, 1, 4, CHOSEN)


def test_an_example_by_hand() -> None:
    first, second = map(list, phases(estimate(PROBLEM, CONFIGURATION)))
    # a: segments of 2 neurons, 6 connections; each has 2 x 2 into b. Worker 0 holds neuron 0 of b
    # for even samples, and lacks both for odd ones: 1.5 error terms on average.
    assert first == [
        12 * (6 + 20),
        12 * (4 + 200 + 1000 + Fraction(3, 2) * 8),
        12 * 6,
        4 * (1000 + 16 * 16 * (Fraction(1, 2) + 1) / 2),
    ]
    # b: segments of 1 neuron with 4 connections; workers 2 and 3 lack all four activations. Two
    # threads share the NIC, two copies the samples.
    assert second == [
        3 * (Fraction(3, 2) * (4 + 10) + 2000 + 4 * 8 * 2),
        3 * Fraction(3, 2) * 100,
        3 * Fraction(3, 2) * 4,
        4 * (2000 + 2 * 8 * 16 * 2 * Fraction(3, 4)),
    ]


def test_copies_of_other_samples_are_of_no_use() -> None:
    """Either worker holds the copies for odd samples of one layer, for even ones of the other."""
    layers = LayerChoice(1, 1, 2, ((0, 1),)), LayerChoice(1, 1, 2, ((1, 0),))
    crossed = Configuration(1, 1, 2, layers)
    assert phases(estimate(PROBLEM, crossed)) == neuron_oracle.price(PROBLEM, crossed)


OTHER = replace(PROBLEM, machine_speeds=[Fraction(1)] * 7 + [Fraction(2)])


@pytest.mark.parametrize(
    ("path", "message", "changes"),
    [
        ("parameter_servers", "integer >= 1, got 0", {"parameter_servers": 0}),
        ("replicas", "integer >= 1, got true", {"replicas": True}),
        ("workers_per_replica", "integer <= ", {"workers_per_replica": 10**400}),
        ("", "at most 8 machines, got 10", {"replicas": 2}),
        ("layers", "expected 2, got 0", {"layers": ()}),
        ("machines", "expected 6, got 5", {"machines": (0, 1, 2, 3, 4)}),
        ("machines", "different ones of 0 … 7", {"machines": (0, 1, 2, 3, 4, 4)}),
        ("machines", "different ones of 0 … 7", {"machines": (0, 1, 2, 3, 4, 8)}),
        ("machines", "missing: these machines differ", {}),
        *(
            (f"layers[1]{path}", message, {"layers": (CHOSEN[0], replace(CHOSEN[1], **changes))})
            for path, message, changes in (
                (".partitions", "integer >= 1, got 0", {"partitions": 0}),
                (".partitions", "'b' has 2 neurons, expected at most as many", {"partitions": 3}),
                (".threads", "integer >= 1, got 0", {"threads": 0}),
                (".threads", "at most 2 (cores, and entries of interf", {"threads": 3}),
                (".copies", "integer >= 1, got -1", {"copies": -1}),
                ("", "partitions x copies <= workers_per_replica (4), got 6", {"copies": 3}),
                (".mapping", "missing", {"mapping": ()}),
                (".mapping", "2 arrays of 2 workers", {"mapping": ((0, 1), (2,))}),
                (".mapping[1][0]", "worker 1 given twice", {"mapping": ((0, 1), (1, 2))}),
                (".mapping[1][1]", "integer <= 3, got 4", {"mapping": ((0, 1), (2, 4))}),
                (".mapping[0][0]", "integer >= 0, got -1", {"mapping": ((-1, 1), (2, 3))}),
            )
        ),
    ],
)
def test_broken_configurations(path: str, message: str, changes: dict[str, Any]) -> None:
    check(PROBLEM, CONFIGURATION)
    check(OTHER, replace(CONFIGURATION, machines=(7, 6, 5, 4, 3, 2)))
    for price in (check, estimate):
        with pytest.raises(InvalidPlanError) as caught:
            price(PROBLEM if changes else OTHER, replace(CONFIGURATION, **changes))
        assert caught.value.path == path
        assert message in caught.value.message
        binding = "machines" if "at most 8 machines" in message else None
        assert getattr(caught.value, "binding", None) == binding


def test_thousands_of_bands() -> None:
    """A network as tall as they come, a worker for every 32nd row."""
    tall = NeuronLayer("t", "conv", 2**16, 3 * 2**16, 3 * 3, (1, 2**16, 1), 3)
    problem, count = replace(PROBLEM, machines=2**12, layers=[tall, tall]), 2**11
    assert worker_bytes(problem, 1, count, 1) == 2 * 9 * 2 + (32 + 2) + 2 * 32
    layers = mapped([(count, 1)] * 2, count)
    first, second = phases(estimate(problem, Configuration(1, 1, count, layers)))
    assert second[0] == 12 * (32 * 3 + 32 * 10 + 1000 + 2 * 8)  # a row from either neighbour
    assert first[2] == 12 * 32 * 3


# The canonical mapping.


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[Choice], int]:
    """Choices of a few layers, and how many workers there are."""
    workers = draw(st.integers(1, 14))
    chosen = []
    for _ in range(draw(st.integers(1, 5))):
        partitions = draw(st.integers(1, workers))
        chosen.append((partitions, draw(st.integers(1, workers // partitions))))
    return chosen, workers


Shared = set[tuple[int, int, int, int]]
Mapping = Sequence[Sequence[int]]


def shared(first: Mapping, second: Mapping) -> Shared:
    """Segments of two layers that share a worker: partition and copy of each."""
    where = {worker: (p, r) for p, row in enumerate(first) for r, worker in enumerate(row)}
    return {
        (*where[worker], p, r)
        for p, row in enumerate(second)
        for r, worker in enumerate(row)
        if worker in where
    }


@given(chains(), chains(), st.integers(0, 5))
@settings(max_examples=300)
def test_bands_that_overlap_share_workers_whatever_else_there_is(
    chain: tuple[list[Choice], int], history: tuple[list[Choice], int], free: int
) -> None:
    choices, workers = chain
    mappings = canonical_mapping(choices, workers)
    for (partitions, copies), mapping in zip(choices, mappings, strict=True):
        placed = {worker for row in mapping for worker in row}
        assert [len(row) for row in mapping] == [copies] * partitions
        assert len(placed) == partitions * copies
        assert placed <= set(range(workers))
    longer = canonical_mapping([*history[0], *choices], max(workers, history[1]) + free)
    longer = longer[len(history[0]) :]
    for place in range(1, len(choices)):
        pair = shared(mappings[place - 1], mappings[place])
        assert pair == shared(longer[place - 1], longer[place])
        (before, r), (behind, s) = choices[place - 1], choices[place]
        # As many as can be, and each of them saves something: the two copies share samples.
        assert len(pair) == min(before * r, behind * s)
        assert all((one[3] - one[1]) % gcd(r, s) == 0 for one in pair)
        for p, _, q, _ in pair:  # as shares of a layer: partition p of P is [p / P, (p+1) / P)
            assert p * behind < (q + 1) * before
            assert q * before < (p + 1) * behind
    # Layers that are cut alike stay where they are.
    twice = canonical_mapping([choice for choice in choices for _ in range(2)], workers)
    assert twice[::2] == twice[1::2]


Fetched = tuple[Fraction, Fraction]


def fetched(layers: Sequence[NeuronLayer], choices: Sequence[LayerChoice]) -> Fetched:
    """Most activations, and most error terms, that a segment receives."""
    first, second = neuron_oracle.segments(layers, choices)
    return (
        max(neuron_oracle.mean(one.activations) for one in second.values()),
        max(neuron_oracle.mean(one.errors) for one in first.values()),
    )


@given(
    yan_strategies.networks(min_layers=2, max_layers=3).filter(lambda one: one[-1].kind == "full"),
    st.data(),
)
@settings(max_examples=120)
def test_no_mapping_fetches_less_before_a_fully_connected_layer(
    chain: tuple[NeuronLayer, ...], data: st.DataObject
) -> None:
    """But for one unit where partitions are unequal: the smaller ones may be matched."""
    layers = layer, following = chain[-2:]
    chosen = []
    for one in layers:
        partitions = data.draw(st.integers(1, min(5, one.cuts)))
        chosen.append((partitions, data.draw(st.integers(1, 5 // partitions))))
    (p, r), (q, s) = chosen
    workers = max(p * r, q * s)
    found = fetched(layers, mapped(chosen, workers))
    # All mappings of the two layers, but for the names of workers.
    fixed = LayerChoice(p, 1, r, tuple(tuple(range(at * r, at * r + r)) for at in range(p)))
    best = []
    for order in permutations(range(workers), q * s):
        mapping = tuple(order[at * s : at * s + s] for at in range(q))
        best.append(fetched(layers, [fixed, LayerChoice(q, 1, s, mapping)]))
    classes = gcd(r, s)
    unit = Fraction(layer.width * classes, r) * (layer.units % p != 0)
    neuron = Fraction(classes, s) * (following.units % q != 0)
    assert found[0] <= min(one[0] for one in best) + unit
    assert found[1] <= min(one[1] for one in best) + neuron


def test_mappings_by_hand() -> None:
    # Copies 0 and 2 of the later layer see even samples, and so does copy 0 of the earlier one.
    assert canonical_mapping([(2, 2), (1, 4)], 4) == (((0, 1), (2, 3)), ((0, 1, 2, 3),))
    # Two bands over four earlier ones share workers with the first and the third.
    assert canonical_mapping([(4, 1), (2, 1)], 4)[1] == ((0,), (2,))
    assert canonical_mapping([(2, 1), (4, 1)], 4)[1] == ((0,), (2,), (1,), (3,))
    # Four segments after one on worker 0: one stays there, the others follow in order.
    three = canonical_mapping([(1, 1), (2, 2), (1, 1)], 6)
    assert three == (((0,),), ((0, 1), (2, 3)), ((0,),))
