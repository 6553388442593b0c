"""What ranks measured of steps, and the problem that is made of it."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner import caramel, iteration
from planner.clusters import Cluster, Nic
from planner.costs import AffineCost
from planner.graphs import Graph, Op, Parameter
from planner.runtime.measuring.courses import Course, Planned, changed, merged, read, rows_of
from planner.runtime.measuring.trace import Event
from planner.scenarios import Scenario
from planner.topologies import Switch

MS = 10**6


def chain(backward: Sequence[int], forward: Sequence[int], sizes: Sequence[int]) -> Graph:
    """Return a model of layers, the last of which is computed first on the way back."""
    count = len(sizes)
    return Graph(
        (
            *(
                Op(f"f{layer}", forward[layer], "forward", (f"f{layer - 1}",) if layer else ())
                for layer in range(count)
            ),
            *(
                Op(
                    f"b{layer}",
                    backward[layer],
                    "backward",
                    (f"b{layer + 1}" if layer + 1 < count else f"f{count - 1}",),
                )
                for layer in reversed(range(count))
            ),
        ),
        tuple(
            Parameter(f"p{layer}", size, (f"b{layer}",), (f"f{layer}",))
            for layer, size in enumerate(sizes)
        ),
    )


times = st.integers(1, 40).map(lambda number: number * MS)


@st.composite
def planned(draw: st.DrawFn) -> Planned:
    count = draw(st.integers(2, 6))

    def several(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=count, max_size=count))

    graph = chain(several(times), several(times), several(st.integers(10**3, 10**6)))
    startup, rate = draw(st.integers(0, 5 * MS)), draw(st.integers(1, 100))
    if draw(st.booleans()):
        problem = caramel.Problem(graph, AffineCost(startup, Fraction(rate)), workers=1)
        plan = caramel.solve(
            problem, method=draw(st.sampled_from(["search", "layer_by_layer"]))
        ).plan
        assert plan is not None
        return Planned(problem, plan)
    cluster = Cluster("c", "a test", 4, Switch(4), Nic(Fraction(10**9, rate), startup))
    whole = iteration.Problem(graph, cluster, algorithms=["ring"], modes=["replicated"])
    made = iteration.solve(whole).plan
    assert made is not None
    return Planned(whole, made)


def nearly(value: Sequence[int], other: Sequence[int], share: float = 1e-3) -> bool:
    return all(abs(a - b) <= share * b + 50 for a, b in zip(value, other, strict=True))


@given(planned())
def test_what_was_expected_is_no_change(job: Planned) -> None:
    moved, network = changed(job, job.course)
    assert set(read(job.course, job.course).values()) == {Fraction(1)}
    assert nearly(moved.course.transfers_ns, job.course.transfers_ns)
    assert moved.course[1:] == job.course[1:]
    assert moved.plan == job.plan
    assert network == Scenario()


@given(planned(), st.fractions(Fraction(1, 4), 4, max_denominator=8))
def test_another_bandwidth_is_seen(job: Planned, factor: Fraction) -> None:
    """As transfers tell of it; with it a step costs what it does on that network."""
    there = job.under(Scenario(bandwidth=factor))
    moved, _ = changed(job, there.course)
    whole = sum(there.course.transfers_ns)
    assert abs(sum(moved.course.transfers_ns) - whole) <= whole // 20
    assert moved.course[1:] == job.course[1:]


@given(planned(), st.data())
def test_gradients_are_ready_when_they_were_seen_to_be(job: Planned, data: st.DataObject) -> None:
    expected = job.course
    lasting = data.draw(
        st.lists(times, min_size=len(expected.ready_ns), max_size=len(expected.ready_ns))
    )
    moments = sorted({*expected.ready_ns} - {0})
    assume(moments)
    seen = {0: 0}
    for moment, length in zip(moments, lasting, strict=False):
        seen[moment] = max(seen.values()) + length
    measured = Course(
        expected.transfers_ns,
        tuple(seen[moment] for moment in expected.ready_ns),
        3 * expected.forward_ns,
        max(seen.values()) + (7 if expected.backward_ns > moments[-1] else 0),
    )
    moved, _ = changed(job, measured)
    assert moved.course.ready_ns == measured.ready_ns
    assert moved.course.backward_ns == measured.backward_ns
    assert moved.course.forward_ns == measured.forward_ns


def test_a_new_plan_is_for_what_was_measured() -> None:
    graph = chain([30 * MS] * 6, [15 * MS] * 6, [10**6] * 6)
    problem = caramel.Problem(graph, AffineCost(2 * MS, Fraction(20)), workers=1)
    plan = caramel.solve(problem).plan
    assert plan is not None
    job = Planned(problem, plan)
    slow = job.under(Scenario(bandwidth=Fraction(1, 4)))
    moved, _ = changed(job, slow.course)
    best = caramel.solve(replace(problem, cost=AffineCost(2 * MS, Fraction(80)))).objective_ns
    assert best is not None
    assert moved.planned(None).step_ns <= 1.05 * best


def event(kind: str, step: int, batch: int, start: int, end: int) -> Event:
    return Event(kind, step, batch, start, end)  # type: ignore[arg-type]


def one_rank(late: int, transfer: int, computing: int) -> list[Event]:
    """Return a step of two batches, the second of which waits for the first."""
    return [
        event("forward", 3, -1, 0, computing),
        event("wait", 2, 0, 10, 30),
        event("backward", 3, -1, computing, 3 * computing),
        event("ready", 3, 0, computing + late, computing + late),
        event("ready", 3, 1, computing + late + 5, computing + late + 5),
        event("transfer", 3, 0, computing + late, computing + late + transfer),
        event("transfer", 3, 1, computing + late + transfer, computing + late + 3 * transfer),
        event("transfer", 4, 0, 0, 1),
    ]


def test_the_last_rank_says_what_the_network_takes_and_the_slowest_when_it_is_ready() -> None:
    ranks = [
        rows_of(one_rank(40, 50, 100), range(3, 4), 2),
        rows_of(one_rank(60, 30, 120), range(3, 4), 2),
    ]
    least = [[min(*pair) for pair in zip(*rows, strict=True)] for rows in zip(*ranks, strict=True)]
    assert merged(least) == Course((30, 60), (60, 65), 100, 240)


def test_steps_of_which_something_is_missing_do_not_count() -> None:
    whole = rows_of(one_rank(40, 50, 100), range(3, 4), 2)
    without = rows_of(one_rank(40, 50, 100)[:-2], range(3, 4), 2)
    assert merged([*without, *whole]) == merged(whole)
    assert merged(without) is None
    assert merged(rows_of([], range(3, 5), 2)) is None
    assert merged(rows_of(one_rank(40, 50, 100), range(3, 4), 3)) is None


@pytest.mark.parametrize("name", ["transfers", "readiness", "forward pass", "backward pass"])
def test_each_time_is_read(name: str) -> None:
    thought = Course((10, 20), (5, 10), 30, 40)
    took = {
        "transfers": Course((30, 30), (5, 10), 30, 40),
        "readiness": Course((10, 20), (15, 15), 30, 40),
        "forward pass": Course((10, 20), (5, 10), 60, 40),
        "backward pass": Course((10, 20), (5, 10), 30, 80),
    }
    values = dict(read(thought, took[name]))
    assert values.pop(name) == 2
    assert set(values.values()) == {Fraction(1)}
