"""What must be remembered, what that leaves room for, and what binds; many transfers."""

import sys
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import planner
from planner import Layer, Profile, Provenance
from planner.families.iteration import METHODS, Footprint, Problem, solve
from planner.families.iteration.bounds import bound
from planner.families.iteration.plan import MODES, Mode
from planner.model.clusters import Cluster, Nic
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.graphs import Graph
from planner.model.measured import COLLECTIVES
from planner.model.topologies import Rails
from planner.model.units import format_bytes
from tests.formats.refused import refused
from tests.iteration.iteration_strategies import problems
from tests.iteration.making import binding, chain, on_switch, solved
from tests.large import DISTURBING, Request, tiny_iteration


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


def profile(*known: Layer) -> Profile:
    return Profile("p", known, Provenance("synthetic", "a test"))


def test_the_footprint_of_a_profile() -> None:
    known = profile(
        Layer("a", 1, 2, 40, activation_bytes=7),
        Layer("b", 1, 2, 60, gradient_bytes=30, activation_bytes=5),
        Layer("c", 1, 2, 0, activation_bytes=1),
    )
    assert Footprint.of(known, Fraction(2)) == Footprint(100, 100, 13, Fraction(2))
    problem = Problem.from_profile(known, machines(4, 1000), optimiser=2, computation=3)
    assert (problem.pushed, problem.pulled) == ((40, 30), (40, 60))
    assert sum(op.duration_ns for op in problem.graph.ops) == 3 * 9
    # 100 + 100 + 13 of 1000 bytes, and the state of 200, or a fourth of it and of the copy.
    assert [problem.transfer_limit(mode) for mode in MODES] == [587, 712]


def test_what_layers_keep_counts_where_it_is_known() -> None:
    known = profile(
        Layer("conv", 1, 2, 40, activation_bytes=70, kept_bytes=70),
        Layer("norm", 1, 2, 4, activation_bytes=70, kept_bytes=0),
        Layer("unknown", 1, 2, 4, activation_bytes=9),
    )
    assert Footprint.of(known).activation_bytes == 79
    assert Footprint.of(known.chain()).activation_bytes == 79
    planned = partial(Problem.from_profile, known, machines(4, 200))
    for options, room in (
        ({}, 200 - 48 - 48 - 79),
        ({"activation_bytes": 5}, 200 - 48 - 48 - 5),
        ({"ignore_memory": True}, None),
    ):
        assert planned(**options).transfer_limit("replicated") == room
    with pytest.raises(InvalidInputError, match="activation_bytes"):
        planned(activation_bytes=-1)


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
    needed = [f"{format_bytes(footprint.static_bytes(mode, 4) + 1)} {mode}" for mode in MODES]
    for text in (*needed, "leaves it 210 B", "--activations", "--ignore-memory"):
        assert text in reason
    for method in METHODS:
        with suppress(NotApplicableError):  # bml on a switch
            assert binding(problem, method) == (("memory_bytes",), reason)


def test_the_smaller_of_cap_and_memory_counts_and_accelerators_share_that_of_a_host() -> None:
    known = Problem(layers(50, 50), machines(2, 250), footprint=Footprint(100, 100))
    for cap, room in ((None, 50), (30, 30), (70, 50)):
        assert replace(known, max_transfer_bytes=cap).transfer_limit("replicated") == room
    assert replace(known, cluster=machines(2, None)).transfer_limit("sharded") is None
    assert Problem(layers(50), machines(2, 10)).transfer_limit("sharded") is None
    rails = Rails(2, 4, Fraction(10**9))
    cluster = Cluster("c", "a test", 2, rails, Nic(Fraction(10**9), 5, 4), memory_bytes=4003)
    shared = replace(known, cluster=cluster, footprint=Footprint(100, 100, 0, Fraction(8)))
    assert shared.transfer_limit("replicated") == 0
    assert shared.transfer_limit("sharded") == 1000 - 200 - -(-900 // 8)


def test_a_cap_below_an_element_or_a_parameter_is_named() -> None:
    problem = Problem(layers(8, 8), machines(2, None), max_transfer_bytes=3, element_bytes=4)
    assert binding(problem)[0] == ("max_transfer_bytes",)
    # Parameters smaller than an element fit into less than one.
    solved(replace(problem, graph=layers(3, 2)))
    binds, reason = binding(replace(problem, max_transfer_bytes=7), "layer_by_layer")
    assert binds == ("max_transfer_bytes",)
    assert "joint" in reason


@settings(max_examples=25)
@given(problems(capped=True), st.integers(100, 300))
def test_there_is_no_plan_only_where_no_element_fits(problem: Problem, memory: int) -> None:
    cluster = problem.cluster
    if not isinstance(cluster.topology, Rails):
        cluster = replace(cluster, memory_bytes=memory)
    tight = replace(problem, cluster=cluster, footprint=Footprint(40, 40, 5, Fraction(1)))
    missing = solve(tight).infeasibility
    # Around failures there is no sharded plan, whatever the room.
    modes = MODES if missing and "cluster.failed" not in missing.binding else MODES[:1]
    rooms = [tight.transfer_limit(mode) for mode in modes]
    assert missing is None or all(
        room is not None and room < problem.element_bytes for room in rooms
    )


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
def test_problems_that_are_none(options: dict[str, Any], path: str) -> None:
    with refused(path, ""):
        replace(Problem(layers(5, 5), machines(2, None)), **options)


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
        assert error.path in {"parameters", "cluster", "cluster.nic"}  # noqa: PT017
        return
    for method in ("ps", "ibatch", "ddp"):
        solved(problem, method)


def test_too_many_transfers_are_not_planned_but_count_in_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = "planner.families.iteration.transfers.MAX_TRANSFERS"
    options: dict[str, Any] = {"pull_bytes": (31, 9), "max_transfer_bytes": 1}
    problem = Problem(layers(60, 10), machines(4, None), **options)
    monkeypatch.setattr(limit, 69)
    binds, reason = binding(problem)
    assert binds == ("max_transfer_bytes",)
    assert "at most 69 transfers are planned" in reason
    monkeypatch.setattr(limit, 70)
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


# ---
# Plans of many transfers: nothing is priced more often than it has to be.


def request(**fields: Any) -> Request:
    """Return a request whose parameters, 4,800 bytes in all, are sent by 16 bytes."""
    asked = {**tiny_iteration(4), "max_transfer_bytes": 16, **fields}
    asked["cluster"]["interference"] = DISTURBING
    return asked


@pytest.mark.parametrize(
    ("mode", "more"), [("replicated", {}), ("sharded", {}), ("sharded", {"epoch_samples": 1000})]
)
def test_without_time_a_plan_is_priced_three_times(
    monkeypatch: pytest.MonkeyPatch, mode: str, more: Request
) -> None:
    """To compare it, to judge it, and without start-ups, to say why it won."""
    priced = []
    module = sys.modules["planner.families.iteration.evaluation"]
    scheduled = module.scheduled

    def counted(*args: Any, **options: Any) -> Any:
        priced.append(len(args[2]))
        return scheduled(*args, **options)

    monkeypatch.setattr(module, "scheduled", counted)
    answer = planner.solve(request(modes=[mode], time_limit_s=1e-9, **more))
    assert len(answer["transfers"]) >= 150
    assert priced == [len(answer["transfers"])] * 3


@pytest.mark.parametrize("limit", [{}, {"time_limit_s": 1e-9}])
def test_the_plan_of_the_chosen_size_is_made_once(
    monkeypatch: pytest.MonkeyPatch, limit: Request
) -> None:
    most = {"max_transfer_bytes": 16 if limit else 160}
    asked = request(epoch_samples=1000, **most, **limit)
    before = planner.solve(asked)
    chosen = {**request(**most), "cluster": {**asked["cluster"], "machines": before["machines"]}}
    if not limit:
        alone = planner.solve(chosen)
        assert (before["transfers"], before["why"]) == (alone["transfers"], alone["why"])
    monkeypatch.delattr(sys.modules["planner.families.iteration"], "solve_all")
    answer = planner.solve(asked)
    assert len(answer["alternatives"]) == len(before["alternatives"])
    assert answer["transfers"] == before["transfers"]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_tables_of_times_that_cannot_be_added_up_are_refused(collective: str) -> None:
    asked = tiny_iteration(4)
    row = {"ranks": asked["cluster"]["machines"], "ranks_per_host": 1}
    tables: dict[str, Any] = {
        name: [{**row, "table": [[1, 1000], [10**6, 10**6]]}] for name in COLLECTIVES
    }
    tables[collective][0]["table"] = [[1, 1000], [10**6, 4 * 10**18]]
    asked["cluster"]["network"] = {"collectives": tables}
    error = planner.solve(asked)["error"]
    assert error["path"] == "cluster"
    assert "four times as many transfers" in error["message"]
