"""What must be remembered, what that leaves room for, and what binds where nothing fits."""

import sys
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner import Layer, Profile, Provenance
from planner.families.iteration import METHODS, Footprint, Problem, check, network_bound, solve
from planner.families.iteration.bounds import bound
from planner.families.iteration.evaluation import check_room
from planner.families.iteration.plan import MODES
from planner.model.clusters import Cluster, Nic
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.topologies import Rails, Switch
from planner.model.units import format_bytes
from tests.iteration.iteration_strategies import problems


def chain(*sizes: int) -> Graph:
    """A chain of layers, each 10 ns forward and 20 ns backward."""
    count = len(sizes)
    ops = [Op(f"f{i}", 10, "forward", (f"f{i - 1}",) if i else ()) for i in range(count)]
    ops += [
        Op(f"b{i}", 20, "backward", (f"f{i}", *((f"b{i + 1}",) if i + 1 < count else ())))
        for i in reversed(range(count))
    ]
    return Graph(
        tuple(ops),
        tuple(Parameter(f"w{i}", size, (f"b{i}",), (f"f{i}",)) for i, size in enumerate(sizes)),
    )


def machines(count: int, memory: int | None) -> Cluster:
    nic = Nic(Fraction(10**9), 5)
    return Cluster("c", "a test", count, Switch(count), nic, memory_bytes=memory)


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
    assert footprint.resident_bytes("replicated", workers) == replicated
    assert footprint.resident_bytes("sharded", workers) == sharded


def test_the_footprint_of_a_profile() -> None:
    layers = (
        Layer("a", 1, 2, 40, activation_bytes=7),
        Layer("b", 1, 2, 60, gradient_bytes=30, activation_bytes=5),
        Layer("c", 1, 2, 0, activation_bytes=1),
    )
    profile = Profile("p", layers, Provenance("synthetic", "a test"))
    assert Footprint.of(profile, Fraction(2)) == Footprint(100, 100, 13, Fraction(2))
    problem = Problem.from_profile(profile, machines(4, 1000), optimiser=2, computation=3)
    assert problem.pushed == (40, 30)
    assert problem.pulled == (40, 60)
    assert sum(op.duration_ns for op in problem.graph.ops) == 3 * 9
    # 100 + 100 + 13 of 1000 bytes, and the state of 200, or a fourth of it and of the copy.
    assert (problem.room("replicated"), problem.room("sharded")) == (587, 712)


def test_what_layers_keep_counts_where_it_is_known() -> None:
    layers = (
        Layer("conv", 1, 2, 40, activation_bytes=70, kept_bytes=70),
        Layer("norm", 1, 2, 4, activation_bytes=70, kept_bytes=0),
        Layer("unknown", 1, 2, 4, activation_bytes=9),
    )
    profile = Profile("p", layers, Provenance("synthetic", "a test"))
    assert Footprint.of(profile).activation_bytes == 79
    assert Footprint.of(profile, activation_bytes=5).activation_bytes == 5
    assert Footprint.of(profile.chain()).activation_bytes == 79

    def room(**options: object) -> int | None:
        options = {"modes": ("replicated",), **options}
        return Problem.from_profile(profile, machines(4, 200), **options).room("replicated")  # type: ignore[arg-type]

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
    problem = Problem(chain(50, 50), machines(4, 210), footprint=footprint)
    reason = solve(problem).infeasibility
    assert reason is not None
    assert reason.reason.count(cause) == reason.reason.count(remedy) == 1
    for mode in ("replicated", "sharded"):
        needed = format_bytes(footprint.resident_bytes(mode, 4) + 1)
        assert f"{needed} {mode}" in reason.reason
    assert "leaves it 210 B" in reason.reason
    assert "--activations" in reason.reason
    assert "--ignore-memory" in reason.reason
    for method in ("ddp", "ps", "caramel"):
        assert solve(problem, method=method).infeasibility == reason


def test_memory_of_a_host_is_shared_by_its_accelerators() -> None:
    rails = Rails(2, 4, Fraction(10**9))
    cluster = Cluster("c", "a test", 2, rails, Nic(Fraction(10**9), 5, 4), memory_bytes=4003)
    assert cluster.worker_memory_bytes == 1000
    problem = Problem(chain(50, 50), cluster, footprint=Footprint(100, 100, 0, Fraction(8)))
    assert problem.room("replicated") is not None
    assert problem.room("replicated") == 0
    assert problem.room("sharded") == 1000 - 200 - -(-900 // 8)


def test_the_smaller_of_cap_and_memory_counts() -> None:
    footprint = Footprint(100, 100)
    for cap, room in ((None, 50), (30, 30), (70, 50)):
        problem = Problem(
            chain(50, 50), machines(2, 250), footprint=footprint, max_transfer_bytes=cap
        )
        assert problem.room("replicated") == room
    assert Problem(chain(50), machines(2, None), footprint=footprint).room("sharded") is None
    assert Problem(chain(50), machines(2, 10)).room("sharded") is None


def test_state_that_fits_only_in_shares() -> None:
    footprint = Footprint(100, 100, 0, Fraction(2))
    problem = Problem(chain(50, 50), machines(4, 300), footprint=footprint)
    result = solve(problem)
    assert result.plan is not None
    assert result.plan.mode == "sharded"
    assert result.objective_ns is not None
    assert network_bound(problem, result.plan) <= result.objective_ns
    check_room(problem, result.plan)
    assert max(transfer.size_bytes for transfer in result.plan.transfers) <= 300 - 200 - 75
    refused = solve(problem, method="ddp")
    assert refused.infeasibility is not None
    assert refused.infeasibility.binding == ("memory_bytes",)


@pytest.mark.parametrize("memory", [400, 401, 402])
def test_a_room_of_nothing_or_next_to_nothing(memory: int) -> None:
    footprint = Footprint(100, 100, 0, Fraction(2))
    problem = Problem(chain(50, 50), machines(4, memory), footprint=footprint)
    result = solve(problem)
    assert result.plan is not None
    assert result.objective_ns is not None
    assert network_bound(problem, result.plan) <= result.objective_ns


@pytest.mark.parametrize("method", METHODS)
def test_what_fits_in_no_way_names_the_memory(method: str) -> None:
    footprint = Footprint(100, 100, 0, Fraction(2))
    problem = Problem(chain(50, 50), machines(4, 200), footprint=footprint)
    try:
        result = solve(problem, method=method)
    except NotApplicableError:
        assert method == "bml"  # not on a switch
        return
    assert result.plan is None
    assert result.infeasibility is not None
    assert result.infeasibility.binding == ("memory_bytes",)
    assert "200" in result.infeasibility.reason


def test_a_cap_below_an_element_names_the_cap() -> None:
    problem = Problem(chain(8, 8), machines(2, None), max_transfer_bytes=3, element_bytes=4)
    result = solve(problem)
    assert result.infeasibility is not None
    assert result.infeasibility.binding == ("max_transfer_bytes",)


def test_parameters_smaller_than_an_element_fit_into_less_than_one() -> None:
    problem = Problem(chain(3, 2), machines(2, None), max_transfer_bytes=3, element_bytes=4)
    result = solve(problem)
    assert result.plan is not None
    check(problem, result.plan)
    check_room(problem, result.plan)


def test_a_rule_that_breaks_the_cap_says_so() -> None:
    problem = Problem(chain(40, 40), machines(2, None), max_transfer_bytes=20)
    result = solve(problem, method="layer_by_layer")
    assert result.infeasibility is not None
    assert result.infeasibility.binding == ("max_transfer_bytes",)
    assert "joint" in result.infeasibility.reason


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
        rooms = [tight.room(mode) for mode in modes]
        assert all(room is not None and room < problem.element_bytes for room in rooms)
        return
    check(tight, result.plan)
    room = tight.room(result.plan.mode)
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
        ({"op_order": ("f0",)}, "op_order"),
        ({"element_bytes": 0}, "element_bytes"),
    ],
)
def test_problems_that_are_none(options: dict[str, object], path: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        replace(Problem(chain(5, 5), machines(2, None)), **options)  # type: ignore[arg-type]
    assert raised.value.path == path


@settings(max_examples=25)
@given(st.integers(1, 62), st.integers(0, 62), st.integers(2, 12))
@example(57, 0, 10)
@example(5, 58, 10)
def test_a_problem_that_is_accepted_is_planned(size: int, startup: int, count: int) -> None:
    """However large the numbers: what is refused is refused at once, with a field to look at."""
    nic = Nic(Fraction(10**9), 2**startup)
    cluster = Cluster("c", "a test", 4, Switch(4), nic)
    path = ""
    try:
        problem = Problem(chain(*[2**size] * count), cluster)
    except InvalidInputError as error:
        path = error.path
    if path:
        assert path in {"parameters", "cluster", "cluster.nic"}
        return
    for method in ("ps", "ibatch", "ddp"):
        assert solve(problem, method=method).plan is not None


def test_too_many_transfers_are_not_planned_but_count_in_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules["planner.families.iteration.transfers"], "MAX_TRANSFERS", 100)
    options = {"pull_bytes": (31, 9), "max_transfer_bytes": 1}
    problem = Problem(chain(60, 10), machines(4, None), **options)  # type: ignore[arg-type]
    result = solve(problem)
    assert result.plan is not None
    assert len(result.plan.transfers) == 70
    assert result.plan.mode == "replicated"  # 110 pushes and pulls are too many
    half = replace(problem, modes=("sharded",))
    least = min(bound(half, option, "sharded", result.plan) for option in half.options)
    assert result.lower_bound_ns is not None
    assert result.lower_bound_ns <= least
    whole = replace(problem, modes=("replicated",))
    assert least < min(bound(whole, option, "replicated", result.plan) for option in whole.options)

    for method in ("auto", "ddp", "ps"):  # at once, whatever the size
        huge = Problem(chain(10**12), machines(4, None), max_transfer_bytes=1)
        refused = solve(huge, method=method)
        assert refused.plan is None
        assert refused.infeasibility is not None
        assert refused.infeasibility.binding == ("max_transfer_bytes",)
    footprint = Footprint(10**9, 10**9)
    full = Problem(chain(10**9), machines(4, 2 * 10**9 + 1), footprint=footprint)
    refused = solve(full)
    assert refused.infeasibility is not None
    assert refused.infeasibility.binding == ("memory_bytes",)
