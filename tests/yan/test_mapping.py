"""The canonical mapping: valid, pairwise, and as good as any before a fully connected layer."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, permutations
from math import gcd

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.yan.configuration import (
    LayerChoice,
    LayerMapping,
    canonical_mapping,
)
from planner.families.yan.layers import NeuronLayer
from tests.yan import neuron_oracle
from tests.yan.yan_strategies import networks

Choice = tuple[int, int]


@st.composite
def chains(draw: st.DrawFn, *, max_workers: int = 12) -> tuple[list[Choice], int]:
    """Choices of a few layers, and how many workers there are."""
    workers = draw(st.integers(1, max_workers))
    chosen = []
    for _ in range(draw(st.integers(1, 5))):
        partitions = draw(st.integers(1, workers))
        chosen.append((partitions, draw(st.integers(1, workers // partitions))))
    return chosen, workers


def placed(mapping: LayerMapping) -> list[int]:
    return [worker for row in mapping for worker in row]


@given(chains())
@settings(max_examples=300)
def test_segments_of_a_layer_have_workers_of_their_own(chain: tuple[list[Choice], int]) -> None:
    choices, workers = chain
    mappings = canonical_mapping(choices, workers)
    assert len(mappings) == len(choices)
    for (partitions, copies), mapping in zip(choices, mappings, strict=True):
        assert [len(row) for row in mapping] == [copies] * partitions
        assert len(set(placed(mapping))) == partitions * copies
        assert set(placed(mapping)) <= set(range(workers))


Shared = set[tuple[int, int, int, int]]


def shared(first: LayerMapping, second: LayerMapping) -> Shared:
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
def test_who_shares_a_worker_depends_on_two_choices_alone(
    chain: tuple[list[Choice], int], history: tuple[list[Choice], int], free: int
) -> None:
    choices, workers = chain
    mappings = canonical_mapping(choices, workers)
    longer = canonical_mapping([*history[0], *choices], max(workers, history[1]) + free)
    longer = longer[len(history[0]) :]
    for place in range(1, len(choices)):
        pair = shared(mappings[place - 1], mappings[place])
        assert pair == shared(longer[place - 1], longer[place])
        (p, r), (q, s) = choices[place - 1], choices[place]
        # As many as can be, and each of them saves something: the two copies share samples.
        assert len(pair) == min(p * r, q * s)
        assert all((one[3] - one[1]) % gcd(r, s) == 0 for one in pair)


@given(chains())
def test_layers_cut_alike_stay_where_they_are(chain: tuple[list[Choice], int]) -> None:
    choices, workers = chain
    twice = [choice for choice in choices for _ in range(2)]
    mappings = canonical_mapping(twice, workers)
    assert mappings[::2] == mappings[1::2]


Fetched = tuple[Fraction, Fraction]


def fetched(layers: tuple[NeuronLayer, NeuronLayer], choices: list[LayerChoice]) -> Fetched:
    """Most activations, and most error terms, that a segment receives."""
    first, second = neuron_oracle.segments(layers, choices)
    return (
        max(neuron_oracle.mean(one.activations) for one in second.values()),
        max(neuron_oracle.mean(one.errors) for one in first.values()),
    )


def every_mapping(first: Choice, second: Choice, workers: int) -> Iterator[list[LayerChoice]]:
    """All mappings of two layers, but for the names of workers."""
    (p, r), (q, s) = first, second
    fixed = LayerChoice(p, 1, r, tuple(tuple(range(at * r, at * r + r)) for at in range(p)))
    for order in permutations(range(workers), q * s):
        mapping = tuple(order[at * s : at * s + s] for at in range(q))
        yield [fixed, LayerChoice(q, 1, s, mapping)]


def canonical(first: Choice, second: Choice, workers: int) -> list[LayerChoice]:
    mappings = canonical_mapping([first, second], workers)
    return [LayerChoice(len(mapping), 1, len(mapping[0]), mapping) for mapping in mappings]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[NeuronLayer, NeuronLayer, Choice, Choice]:
    """Two layers, the later one fully connected, and how they are cut on up to five workers."""
    chain = draw(networks(min_layers=2, max_layers=3).filter(lambda one: one[-1].kind == "full"))
    chosen = []
    for layer in chain[-2:]:
        partitions = draw(st.integers(1, min(5, layer.cuts)))
        chosen.append((partitions, draw(st.integers(1, 5 // partitions))))
    return chain[-2], chain[-1], chosen[0], chosen[1]


def unequal(layer: NeuronLayer, partitions: int) -> bool:
    return layer.units % partitions != 0


@given(pairs())
@settings(max_examples=120)
def test_no_mapping_fetches_less_before_a_fully_connected_layer(
    pair: tuple[NeuronLayer, NeuronLayer, Choice, Choice],
) -> None:
    """But for one unit where partitions are unequal: the smaller ones may be matched."""
    layer, following, first, second = pair
    workers = max(first[0] * first[1], second[0] * second[1])
    found = fetched((layer, following), canonical(first, second, workers))
    best = [
        fetched((layer, following), choices) for choices in every_mapping(first, second, workers)
    ]
    classes = gcd(first[1], second[1])
    unit = Fraction(layer.width * classes, first[1]) * unequal(layer, first[0])
    neuron = Fraction(classes, second[1]) * unequal(following, second[0])
    assert found[0] <= min(one[0] for one in best) + unit
    assert found[1] <= min(one[1] for one in best) + neuron


@given(chains(max_workers=16))
@settings(max_examples=300)
def test_matched_bands_overlap(chain: tuple[list[Choice], int]) -> None:
    """As shares of a layer: partition p of P is [p / P, (p+1) / P)."""
    mappings = canonical_mapping(*chain)
    for before, mapping in pairwise(mappings):
        for p, _, q, _ in shared(before, mapping):
            assert p * len(mapping) < (q + 1) * len(before)
            assert q * len(before) < (p + 1) * len(mapping)


def test_matched_segments_by_hand() -> None:
    """Copies 0 and 2 of the later layer see even samples, and so does copy 0 of the earlier one."""
    first, second = canonical_mapping([(2, 2), (1, 4)], 4)
    where = {worker: (p, r) for p, row in enumerate(first) for r, worker in enumerate(row)}
    assert [where[worker] for worker in second[0]] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_the_spread_is_even() -> None:
    """Two bands over four earlier ones share workers with the first and the third."""
    first, second = canonical_mapping([(4, 1), (2, 1)], 4)
    assert [row[0] for row in second] == [first[0][0], first[2][0]]
    first, second = canonical_mapping([(2, 1), (4, 1)], 4)
    assert [second[0][0], second[2][0]] == [first[0][0], first[1][0]]


def test_the_first_free_workers_come_first() -> None:
    """Four segments after one on worker 0: one stays there, the others follow in order."""
    first, second, third = canonical_mapping([(1, 1), (2, 2), (1, 1)], 6)
    assert first == ((0,),)
    assert second == ((0, 1), (2, 3))
    assert third == ((0,),)
