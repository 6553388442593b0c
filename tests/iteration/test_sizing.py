"""Numbers of machines, against planning every one of them; groups of iterations on an engine."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families import drizzle
from planner.families.iteration import Problem, solve
from planner.families.iteration import sizing as module
from planner.families.iteration.sizing import (
    Sizing,
    choose_size,
    group_size,
    resized,
    scheduling_problem,
)
from planner.model.clusters import Cluster, Nic, Scheduling
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.layers import Layer
from planner.model.profiles import Profile, Provenance
from planner.model.topologies import BCube, FatTree, Rails
from tests.iteration.iteration_strategies import clusters
from tests.iteration.making import chain, layered, on_switch
from tests.present import present

NIC = Nic(Fraction(10**9), 100)
FAST = Fraction(10**12)
ONE, SLOW = layered((1, 1, 1)), layered((2**60, 1, 1))
THREE, UNKNOWN = (layered((1, 1, 1), batch_size=size) for size in (3, None))


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    layer = st.tuples(st.integers(0, 50), st.integers(1, 90), st.integers(0, 200))
    layers = draw(st.lists(layer, min_size=1, max_size=3))
    return layered(*layers, (7, 9, draw(st.integers(1, 90))), batch_size=draw(st.integers(1, 3)))


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    profiles(),
    clusters().filter(lambda one: not isinstance(one.topology, BCube)),
    st.integers(1, 40),
    st.sampled_from([{}, {"computation": Fraction(1, 7)}, {"max_transfer_bytes": 30}]),
)
def test_chosen_is_the_best_of_all_sizes(
    model: Profile, cluster: Cluster, samples: int, options: dict[str, Any]
) -> None:
    """Of all numbers of machines, those included that were not planned."""
    fixed = {**options, "op_order": tuple(op.name for op in model.dataflow().ops)}
    found = choose_size(model, cluster, samples, **fixed)
    epochs = {}
    for machines in range(1, cluster.machines + 1):
        smaller = resized(cluster, machines)
        objective = solve(Problem.from_profile(model, smaller, **fixed)).objective_ns
        if objective is not None:
            batch = (model.batch_size or 0) * smaller.workers
            epochs[machines] = ceil(Fraction(samples, batch)) * objective
    sizes = [candidate.machines for candidate in found.candidates]
    assert sizes == sorted(set(sizes))
    assert {1, cluster.machines} <= set(sizes)
    assert not found.timed_out
    assert present(found.chosen).machines == min(epochs, key=lambda size: (epochs[size], size))
    for one in found.candidates:
        assert present(one.bound_ns) <= epochs[one.machines]
        assert one.epoch_ns in {None, epochs[one.machines]}


def test_candidates_by_hand() -> None:
    """10 batches on up to 9 machines: 10, 5, 4, 3, 2, 2, 2, 2, 2 iterations."""
    found = choose_size(layered((500, 500, 1), batch_size=2), on_switch(9, 1), 20)
    # 5 machines are the fewest for 2 iterations; 6 to 8 have the least bounds behind it.
    assert [candidate.machines for candidate in found.candidates] == [1, 5, 6, 7, 8, 9]
    assert [candidate.iterations for candidate in found.candidates] == [10, 2, 2, 2, 2, 2]
    assert found.chosen is found.candidates[1]
    assert [one.result is None for one in found.candidates] == [True, False, *[True] * 4]


def test_a_slow_network_means_one_machine_also_without_layers() -> None:
    large = (1, 1, 10**6)
    alike = Profile("g", (), Provenance("synthetic", "a test"), 4, chain(large))
    for model in (layered(large), alike):
        found = choose_size(model, on_switch(4, 100), 1000)
        best = present(found.chosen)
        assert (best.machines, best.epoch_ns) == (1, 250 * 2)
        assert [one.iterations for one in found.candidates] == [250, 125, 84, 63]
        assert [one.result is None for one in found.candidates] == [False, True, True, True]


def test_memory() -> None:
    model = replace(layered((10, 10, 100)), layers=(Layer("l", 10, 10, 100, None, 50),))
    needed = 100 + 100 + 50  # and sharded, a 2-fold state and a copy, spread over the machines

    def choose(memory: int) -> Sizing:
        cluster = on_switch(4, 0, memory_bytes=memory)
        return choose_size(model, cluster, 40, optimiser=2, element_bytes=1)

    tight = choose(needed + 300 // 4 + 1)
    assert present(tight.chosen).machines == 4
    assert all(candidate.epoch_ns is None for candidate in tight.candidates[:-1])
    nothing = choose(needed)
    assert nothing.chosen is None
    assert present(nothing.infeasibility).binding == ("memory_bytes",)


def test_sizes_an_algorithm_cannot_have() -> None:
    rails = Cluster("r", "a test", 4, Rails(4, 2, FAST), Nic(FAST, 0, 2))
    choose = partial(choose_size, layered((500, 500, 8)), rails, algorithms=("halving_doubling",))
    assert present(choose(960).chosen).machines == 4
    # 3 hosts would make an epoch of 24 samples in one iteration, and are looked at before 4.
    refused = {candidate.machines: candidate for candidate in choose(24).candidates}[3]
    assert refused.bound_ns is None
    assert present(present(refused.result).infeasibility).binding == ("algorithms",)


def test_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "bound_under", lambda _: 0)  # nothing is cut
    found = choose_size(layered((50, 50, 80)), on_switch(5, 100), 100, time_limit=1e-9)
    planned = [candidate for candidate in found.candidates if candidate.result is not None]
    assert found.timed_out
    assert [found.chosen] == planned


def test_resized() -> None:
    assert resized(on_switch(4, 100), 3) == on_switch(3, 100)
    tree = Cluster("t", "a test", 12, FatTree(4), NIC)
    assert resized(tree, 5) == replace(tree, machines=5)
    rails = Cluster("r", "a test", 3, Rails(3, 2, Fraction(10)), replace(NIC, per_machine=2))
    assert resized(rails, 1).workers == 2


# ---
# Groups of iterations: the cluster's constants become a problem of `drizzle`.


def engine(**constants: Any) -> Cluster:
    """Eight machines with two tasks each."""
    scheduling = Scheduling(**{"task_ns": 10, "tasks_per_machine": 2, **constants})
    return on_switch(8, 5, scheduling=scheduling)


def test_every_constant_of_the_cluster_counts() -> None:
    known: dict[str, Any] = {"group_ns": 700, "task_ns": 10, "constant_task_ns": 2}
    limits: dict[str, Any] = {"max_overhead": Fraction(1, 20), "max_group_ns": 10_000_000_000}
    expected = drizzle.Problem(compute_ns=1000, tasks=16, **known, **limits)
    assert scheduling_problem(engine(**known), 1000) == expected  # with limits by default


BCUBE = Cluster("b", "a test", 4, BCube(2, 2), replace(NIC, per_machine=2))


@pytest.mark.parametrize(
    ("ask", "path", "message"),
    [
        (partial(choose_size, ONE, on_switch(2, 100), 0), "epoch_samples", ""),
        (partial(choose_size, THREE, on_switch(2, 100), 2**62), "epoch_samples", ""),
        (partial(choose_size, UNKNOWN, on_switch(2, 100), 5), "profile.batch_size", ""),
        (partial(choose_size, ONE, on_switch(4097, 100), 5), "cluster.machines", ""),
        (partial(choose_size, SLOW, on_switch(2, 100), 2**10), "epoch_samples", ""),
        (partial(choose_size, ONE, BCUBE, 5), "cluster.topology", ""),
        (partial(resized, on_switch(4, 100), 0), "machines", ""),
        (partial(resized, on_switch(4, 100), 5), "machines", ""),
        (partial(group_size, on_switch(8, 5), 1000), "cluster.scheduling", "the engine's driver"),
        (partial(group_size, engine(), 1000, max_overhead=1), "max_overhead", ""),
    ],
)
def test_what_cannot_be_is_refused(ask: Callable[[], object], path: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message or None) as caught:
        ask()
    assert caught.value.path == path
    assert isinstance(caught.value, NotApplicableError) == path.startswith("cluster.")
