"""The order in which triples are looked at, on made-up times that are hard to tell apart."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.yan import NeuronLayer, Problem, solve
from planner.families.yan.configuration import Space, Triple
from planner.families.yan.exact import exact
from planner.families.yan.search import search
from planner.solving.deadline import Deadline
from tests.yan.small_problems import TINY, alike

ERROR = 1e-12
TIMES = st.sampled_from([1.0, 1.0, 1.0 + 2e-15, 1.0 - 2e-15, 1.5, 2.0, 2.0 + 4e-15, 3.0])


class Patience(Deadline):
    """A deadline that passes when it has been looked at so often."""

    def __init__(self, looks: int) -> None:
        super().__init__(None)
        self.looks = looks

    @property
    def passed(self) -> bool:
        self.looks -= 1
        return self.looks < 0


@st.composite
def made_up(
    draw: st.DrawFn, *, everything_fits: bool = False
) -> tuple[Space, dict[Triple, float | None], Any]:
    """A space, the time of each triple (None if nothing fits), and bounds of them."""
    space = Space(
        machines=draw(st.integers(2, 7)),
        fewest_servers=draw(st.integers(1, 2)),
        most_workers=draw(st.integers(1, 7)),
        most_replicas=draw(st.integers(1, 7)),
    )
    times: dict[Triple, float] = {}
    least: dict[tuple[int, int], float] = {}
    for workers in range(1, space.most_workers + 1):
        for replicas in range(1, space.most_replicas + 1):
            top = space.machines - workers * replicas
            time = draw(TIMES)
            least[workers, replicas] = time
            for servers in range(top, space.fewest_servers - 1, -1):
                times[Triple(workers, replicas, servers)] = time
                time = max(time, draw(TIMES))  # fewer servers never cost less
    sure = draw(st.sampled_from([0.3, 0.9, 1.0]))
    nothing: set[Triple] = set()
    if times and not everything_fits:
        nothing = draw(st.sets(st.sampled_from(sorted(times)), max_size=2))
    fits = {one: None if one in nothing else time for one, time in times.items()}
    layerwise = SimpleNamespace(
        tables=SimpleNamespace(error=ERROR),
        bounds=lambda replicas, most, _: [
            0.2 * least[workers, replicas] for workers in range(1, most + 1)
        ],
        bound=lambda triple: 0.25 * times[triple],
        coarse=lambda triple: (None, sure * times[triple]),
    )
    return space, fits, layerwise


@given(made_up(), st.integers(1, 12))
def test_everything_up_to_the_last_is_found(made: Any, top: int) -> None:
    space, times, layerwise = made

    result = search(layerwise, space, times.__getitem__, top, Deadline(None))
    fitting = {one: time for one, time in times.items() if time is not None}
    # One that does not fit hides those with fewer servers: they do not fit either.
    hidden = {
        one
        for one in fitting
        if any(
            time is None and other[:2] == one[:2] and other.servers > one.servers
            for other, time in times.items()
        )
    }
    every = sorted(time for one, time in fitting.items() if one not in hidden)
    found = [solution.triple for solution in result.solutions]
    assert len(set(found)) == len(found)
    assert [solution.epoch for solution in result.solutions] == [
        fitting[triple] for triple in found
    ]
    last = every[min(top, len(every)) - 1] if every else 0.0
    for triple in set(fitting) - hidden:
        assert triple in found or fitting[triple] > last * (1 + 2 * ERROR)
        assert triple in found or result.bound <= fitting[triple] * (1 + 2 * ERROR)
    assert len(found) >= min(top, len(every))
    assert result.triples == len(times)
    assert not result.timed_out


@given(made_up(everything_fits=True), st.integers(1, 12), st.integers(0, 30))
def test_the_bound_holds_for_what_time_did_not_allow(made: Any, top: int, looks: int) -> None:
    space, times, layerwise = made
    result = search(layerwise, space, times.__getitem__, top, Patience(looks))
    found = {solution.triple for solution in result.solutions}
    assert found or not times
    for triple in set(times) - found:
        assert result.bound <= times[triple] * (1 + 2 * ERROR)


def test_bounds_hold_however_early_the_search_ends() -> None:
    """One triple may be solved, and a better one not looked at yet."""
    problem = replace(TINY, machines=9)
    best = exact(problem, Deadline(None)).lower_bound
    assert best is not None
    proven = set()
    for looks in (0, *range(40, 140, 4)):
        outcome = exact(problem, Patience(looks))
        assert outcome.plan is not None
        assert outcome.lower_bound is not None
        assert outcome.lower_bound <= best <= outcome.plan.ranking[0].epoch
        proven.add(outcome.lower_bound if outcome.timed_out else None)
    assert len(proven - {None, 0}) > 1  # the time was up in the middle of it, too


@pytest.mark.parametrize("method", ["auto", "greedy", "ordered"])
def test_large_clusters_are_planned_within_a_time_limit(method: str) -> None:
    """More choices than can be bounded in the time: a plan comes back, with what is proven."""
    layers = (
        NeuronLayer("a", "full", 4096, 4096 * 100, 4096 * 100),
        NeuronLayer("b", "full", 10, 40960, 40960),
    )
    problem = Problem(3000, 8, layers, alike(1, 8), 10**6, 1000)
    result = solve(problem, method=method, time_limit=0.05)
    assert result.plan is not None
    assert result.timed_out
    assert result.objective_ns is not None
    assert (result.lower_bound_ns or 0) <= result.objective_ns
    assert result.plan.explored.triples_cut <= result.plan.explored.triples
