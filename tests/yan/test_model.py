"""The performance model against the neuron-by-neuron oracle, and what must hold of any model."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.yan.model import Estimate, estimate
from planner.families.yan.segments import check, server_bytes, worker_bytes
from planner.model.errors import BrokenConstraintError
from tests.yan import neuron_oracle
from tests.yan.yan_strategies import any_configurations, configurations, problems


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


@given(st.data())
@settings(max_examples=150)
def test_canonical_configurations_cost_what_the_oracle_says(data: st.DataObject) -> None:
    problem = data.draw(problems(max_machines=10))
    configuration = data.draw(configurations(problem))
    found = estimate(problem, configuration)
    expected = neuron_oracle.price(problem, configuration)
    assert phases(found) == expected.layers
    assert found.epoch == expected.epoch
    assert found.epoch_ns - 1 < expected.epoch <= found.epoch_ns
    assert found.computation == sum(
        layer.forward_computation + layer.backward_computation + layer.weight_update
        for layer in found.layers
    )


@given(st.data())
@settings(max_examples=150)
def test_any_mapping_costs_what_the_oracle_says(data: st.DataObject) -> None:
    problem = data.draw(problems(min_machines=6, max_machines=10, min_layers=2))
    configuration = data.draw(any_configurations(problem))
    assert phases(estimate(problem, configuration)) == (
        neuron_oracle.price(problem, configuration).layers
    )


@given(st.data())
@settings(max_examples=150)
def test_different_machines_cost_what_the_oracle_says(data: st.DataObject) -> None:
    problem = data.draw(problems(speeds=True, max_machines=8))
    configuration = data.draw(any_configurations(problem))
    assert estimate(problem, configuration).epoch == (
        neuron_oracle.price(problem, configuration).epoch
    )


@given(st.data())
@settings(max_examples=150)
def test_memory_is_what_the_oracle_says(data: st.DataObject) -> None:
    problem = data.draw(problems(max_machines=8))
    place = data.draw(st.integers(0, len(problem.layers) - 1))
    partitions = data.draw(st.integers(1, problem.layers[place].cuts))
    threads = data.draw(st.integers(1, problem.threads))
    assert worker_bytes(problem, place, partitions, threads) == (
        neuron_oracle.segment_bytes(problem, place, partitions, threads)
    )
    servers = data.draw(st.integers(1, problem.machines))
    assert server_bytes(problem, servers) == neuron_oracle.server_bytes(problem, servers)


@given(st.data())
def test_memory_is_kept_or_named_as_broken(data: st.DataObject) -> None:
    problem = data.draw(problems(memory=True))
    configuration = data.draw(configurations(problem))
    memory = problem.memory_bytes
    assert memory is not None
    on_server = neuron_oracle.server_bytes(problem, configuration.parameter_servers)
    on_worker = sum(
        neuron_oracle.segment_bytes(problem, place, choice.partitions, choice.threads)
        for place, choice in enumerate(configuration.layers)
    )
    if max(on_server, on_worker) <= memory:
        check(problem, configuration)
        return
    with pytest.raises(BrokenConstraintError) as caught:
        check(problem, configuration)
    assert caught.value.binding == "memory_bytes"
    assert caught.value.path == ("parameter_servers" if on_server > memory else "layers")
    assert str(on_server if on_server > memory else on_worker) in caught.value.message
