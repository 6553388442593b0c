"""The performance model against the neuron-by-neuron oracle, and what must hold of any model."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.errors import BrokenConstraintError, InvalidPlanError
from planner.yan.checker import check, server_bytes, worker_bytes
from planner.yan.configuration import Configuration, LayerChoice
from planner.yan.layers import NeuronLayer
from planner.yan.mapping import canonical_mapping
from planner.yan.model import Estimate, estimate
from planner.yan.problem import Constants, Problem
from tests.yan import neuron_oracle
from tests.yan.yan_strategies import any_configurations, configurations, problems


def phases(found: Estimate) -> list[tuple[Fraction, Fraction, Fraction, Fraction]]:
    """Times of each layer: forward, backward, update, reading."""
    return [
        (
            one.forward_computation + one.forward_communication,
            one.backward_computation + one.backward_communication,
            one.weight_update,
            one.weight_reading,
        )
        for one in found.layers
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
        one.forward_computation + one.backward_computation + one.weight_update
        for one in found.layers
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


def with_speeds(problem: Problem, field: str, speeds: list[Fraction]) -> Problem:
    return replace(problem, **{field: speeds})  # type: ignore[arg-type]


def scaled(constants: Constants, factor: Fraction) -> Constants:
    """Everything takes `factor` times as long."""
    return replace(
        constants,
        muladd_ns=constants.muladd_ns * factor,
        activation_ns=constants.activation_ns * factor,
        error_ns=constants.error_ns * factor,
        latency_ns=[one * factor for one in constants.latency_ns],
        nic_bits_per_s=constants.nic_bits_per_s / factor,
    )


@given(st.data(), st.sampled_from([Fraction(1, 3), Fraction(7, 2), Fraction(1000)]))
def test_times_scale(data: st.DataObject, factor: Fraction) -> None:
    problem = data.draw(problems(speeds=True))
    configuration = data.draw(any_configurations(problem))
    slower = replace(problem, constants=scaled(problem.constants, factor))
    found = estimate(slower, configuration)
    assert found.epoch == factor * estimate(problem, configuration).epoch


@given(st.data())
def test_speeds_of_alike_machines_scale(data: st.DataObject) -> None:
    problem = data.draw(problems())
    configuration = data.draw(any_configurations(problem))
    double = [Fraction(2)] * problem.machines
    twice = replace(problem, machine_speeds=double, nic_speeds=double)
    fast = replace(
        problem,
        constants=replace(
            scaled(problem.constants, Fraction(1, 2)), latency_ns=problem.constants.latency_ns
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

    same = replace(
        problem,
        machine_speeds=moved(problem.machine_speeds),
        nic_speeds=moved(problem.nic_speeds),
    )
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
    """A machine made slower, or its NIC, never shortens an epoch."""
    problem = data.draw(problems(speeds=True, max_machines=8))
    configuration = data.draw(any_configurations(problem))
    assume(configuration.machines is not None)
    field = data.draw(st.sampled_from(["machine_speeds", "nic_speeds"]))
    speeds = list(getattr(problem, field) or [Fraction(1)] * problem.machines)
    speeds[data.draw(st.integers(0, problem.machines - 1))] /= 3
    slower = with_speeds(problem, field, speeds)
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
            assert all(now < then for now, then in zip(reading, before, strict=True))


@given(st.data())
def test_pure_data_parallelism_communicates_nothing_but_weights(data: st.DataObject) -> None:
    problem = data.draw(problems())
    configuration = data.draw(configurations(problem, workers=1))
    found = estimate(problem, configuration)
    for layer, times in zip(problem.layers, found.layers, strict=True):
        assert times.forward_communication == times.backward_communication == 0
        assert times.weight_reading > 0
        assert layer.neurons > 0
    constants = problem.constants
    expected = Fraction(0)
    for place, layer in enumerate(problem.layers):
        after = problem.layers[place + 1 : place + 2]
        outgoing = sum(one.connections for one in after)
        choice = configuration.layers[place]
        once = constants.interference[choice.threads - 1] * (
            constants.muladd_ns * (2 * layer.connections + outgoing)
            + (constants.activation_ns + constants.error_ns) * layer.neurons
        )
        expected += once * problem.samples / (choice.threads * configuration.replicas)
    assert found.computation == expected


def alone() -> tuple[Problem, Configuration]:
    """Two fully connected layers on four workers, by hand."""
    constants = Constants(
        muladd_ns=Fraction(1),
        activation_ns=Fraction(10),
        error_ns=Fraction(100),
        latency_ns=[Fraction(1000), Fraction(2000)],
        nic_bits_per_s=Fraction(10**9),  # a bit takes a nanosecond
        interference=[Fraction(1), Fraction(3, 2)],
        bits_per_activation=Fraction(8),
        bits_per_weight=Fraction(16),
    )
    layers = [NeuronLayer("a", "full", 4, 12, 16), NeuronLayer("b", "full", 2, 8, 8)]
    problem = Problem(8, 2, layers, constants, samples=12, read_every=3)
    chosen = [LayerChoice(2, 1, 1, ((0,), (1,))), LayerChoice(2, 2, 2, ((0, 1), (2, 3)))]
    return problem, Configuration(2, 1, 4, tuple(chosen))


def test_an_example_by_hand() -> None:
    problem, configuration = alone()
    first, second = map(list, phases(estimate(problem, configuration)))
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


def broken(path: str, message: str, problem: Problem, configuration: Configuration) -> None:
    for price in (check, estimate):
        with pytest.raises(InvalidPlanError) as caught:
            price(problem, configuration)
        assert caught.value.path == path
        assert message in caught.value.message


@pytest.mark.parametrize(
    ("path", "message", "changes"),
    [
        ("parameter_servers", "integer >= 1, got 0", {"parameter_servers": 0}),
        ("replicas", "integer >= 1, got true", {"replicas": True}),
        ("workers_per_replica", "integer >= 1, got 2.0", {"workers_per_replica": 2.0}),
        ("workers_per_replica", "integer <= ", {"workers_per_replica": 10**400}),
        ("", "at most 8 machines, got 10", {"replicas": 2}),
        ("", "at most 8 machines, got 9", {"parameter_servers": 5}),
        ("layers", "expected 2, got 0", {"layers": ()}),
        ("machines", "expected 6, got 5", {"machines": (0, 1, 2, 3, 4)}),
        ("machines", "different ones of 0 … 7", {"machines": (0, 1, 2, 3, 4, 4)}),
        ("machines", "different ones of 0 … 7", {"machines": (0, 1, 2, 3, 4, 8)}),
    ],
)
def test_broken_configurations(path: str, message: str, changes: dict[str, object]) -> None:
    problem, configuration = alone()
    check(problem, configuration)
    broken(path, message, problem, replace(configuration, **changes))  # type: ignore[arg-type]


def test_too_many_machines_name_what_binds() -> None:
    problem, configuration = alone()
    with pytest.raises(BrokenConstraintError) as caught:
        check(problem, replace(configuration, replicas=2))
    assert caught.value.binding == "machines"


@pytest.mark.parametrize(
    ("path", "message", "changes"),
    [
        (".partitions", "integer >= 1, got 0", {"partitions": 0}),
        (".partitions", "'b' has 2 neurons, expected at most as many", {"partitions": 3}),
        (".threads", "integer >= 1, got 0", {"threads": 0}),
        (".threads", "at most 2 (cores, and entries of interference), got 3", {"threads": 3}),
        (".copies", "integer >= 1, got -1", {"copies": -1}),
        ("", "partitions x copies <= workers_per_replica (4), got 6", {"copies": 3}),
        (".mapping", "missing", {"mapping": ()}),
        (".mapping", "2 arrays of 2 workers", {"mapping": ((0, 1),)}),
        (".mapping", "2 arrays of 2 workers", {"mapping": ((0, 1), (2,))}),
        (".mapping[1][0]", "worker 1 given twice", {"mapping": ((0, 1), (1, 2))}),
        (".mapping[1][1]", "integer <= 3, got 4", {"mapping": ((0, 1), (2, 4))}),
        (".mapping[0][0]", "integer >= 0, got -1", {"mapping": ((-1, 1), (2, 3))}),
    ],
)
def test_broken_choices(path: str, message: str, changes: dict[str, object]) -> None:
    problem, configuration = alone()
    wrong = replace(configuration.layers[1], **changes)  # type: ignore[arg-type]
    configuration = replace(configuration, layers=(configuration.layers[0], wrong))
    broken(f"layers[1]{path}", message, problem, configuration)


def test_machines_that_differ_have_to_be_named() -> None:
    problem, configuration = alone()
    speeds = [Fraction(1)] * 7 + [Fraction(2)]
    for field in ("machine_speeds", "nic_speeds"):
        other = with_speeds(problem, field, speeds)
        broken("machines", "missing: these machines differ", other, configuration)
        check(other, replace(configuration, machines=(7, 6, 5, 4, 3, 2)))


def test_unequal_bands() -> None:
    """The last band holds the rows that pooling drops, and memory is that of one real band."""
    conv = NeuronLayer("c", "conv", 33, 297, 9, (1, 11, 3), 3, pool=3)
    one_more = NeuronLayer("d", "conv", 3, 9, 9, (1, 3, 1), 3)
    problem, _ = alone()
    problem = replace(problem, layers=[conv, one_more])
    choices = [(3, 1), (1, 1)]
    mappings = canonical_mapping(choices, 3)
    layers = tuple(LayerChoice(p, 1, r, m) for (p, r), m in zip(choices, mappings, strict=True))
    found = phases(estimate(problem, Configuration(1, 1, 3, layers)))
    assert conv.held(3) == [0, 3, 6, 11]
    assert found[0][0] == 12 * (5 * 3 * 9 + 5 * 3 * 10)
    # The second band feeds all three neurons after it, the last one, which is larger, only two.
    assert worker_bytes(problem, 0, 3, 1) == 2 * 9 * 2 + max(2 * 9 + 3, 2 * 15 + 2)


def test_thousands_of_bands() -> None:
    """A network as tall as they come, a worker for every 32nd row."""
    tall = NeuronLayer("t", "conv", 2**16, 3 * 2**16, 3 * 3, (1, 2**16, 1), 3)
    problem, _ = alone()
    problem = replace(problem, machines=2**12, layers=[tall, tall])
    count = 2**11
    assert worker_bytes(problem, 1, count, 1) == 2 * 9 * 2 + (32 + 2) + 2 * 32
    chosen = [(count, 1), (count, 1)]
    mappings = canonical_mapping(chosen, count)
    layers = tuple(LayerChoice(count, 1, 1, mapping) for mapping in mappings)
    first, second = phases(estimate(problem, Configuration(1, 1, count, layers)))
    assert second[0] == 12 * (32 * 3 + 32 * 10 + 1000 + 2 * 8)  # a row from either neighbour
    assert first[2] == 12 * 32 * 3
