"""Where recorded time went, against counting moment by moment."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.model.costs import AffineCost
from planner.model.graphs import Graph, Op, Parameter
from planner.traces.recorded import (
    Kernels,
    Recorded,
    Spans,
    Step,
    Transfer,
    both,
    breakdown_of,
    clipped,
    length,
    merged,
    parts_of,
    periods_of,
    without,
)
from planner.traces.waits import CAUSES, fastest, waits_of
from planner.traces.why import saving_of, why
from tests.traces.made import moved

END = 40
SPANS = st.lists(
    st.tuples(st.integers(0, END), st.integers(0, 9)).map(lambda pair: (pair[0], sum(pair))),
    max_size=6,
)
SETS = SPANS.map(merged)


def moments(spans: Spans) -> set[int]:
    """Return the moments, one a nanosecond: the oracle of everything here."""
    return {moment for start, end in spans for moment in range(start, end)}


@st.composite
def transfers(draw: st.DrawFn) -> tuple[Transfer, ...]:
    made = []
    for start, end in sorted(draw(SPANS)):
        ready = draw(st.one_of(st.none(), st.integers(0, start)))
        first = None if ready is None else draw(st.one_of(st.none(), st.integers(0, ready)))
        made.append(
            Transfer(
                draw(st.sampled_from(["all_reduce", "all_gather"])),
                start,
                end,
                draw(st.integers(-1, 1)),
                draw(st.none() | st.integers(1, 3)),
                first,
                ready,
            )
        )
    return tuple(made)


STEPS = (Step("ProfilerStep#1", 0, 20), Step("ProfilerStep#2", 20, 60))
LAUNCHES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=5)
RANKS = st.builds(
    Recorded,
    rank=st.just(0),
    ranks=st.just(2),
    device=st.just(True),
    computation=SETS,
    memory=SETS,
    transfers=transfers(),
    steps=st.just(STEPS),
    launched=LAUNCHES.map(lambda pairs: tuple(sorted((max(pair), min(pair)) for pair in pairs))),
    input=SETS,
    synchronised=SETS,
    periods=st.just(())
    | st.lists(st.integers(0, 50), min_size=3, max_size=3).map(
        lambda cuts: tuple(pairwise(sorted(cuts)))
    ),
)
SEVERAL = st.lists(RANKS, min_size=1, max_size=3).map(
    lambda ranks: [replace(one, rank=place) for place, one in enumerate(ranks)]
)


def sent_in(recorded: Recorded) -> set[int]:
    return {m for one in recorded.transfers for m in range(one.start_ns, one.end_ns)}


@given(SETS, SETS)
def test_sets_of_moments(one: Spans, other: Spans) -> None:
    assert moments(both(one, other)) == moments(one) & moments(other)
    assert moments(without(one, other)) == moments(one) - moments(other)
    assert length(one) == len(moments(one))
    for start, end in [(0, 20), (5, 5), *other]:
        assert moments(clipped(one, (start, end))) == moments(one) & set(range(start, end))
    assert merged([*one, *other]) == merged([*other, *one])


@given(RANKS)
def test_a_breakdown_counts_moments(recorded: Recorded) -> None:
    found = breakdown_of(recorded)
    computing = moments(recorded.computation)
    sent = sent_in(recorded)
    busy = computing | sent | moments(recorded.memory)
    whole = set(range(min(busy), max(busy) + 1)) if busy else set()
    assert found.whole_ns == len(whole)
    assert found.idle_ns == len(whole - busy)
    assert found.idle_ns + found.compute_ns + found.non_compute_ns == found.whole_ns
    assert found.compute_ns == len(computing)
    assert (found.overlapped_ns, found.exposed_ns) == (len(sent & computing), len(sent - computing))
    assert found.communication_ns == found.overlapped_ns + found.exposed_ns
    assert found.input_ns == len((whole - busy) & moments(recorded.input))
    assert found.overlap == (len(sent & computing) / len(sent) if sent else None)


@given(SEVERAL)
def test_parts_of_a_step_sum_to_it_and_no_wait_exceeds_it(ranks: list[Recorded]) -> None:
    waits = waits_of(ranks)
    for recorded in ranks:
        own = [wait for wait in waits if wait.rank == recorded.rank]
        parts, periods = parts_of(recorded), periods_of(recorded)
        computing = moments(recorded.computation)
        sent = sent_in(recorded)
        assert len(parts) == len(periods)
        for place, (part, period) in enumerate(zip(parts, periods, strict=True)):
            inside = set(range(*period))
            assert part.lasts_ns == len(inside)
            assert part.compute_ns == len(inside & computing)
            assert part.waited_ns == len((inside & sent) - computing)
            assert part.idle_ns == len(inside - sent - computing - moments(recorded.memory))
            assert part.compute_ns + part.waited_ns + part.copied_ns + part.idle_ns == part.lasts_ns
            if len(periods) == len(STEPS):
                within = [wait.waited_ns for wait in own if wait.step == place]
                assert sum(within) == part.waited_ns
                assert max(within, default=0) <= part.lasts_ns
        assert sum(wait.waited_ns for wait in own) == sum(part.waited_ns for part in parts)
        if not recorded.periods:
            assert sum(wait.waited_ns for wait in own) == breakdown_of(recorded).exposed_ns
    for wait in waits:
        assert tuple(wait.causes) == CAUSES
        assert min(wait.causes.values()) >= 0
        assert 0 < sum(wait.causes.values()) == wait.waited_ns <= wait.transfer.lasts_ns
        unknown = ("straggler", "slow", "startup", "late", "large", "bytes")
        if len(ranks) == 1:
            assert not any(wait.causes[name] for name in unknown)
        else:
            assert not wait.causes["undivided"]
    answer = why(ranks, reason="no")
    lasts = sum(part.lasts_ns for part in answer.parts)
    assert sum(answer.causes.values()) == sum(part.waited_ns for part in answer.parts) <= lasts
    assert answer.saving.exposed_ns <= lasts // answer.in_all


@given(SEVERAL, st.lists(st.integers(-99, 99), min_size=3))
def test_clocks_need_not_agree(ranks: list[Recorded], by: list[int]) -> None:
    others = [moved(one, offset.__add__) for one, offset in zip(ranks, by, strict=False)]
    assert list(map(parts_of, ranks)) == list(map(parts_of, others))
    assert [(wait.waited_ns, wait.causes, wait.last_rank) for wait in waits_of(ranks)] == [
        (wait.waited_ns, wait.causes, wait.last_rank) for wait in waits_of(others)
    ]
    assert list(map(breakdown_of, ranks)) == list(map(breakdown_of, others))


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 99)), min_size=1, max_size=8))
def test_no_transfer_undercuts_the_fastest(points: list[tuple[int, int]]) -> None:
    cost = fastest(points)
    assert all(cost.startup_ns + cost.ns_per_byte * size <= time for size, time in points)
    assert any(cost.startup_ns + 1 + cost.ns_per_byte * size >= time for size, time in points)
    line = [(size, 50 + 3 * size) for size in (1, 10, 100)]
    assert fastest([*line, (10, 400)]) == AffineCost(50, Fraction(3))


def alone(**given: Any) -> Recorded:
    """Return a rank that computes until 10 and from 30, and waits for a transfer in between."""
    one = Transfer("all_reduce", 8, 30, 0, 4, **given)
    return Recorded(0, 1, True, ((0, 10), (30, 40)), (), (one,), (Step("s", 0, 40),))


LATE, LAUNCHED = alone(ready_ns=2), replace(alone(), launched=((0, 0), (30, 28)))
BUSY = Transfer("all_gather", 3, 8, 0)
LAST = replace(alone(), rank=1, transfers=(Transfer("all_reduce", 27, 30, 0, 4),))


@pytest.mark.parametrize(
    ("ranks", "cause", "lasts"),
    [
        ([LATE], "late", 6),  # it was ready, and had not begun
        ([replace(LATE, transfers=(BUSY, *LATE.transfers))], "late", 1),  # the network was busy
        ([alone(first_ready_ns=3, ready_ns=6)], "large", 3),
        ([alone(), LAST], "straggler", 19),
        ([LAUNCHED], "host", 18),
        ([replace(LAUNCHED, input=((10, 20),))], "input", 10),
        ([replace(LAUNCHED, synchronised=((5, 29),))], "host", 0),  # it waits for the device
    ],
)
def test_who_is_to_blame(ranks: list[Recorded], cause: str, lasts: int) -> None:
    found = waits_of(ranks)[0]
    assert found.causes[cause] == lasts
    assert found.last_rank == (1 if cause == "straggler" else None)


def test_no_wait_is_before_the_steps_or_in_one_that_is_empty() -> None:
    before = Transfer("all_reduce", -500, -20, -1, 4)
    one = replace(alone(), periods=((0, 25), (25, 25), (25, 40)))
    one = replace(one, transfers=(before, *one.transfers))
    assert [wait.waited_ns for wait in waits_of([one])] == [15, 5]


def test_one_rank_of_several_says_neither_start_up_nor_who_came_late() -> None:
    """Two sizes lie on a line with a start-up; they may as well have waited for others."""
    small, large = Transfer("all_reduce", 10, 20, 0, 4), Transfer("all_reduce", 20, 32, 0, 8)
    sole = replace(alone(), transfers=(small, large))
    assert why([sole], reason="no").costs["all_reduce"].startup_ns == 8
    for ranks, said in ((2, "one rank of 2"), (None, "one rank of several")):
        answer = why([replace(sole, ranks=ranks)], GRAPH)
        assert answer.one_of_several
        assert answer.costs == {}
        assert answer.causes == dict.fromkeys(CAUSES, 0) | {"undivided": 20}
        assert answer.saving.planned is None
        assert f"from {said} start-ups cannot be told" in answer.saving.reason
        assert (answer.saving.at_most_ns, answer.saving.least_ns) == (20, 0)


def test_what_is_in_doubt_can_be_saved_as_well() -> None:
    doubt = Kernels("combine_tokens", "", 1, 6)
    certain: dict[str, Any] = {"certain": ((0, 10), (36, 40)), "doubtful": (doubt,)}
    one = replace(alone(), ranks=2, transfers=(), several=True, **certain)
    answer = why([one], reason="no")
    assert answer.unexplained
    assert (answer.saving.exposed_ns, answer.saving.doubtful_ns) == (0, 6)
    assert answer.saving.at_most_ns == 6
    assert not why([replace(one, several=False, doubtful=())], reason="no").unexplained


GRAPH = Graph(
    (Op("f", 100, "forward"), Op("b", 200, "backward", ("f",))),
    (Parameter("w", 40, ("b",), ("f",)),),
)


def test_savings_are_those_of_the_planner_on_the_same_graph() -> None:
    """One gradient, ready at the end of the backward pass, read at once: all of it is waited."""
    costs = {"all_reduce": AffineCost(10, Fraction(2))}
    saving = saving_of(500, 100, 300, {"all_reduce": 40}, costs, GRAPH, workers=2)
    assert (saving.least_ns, saving.plan_ns, saving.at_most_ns) == (90, 90, 410)
    assert saving.saved_ns == 310  # without what other ranks cause


@pytest.mark.parametrize(
    ("exposed", "sent", "graph", "reason"),
    [
        (500, {"all_gather": 40}, None, "no shapes"),
        (900, {"all_gather": 40}, GRAPH, "all_gather was sent"),
        (900, {"all_reduce": 400}, GRAPH, "gradients have 40"),
    ],
)
def test_bytes_alone(exposed: int, sent: dict[str, int], graph: Graph | None, reason: str) -> None:
    costs = {"all_gather": AffineCost(10, Fraction(20)), "all_reduce": AffineCost(0, Fraction(2))}
    saving = saving_of(exposed, 0, 300, sent, costs, graph, workers=2, reason="no shapes")
    assert (saving.least_ns, saving.planned) == (500, None)
    assert reason in saving.reason
