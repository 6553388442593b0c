"""What must be remembered, what that leaves room for, and what binds where nothing fits."""

import sys
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner import Layer, Profile, Provenance
from planner.families.iteration import METHODS, Footprint, Problem, network_bound, solve
from planner.families.iteration.bounds import bound
from planner.families.iteration.plan import MODES, Mode
from planner.model.clusters import Cluster, Nic
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.graphs import Graph
from planner.model.topologies import Rails
from planner.model.units import format_bytes
from tests.iteration.iteration_strategies import problems
from tests.iteration.making import binding, chain, on_switch, solved


def layers(*sizes: int) -> Graph:
    return chain(*((10, 20, size) for size in sizes))


def machines(count: int, memory: int | None) -> Cluster:
    return on_switch(count, 5, memory_bytes=memory)


@pytest.mark.parametrize(
    ("optimiser", "workers", "replicated", "sharded"),
    [
        # 100 of parameters, 100 of gradients, 30 of activations; the copy updated is sharded too.
        (Fraction(0), 4, 230, 255),
        (Fraction(2), 4, 430, 305),
        (Fraction(1), 8, 330, 255),
        (Fraction(1, 3), 3, 264, 275),  # 33⅓ rounded up; 133⅓ / 3 rounded up
        (Fraction(2), 1, 430, 530),
    ],
)
def test_footprints_by_hand(
    optimiser: Fraction, workers: int, replicated: int, sharded: int
) -> None:
    footprint = Footprint(100, 100, 30, optimiser)
    assert footprint.static_bytes("replicated", workers) == replicated
    assert footprint.static_bytes("sharded", workers) == sharded


def test_the_footprint_of_a_profile() -> None:
    known = (
        Layer("a", 1, 2, 40, activation_bytes=7),
        Layer("b", 1, 2, 60, gradient_bytes=30, activation_bytes=5),
        Layer("c", 1, 2, 0, activation_bytes=1),
    )
    profile = Profile("p", known, Provenance("synthetic", "a test"))
    assert Footprint.of(profile, Fraction(2)) == Footprint(100, 100, 13, Fraction(2))
    problem = Problem.from_profile(profile, machines(4, 1000), optimiser=2, computation=3)
    assert problem.pushed == (40, 30)
    assert problem.pulled == (40, 60)
    assert sum(op.duration_ns for op in problem.graph.ops) == 3 * 9
    # 100 + 100 + 13 of 1000 bytes, and the state of 200, or a fourth of it and of the copy.
    assert (problem.transfer_limit("replicated"), problem.transfer_limit("sharded")) == (587, 712)


def test_what_layers_keep_counts_where_it_is_known() -> None:
    known = (
        Layer("conv", 1, 2, 40, activation_bytes=70, kept_bytes=70),
        Layer("norm", 1, 2, 4, activation_bytes=70, kept_bytes=0),
        Layer("unknown", 1, 2, 4, activation_bytes=9),
    )
    profile = Profile("p", known, Provenance("synthetic", "a test"))
    assert Footprint.of(profile).activation_bytes == 79
    assert Footprint.of(profile, activation_bytes=5).activation_bytes == 5
    assert Footprint.of(profile.chain()).activation_bytes == 79

    def room(**options: object) -> int | None:
        options = {"modes": ("replicated",), **options}
        problem = Problem.from_profile(profile, machines(4, 200), **options)  # type: ignore[arg-type]
        return problem.transfer_limit("replicated")

    assert room() == 200 - 48 - 48 - 79
    assert room(activation_bytes=5) == 200 - 48 - 48 - 5
    assert room(ignore_memory=True) is None
    with pytest.raises(InvalidInputError, match="activation_bytes"):
        room(activation_bytes=-1)


@pytest.mark.parametrize(
    ("footprint", "cause", "remedy"),
    [
        (Footprint(100, 100, 10**6), "activations (976.6 KiB)", "batch size"),
        (Footprint(100, 100, 10, Fraction(9)), "optimiser state (900 B)", "more workers"),
        (Footprint(900, 900, 10), "parameters and gradients (1.758 KiB)", "more memory"),
    ],
)
def test_a_shortage_of_memory_is_explained_once_and_in_units(
    footprint: Footprint, cause: str, remedy: str
) -> None:
    problem = Problem(layers(50, 50), machines(4, 210), footprint=footprint)
    _, reason = binding(problem)
    assert reason.count(cause) == reason.count(remedy) == 1
    needed = [
        f"{format_bytes(footprint.static_bytes(mode, 4) + 1)} {mode}"
        for mode in ("replicated", "sharded")
    ]
    for text in (*needed, "leaves it 210 B", "--activations", "--ignore-memory"):
        assert text in reason
    for method in METHODS:
        with suppress(NotApplicableError):  # bml on a switch
            assert binding(problem, method) == (("memory_bytes",), reason)


def test_memory_of_a_host_is_shared_by_its_accelerators() -> None:
    rails = Rails(2, 4, Fraction(10**9))
    cluster = Cluster("c", "a test", 2, rails, Nic(Fraction(10**9), 5, 4), memory_bytes=4003)
    assert cluster.worker_memory_bytes == 1000
    problem = Problem(layers(50, 50), cluster, footprint=Footprint(100, 100, 0, Fraction(8)))
    assert problem.transfer_limit("replicated") == 0
    assert problem.transfer_limit("sharded") == 1000 - 200 - -(-900 // 8)


def test_the_smaller_of_cap_and_memory_counts() -> None:
    footprint = Footprint(100, 100)
    for cap, room in ((None, 50), (30, 30), (70, 50)):
        problem = Problem(
            layers(50, 50), machines(2, 250), footprint=footprint, max_transfer_bytes=cap
        )
        assert problem.transfer_limit("replicated") == room
    assert (
        Problem(layers(50), machines(2, None), footprint=footprint).transfer_limit("sharded")
        is None
    )
    assert Problem(layers(50), machines(2, 10)).transfer_limit("sharded") is None


def test_state_that_fits_only_in_shares() -> None:
    footprint = Footprint(100, 100, 0, Fraction(2))
    problem = Problem(layers(50, 50), machines(4, 300), footprint=footprint)
    plan = solved(problem).plan
    assert plan.mode == "sharded"
    assert max(transfer.size_bytes for transfer in plan.transfers) <= 300 - 200 - 75
    assert binding(problem, "ddp")[0] == ("memory_bytes",)


def test_a_cap_below_an_element_or_a_parameter_is_named() -> None:
    problem = Problem(layers(8, 8), machines(2, None), max_transfer_bytes=3, element_bytes=4)
    assert binding(problem)[0] == ("max_transfer_bytes",)
    # Parameters smaller than an element fit into less than one.
    solved(replace(problem, graph=layers(3, 2)))
    binds, reason = binding(replace(problem, max_transfer_bytes=7), "layer_by_layer")
    assert binds == ("max_transfer_bytes",)
    assert "joint" in reason


@settings(max_examples=25)
@given(problems(capped=True), st.integers(0, 200))
def test_caps_are_kept(problem: Problem, memory: int) -> None:
    footprint = Footprint(40, 40, 5, Fraction(1))
    cluster = problem.cluster
    if not isinstance(cluster.topology, Rails):
        cluster = replace(cluster, memory_bytes=memory + 100)
    tight = replace(problem, cluster=cluster, footprint=footprint)
    result = solve(tight)
    if result.plan is None:
        assert result.infeasibility is not None
        # around failures there is no sharded plan, whatever the room
        modes = MODES if "cluster.failed" not in result.infeasibility.binding else MODES[:1]
        rooms = [tight.transfer_limit(mode) for mode in modes]
        assert all(room is not None and room < problem.element_bytes for room in rooms)
        return
    room = tight.transfer_limit(result.plan.mode)
    assert room is not None
    assert all(transfer.size_bytes <= room for transfer in result.plan.transfers)
    assert result.objective_ns is not None
    assert network_bound(tight, result.plan) <= result.objective_ns


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"cluster": None}, "cluster"),
        ({"footprint": 7}, "footprint"),
        ({"max_transfer_bytes": 0}, "max_transfer_bytes"),
        ({"algorithms": ()}, "algorithms"),
        ({"algorithms": "ring"}, "algorithms"),
        ({"algorithms": ("ring", "rings")}, "algorithms[1]"),
        ({"algorithms": ("bml", "hierarchical")}, "algorithms"),
        ({"pull_bytes": (1,)}, "pull_bytes"),
        ({"pull_bytes": (1, 0)}, "pull_bytes[1]"),
        ({"pull_bytes": (2**62, 2**62)}, "pull_bytes"),
        ({"op_order": ("0/forward",)}, "op_order"),
        ({"element_bytes": 0}, "element_bytes"),
    ],
)
def test_problems_that_are_none(options: dict[str, object], path: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        replace(Problem(layers(5, 5), machines(2, None)), **options)  # type: ignore[arg-type]
    assert raised.value.path == path


@settings(max_examples=25)
@given(st.integers(1, 62), st.integers(0, 62), st.integers(2, 12))
@example(57, 0, 10)
@example(5, 60, 2)
@example(5, 58, 10)
def test_a_problem_that_is_accepted_is_planned(size: int, startup: int, count: int) -> None:
    """However large the numbers: what is refused is refused at once, with a field to look at."""
    graph = layers(*[2] * count)
    parameters = tuple(replace(each, size_bytes=2**size) for each in graph.parameters)
    try:
        problem = Problem(Graph(graph.ops, parameters), on_switch(4, 2**startup))
    except InvalidInputError as error:
        problem, path = None, error.path
    if problem is None:
        assert path in {"parameters", "cluster", "cluster.nic"}
        return
    for method in ("ps", "ibatch", "ddp"):
        solved(problem, method)


def test_too_many_transfers_are_not_planned_but_count_in_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules["planner.families.iteration.transfers"], "MAX_TRANSFERS", 100)
    options = {"pull_bytes": (31, 9), "max_transfer_bytes": 1}
    problem = Problem(layers(60, 10), machines(4, None), **options)  # type: ignore[arg-type]
    plan, _, lowest = solved(problem)
    assert len(plan.transfers) == 70
    assert plan.mode == "replicated"  # 110 pushes and pulls are too many

    def least(mode: Mode) -> int:
        other = replace(problem, modes=(mode,))
        return min(bound(other, option, mode, plan) for option in other.options)

    assert lowest <= least("sharded") < least("replicated")
    huge = Problem(layers(10**12), machines(4, None), max_transfer_bytes=1)
    for method in ("auto", "ddp", "ps"):  # at once, whatever the size
        assert binding(huge, method)[0] == ("max_transfer_bytes",)
    footprint = Footprint(10**9, 10**9)
    full = Problem(layers(10**9), machines(4, 2 * 10**9 + 1), footprint=footprint)
    assert binding(full)[0] == ("memory_bytes",)
