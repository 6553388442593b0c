"""The performance model against the neuron-by-neuron oracle, and what must hold of any model."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.families.yan.model import Estimate, estimate
from planner.families.yan.problem import Constants, Problem
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


def with_model(problem: Problem, model: str) -> Problem:
    return replace(problem, read_model=model)  # type: ignore[arg-type]


def scaled(constants: Constants, factor: Fraction) -> Constants:
    """Everything takes `factor` times as long."""
    return replace(
        constants,
        muladd_ns=constants.muladd_ns * factor,
        activation_ns=constants.activation_ns * factor,
        error_ns=constants.error_ns * factor,
        latency_ns=[latency * factor for latency in constants.latency_ns],
        nic_bits_per_s=constants.nic_bits_per_s / factor,
    )


@given(st.data(), st.sampled_from([Fraction(1, 3), Fraction(7, 2), Fraction(1000)]))
def test_times_scale(data: st.DataObject, factor: Fraction) -> None:
    problem = data.draw(problems(speeds=True))
    configuration = data.draw(any_configurations(problem))
    layers = [layer.times(factor) for layer in problem.layers]
    slower = replace(problem, layers=layers, constants=scaled(problem.constants, factor))
    found = estimate(slower, configuration)
    assert found.epoch == factor * estimate(problem, configuration).epoch


@given(st.data())
def test_speeds_of_alike_machines_scale(data: st.DataObject) -> None:
    problem = data.draw(problems())
    configuration = data.draw(any_configurations(problem))
    double = [Fraction(2)] * problem.machines
    twice = replace(problem, machine_speeds=double)
    fast = replace(
        problem,
        layers=[layer.times(Fraction(1, 2)) for layer in problem.layers],
        constants=replace(
            scaled(problem.constants, Fraction(1, 2)),
            latency_ns=problem.constants.latency_ns,
            nic_bits_per_s=problem.constants.nic_bits_per_s,
        ),
    )
    assert estimate(twice, configuration) == estimate(fast, configuration)
    named = replace(configuration, machines=tuple(range(configuration.machines_used)))
    assert estimate(twice, named) == estimate(twice, configuration)


@given(st.data())
def test_names_of_workers_do_not_matter(data: st.DataObject) -> None:
    problem = data.draw(problems(speeds=True, max_machines=8))
    configuration = data.draw(any_configurations(problem))
    count, servers = configuration.workers_per_replica, configuration.parameter_servers
    name = data.draw(st.permutations(range(count)))
    machines = configuration.machines
    if machines is not None:
        moved = list(machines)
        for start in range(servers, len(machines), count):
            for worker in range(count):
                moved[start + name[worker]] = machines[start + worker]
        machines = tuple(moved)
    renamed = replace(
        configuration,
        layers=tuple(
            replace(
                choice, mapping=tuple(tuple(name[one] for one in row) for row in choice.mapping)
            )
            for choice in configuration.layers
        ),
        machines=machines,
    )
    assert estimate(problem, renamed).epoch == estimate(problem, configuration).epoch


@given(st.data())
def test_names_of_machines_do_not_matter(data: st.DataObject) -> None:
    problem = data.draw(problems(speeds=True, max_machines=8))
    configuration = data.draw(any_configurations(problem))
    name = data.draw(st.permutations(range(problem.machines)))

    def moved(speeds: object) -> list[Fraction] | None:
        if not isinstance(speeds, tuple):
            return None
        found = [Fraction(1)] * problem.machines
        for machine, speed in enumerate(speeds):
            found[name[machine]] = speed
        return found

    same = replace(problem, machine_speeds=moved(problem.machine_speeds))
    machines = configuration.machines
    renamed = replace(configuration, machines=machines and tuple(name[one] for one in machines))
    assert estimate(same, renamed).epoch == estimate(problem, configuration).epoch


@given(st.data())
def test_order_of_replicas_and_of_servers_does_not_matter(data: st.DataObject) -> None:
    problem = data.draw(problems(speeds=True, max_machines=8))
    configuration = data.draw(any_configurations(problem))
    machines = configuration.machines
    assume(machines is not None)
    assert machines is not None
    servers, count = configuration.parameter_servers, configuration.workers_per_replica
    groups = [machines[at : at + count] for at in range(servers, len(machines), count)]
    shuffled = data.draw(st.permutations(machines[:servers]))
    shuffled += [one for group in data.draw(st.permutations(groups)) for one in group]
    other = replace(configuration, machines=tuple(shuffled))
    assert estimate(problem, other).epoch == estimate(problem, configuration).epoch


@given(st.data())
def test_a_slower_machine_never_gains(data: st.DataObject) -> None:
    """A machine made slower never shortens an epoch."""
    problem = data.draw(problems(speeds=True, max_machines=8))
    configuration = data.draw(any_configurations(problem))
    assume(configuration.machines is not None)
    speeds = list(problem.machine_speeds or [Fraction(1)] * problem.machines)
    speeds[data.draw(st.integers(0, problem.machines - 1))] /= 3
    slower = replace(problem, machine_speeds=speeds)
    assert estimate(slower, configuration).epoch >= estimate(problem, configuration).epoch


@given(st.data())
def test_reading_weights(data: st.DataObject) -> None:
    """The mean is half of both extremes, more servers never cost more, and only reading differs."""
    problem = replace(data.draw(problems(max_machines=8)), memory_bytes=None)
    configuration = data.draw(any_configurations(problem))
    found = {
        model: phases(estimate(with_model(problem, model), configuration))
        for model in ("min", "mean", "max")
    }
    for least, half, most in zip(found["min"], found["mean"], found["max"], strict=True):
        assert least[:3] == half[:3] == most[:3]
        assert least[3] <= half[3] == (least[3] + most[3]) / 2 <= most[3]
    more = replace(
        configuration, parameter_servers=1 + configuration.parameter_servers, machines=None
    )
    larger = replace(problem, machines=problem.machines + 1)
    for model, times in found.items():
        again = phases(estimate(with_model(larger, model), more))
        reading, before = ([layer[3] for layer in one] for one in (again, times))
        assert [layer[:3] for layer in again] == [layer[:3] for layer in times]
        if model == "max" or configuration.parameter_servers >= configuration.workers_per_replica:
            assert reading == before
        else:
            assert all(
                now < then or not layer.weights
                for layer, now, then in zip(problem.layers, reading, before, strict=True)
            )


@given(st.data())
def test_pure_data_parallelism_communicates_nothing_but_weights(data: st.DataObject) -> None:
    problem = data.draw(problems())
    configuration = data.draw(configurations(problem, workers=1))
    found = estimate(problem, configuration)
    for layer, times in zip(problem.layers, found.layers, strict=True):
        assert times.forward_communication == times.backward_communication == 0
        assert bool(times.weight_reading) == bool(layer.weights)
    constants = problem.constants
    expected = Fraction(0)
    for place, layer in enumerate(problem.layers):
        after = problem.layers[place + 1 : place + 2]
        outgoing = sum(one.connections for one in after)
        choice = configuration.layers[place]
        once = constants.muladd_ns * 2 * layer.connections
        once += (constants.activation_ns + constants.error_ns) * layer.neurons
        if layer.forward_ns is not None:
            once = layer.forward_ns + sum(neuron_oracle.halves(problem.layers, place)[:1])
        if after and after[0].forward_ns is not None:
            once += neuron_oracle.halves(problem.layers, place + 1)[1]
        else:
            once += constants.muladd_ns * outgoing
        once *= constants.interference[choice.threads - 1]
        expected += once * problem.samples / (choice.threads * configuration.replicas)
    assert found.computation == expected
