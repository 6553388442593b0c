"""Numbers of machines: against planning every one of them."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.iteration import Problem, solve
from planner.families.iteration import sizing as module
from planner.families.iteration.sizing import Sizing, choose_size, resized
from planner.model.clusters import Cluster, Nic
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.layers import Layer
from planner.model.profiles import Profile, Provenance
from planner.model.topologies import BCube, FatTree, Rails
from tests.iteration.iteration_strategies import clusters
from tests.iteration.making import chain, on_switch

SOURCE = Provenance("synthetic", "a test")
NIC = Nic(Fraction(10**9), 100)
FAST = Fraction(10**12)


def profile(*layers: tuple[int, int, int], batch: int | None = 4) -> Profile:
    """Layers of forward time, backward time and bytes."""
    return Profile(
        "p", tuple(Layer(f"l{i}", *one) for i, one in enumerate(layers)), SOURCE, batch_size=batch
    )


def every_epoch(
    model: Profile, cluster: Cluster, samples: int, options: Mapping[str, Any]
) -> dict[int, int]:
    """Plan with every number of machines."""
    found = {}
    for machines in range(1, cluster.machines + 1):
        smaller = resized(cluster, machines)
        objective = solve(Problem.from_profile(model, smaller, **options)).objective_ns
        if objective is not None:
            batch = (model.batch_size or 0) * smaller.workers
            found[machines] = ceil(Fraction(samples, batch)) * objective
    return found


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    layer = st.tuples(st.integers(0, 50), st.integers(1, 90), st.integers(0, 200))
    layers = draw(st.lists(layer, min_size=1, max_size=3))
    return profile(*layers, (7, 9, draw(st.integers(1, 90))), batch=draw(st.integers(1, 3)))


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
    fixed = {**options, "op_order": tuple(op.name for op in model.dataflow().ops)}
    found = choose_size(model, cluster, samples, **fixed)
    epochs = every_epoch(model, cluster, samples, fixed)
    sizes = [candidate.machines for candidate in found.candidates]
    assert sizes == sorted(set(sizes))
    assert {1, cluster.machines} <= set(sizes)
    assert found.chosen is not None
    assert not found.timed_out
    # Of all numbers of machines, those included that were not planned.
    assert found.chosen.machines == min(epochs, key=lambda size: (epochs[size], size))
    for one in found.candidates:
        assert one.bound_ns is not None
        assert one.bound_ns <= epochs[one.machines]
        assert one.epoch_ns in {None, epochs[one.machines]}


def test_candidates_by_hand() -> None:
    """10 batches on up to 9 machines: 10, 5, 4, 3, 2, 2, 2, 2, 2 iterations."""
    found = choose_size(profile((500, 500, 1), batch=2), on_switch(9, 1), 20)
    # 5 machines are the fewest for 2 iterations; 6 to 8 have the least bounds behind it.
    assert [candidate.machines for candidate in found.candidates] == [1, 5, 6, 7, 8, 9]
    assert [candidate.iterations for candidate in found.candidates] == [10, 2, 2, 2, 2, 2]
    assert found.chosen is found.candidates[1]
    assert [one.result is None for one in found.candidates] == [True, False, *[True] * 4]


def test_a_slow_network_means_one_machine_also_without_layers() -> None:
    graph = chain((1, 1, 10**6))
    for model in (profile((1, 1, 10**6)), Profile("g", (), SOURCE, 4, graph)):
        found = choose_size(model, on_switch(4, 100), 1000)
        assert found.chosen is not None
        assert (found.chosen.machines, found.chosen.epoch_ns) == (1, 250 * 2)
        assert [one.iterations for one in found.candidates] == [250, 125, 84, 63]
        assert [one.result is None for one in found.candidates] == [False, True, True, True]


def test_memory() -> None:
    model = replace(profile((10, 10, 100)), layers=(Layer("l", 10, 10, 100, None, 50),))
    needed = 100 + 100 + 50  # and sharded, a 2-fold state and a copy, spread over the machines

    def choose(memory: int) -> Sizing:
        return choose_size(
            model, on_switch(4, 0, memory_bytes=memory), 40, optimiser=2, element_bytes=1
        )

    tight = choose(needed + 300 // 4 + 1)
    assert tight.chosen is not None
    assert tight.chosen.machines == 4
    assert all(candidate.epoch_ns is None for candidate in tight.candidates[:-1])
    nothing = choose(needed)
    assert nothing.chosen is None
    assert nothing.infeasibility is not None
    assert nothing.infeasibility.binding == ("memory_bytes",)


def test_sizes_an_algorithm_cannot_have() -> None:
    rails = Cluster("r", "a test", 4, Rails(4, 2, FAST), Nic(FAST, 0, 2))
    found = choose_size(profile((500, 500, 8)), rails, 960, algorithms=("halving_doubling",))
    assert found.chosen is not None
    assert found.chosen.machines == 4
    # 3 hosts would make an epoch of 24 samples in one iteration, and are looked at before 4.
    fewer = choose_size(profile((500, 500, 8)), rails, 24, algorithms=("halving_doubling",))
    refused = {candidate.machines: candidate for candidate in fewer.candidates}[3]
    assert refused.bound_ns is None
    assert refused.result is not None
    assert refused.result.infeasibility is not None
    assert refused.result.infeasibility.binding == ("algorithms",)


def test_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "bound_under", lambda _: 0)  # nothing is cut
    found = choose_size(profile((50, 50, 80)), on_switch(5, 100), 100, time_limit=1e-9)
    planned = [candidate for candidate in found.candidates if candidate.result is not None]
    assert found.timed_out
    assert [found.chosen] == planned


def test_resized() -> None:
    assert resized(on_switch(4, 100), 3) == on_switch(3, 100)
    tree = Cluster("t", "a test", 12, FatTree(4), NIC)
    assert resized(tree, 5) == replace(tree, machines=5)
    rails = Cluster("r", "a test", 3, Rails(3, 2, Fraction(10)), replace(NIC, per_machine=2))
    assert resized(rails, 1).workers == 2
    for machines in (0, 5):
        with pytest.raises(InvalidInputError, match="machines"):
            resized(on_switch(4, 100), machines)


@pytest.mark.parametrize(
    ("model", "cluster", "samples", "path"),
    [
        (profile((1, 1, 1)), on_switch(2, 100), 0, "epoch_samples"),
        (profile((1, 1, 1), batch=3), on_switch(2, 100), 2**62, "epoch_samples"),
        (profile((1, 1, 1), batch=None), on_switch(2, 100), 5, "profile.batch_size"),
        (profile((1, 1, 1)), on_switch(4097, 100), 5, "cluster.machines"),
        (profile((2**60, 1, 1)), on_switch(2, 100), 2**10, "epoch_samples"),
        (
            profile((1, 1, 1)),
            Cluster("b", "a test", 4, BCube(2, 2), replace(NIC, per_machine=2)),
            5,
            "cluster.topology",
        ),
    ],
)
def test_refusals(model: Profile, cluster: Cluster, samples: int, path: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        choose_size(model, cluster, samples)
    assert refused.value.path == path
    if path.startswith("cluster"):
        assert isinstance(refused.value, NotApplicableError)
