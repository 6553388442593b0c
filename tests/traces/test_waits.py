"""Where recorded time went, against counting moment by moment."""

from dataclasses import asdict, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

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
from tests.formats.refused import refused

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


def shifted(recorded: Recorded, by: int) -> Recorded:
    """Return the same, by a clock that is set otherwise."""

    def later(spans: Spans) -> Spans:
        return tuple((start + by, end + by) for start, end in spans)

    def at(moment: int | None) -> int | None:
        return None if moment is None else moment + by

    spans = ("computation", "memory", "launched", "input", "synchronised", "periods")
    changes: dict[str, Any] = {name: later(getattr(recorded, name)) for name in spans}
    for name in ("steps", "transfers"):
        changes[name] = tuple(
            replace(one, **{key: at(value) for key, value in asdict(one).items() if "_ns" in key})
            for one in getattr(recorded, name)
        )
    return replace(recorded, **changes)


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
        assert sum(wait.causes.values()) == wait.waited_ns <= wait.transfer.lasts_ns
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
    moved = [shifted(one, offset) for one, offset in zip(ranks, by, strict=False)]
    assert list(map(parts_of, ranks)) == list(map(parts_of, moved))
    assert [(wait.waited_ns, wait.causes, wait.last_rank) for wait in waits_of(ranks)] == [
        (wait.waited_ns, wait.causes, wait.last_rank) for wait in waits_of(moved)
    ]
    assert list(map(breakdown_of, ranks)) == list(map(breakdown_of, moved))


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 99)), min_size=1, max_size=8))
def test_no_transfer_undercuts_the_fastest(points: list[tuple[int, int]]) -> None:
    cost = fastest(points)
    assert all(cost.startup_ns + cost.ns_per_byte * size <= time for size, time in points)
    assert any(cost.startup_ns + 1 + cost.ns_per_byte * size >= time for size, time in points)


def test_transfers_on_a_line_give_the_line() -> None:
    points = [(size, 50 + 3 * size) for size in (1, 10, 100)]
    assert fastest([*points, (10, 400)]) == AffineCost(50, Fraction(3))


def alone(**given: Any) -> Recorded:
    """Return a rank that computes until 10 and from 30, and waits for a transfer in between."""
    ranks = given.pop("ranks", 2)
    one = Transfer("all_reduce", 8, 30, 0, 4, **given)
    return Recorded(0, ranks, True, ((0, 10), (30, 40)), (), (one,), (Step("s", 0, 40),))


def causes_of(recorded: Recorded) -> dict[str, int]:
    return dict(waits_of([recorded])[0].causes)


def test_what_was_ready_and_had_not_begun_was_late() -> None:
    late = alone(ready_ns=2, ranks=1)
    assert causes_of(late)["late"] == 6
    assert causes_of(alone(first_ready_ns=3, ready_ns=8, ranks=1))["large"] == 5
    busy = Transfer("all_gather", 3, 8, 0)
    # The network was busy from 3.
    assert causes_of(replace(late, transfers=(busy, *late.transfers)))["late"] == 1


def test_one_rank_of_several_says_neither_start_up_nor_who_came_late() -> None:
    """Two sizes lie on a line with a start-up; they may as well have waited for others."""
    small, large = Transfer("all_reduce", 10, 20, 0, 4), Transfer("all_reduce", 20, 32, 0, 8)
    one = replace(alone(), transfers=(small, large))
    answer = why([one], GRAPH)
    assert answer.one_of_several
    assert answer.costs == {}
    assert answer.causes == dict.fromkeys(CAUSES, 0) | {"undivided": 20}
    assert answer.saving.planned is None
    assert "from one rank of 2 start-ups cannot be told" in answer.saving.reason
    assert (answer.saving.at_most_ns, answer.saving.least_ns) == (20, 0)
    sole = why([replace(one, ranks=1)], reason="no")
    assert not sole.one_of_several
    assert sole.costs["all_reduce"].startup_ns == 8
    assert "from one rank of several" in why([replace(one, ranks=None)]).saving.reason


def test_what_ran_before_the_steps_is_no_steps_wait() -> None:
    before = Transfer("all_reduce", -500, -20, -1, 4)
    one = replace(alone(), transfers=(before, *alone().transfers), periods=((0, 40),))
    answer = why([one], reason="no")
    assert sum(answer.causes.values()) == 20
    (part,) = answer.parts
    assert (part.lasts_ns, part.compute_ns, part.waited_ns) == (40, 20, 20)
    one = replace(one, periods=((0, 25), (25, 25), (25, 40)))
    assert [wait.waited_ns for wait in waits_of([one])] == [15, 5]  # nothing in one that is empty


def test_what_is_in_doubt_can_be_saved_as_well() -> None:
    doubt = Kernels("combine_tokens", "", 1, 6)
    one = replace(
        alone(), transfers=(), certain=((0, 10), (36, 40)), doubtful=(doubt,), several=True
    )
    answer = why([one], reason="no")
    assert answer.unexplained
    assert (answer.saving.exposed_ns, answer.saving.doubtful_ns) == (0, 6)
    assert answer.saving.at_most_ns == 6
    assert not why([replace(one, several=False, doubtful=())], reason="no").unexplained


def test_who_came_last_is_to_blame() -> None:
    last = replace(alone(), rank=1, transfers=(Transfer("all_reduce", 27, 30, 0, 4),))
    wait = waits_of([alone(), last])[0]
    assert (wait.causes["straggler"], wait.last_rank) == (19, 1)


def test_the_host_is_to_blame_unless_it_waits_for_the_device() -> None:
    launched = replace(alone(ranks=1), launched=((0, 0), (30, 28)))
    causes = causes_of(launched)
    assert causes["host"] == max(causes.values()) == 18
    assert causes_of(replace(launched, input=((10, 20),)))["input"] == 10
    assert causes_of(replace(launched, synchronised=((5, 29),)))["host"] == 0


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


def test_without_a_graph_only_bytes_count() -> None:
    costs = {"all_gather": AffineCost(10, Fraction(20))}
    saving = saving_of(500, 0, 300, {"all_gather": 40}, costs, None, workers=2, reason="no shapes")
    assert (saving.least_ns, saving.planned, saving.reason) == (500, None, "no shapes")
    other = saving_of(900, 0, 300, {"all_gather": 40}, costs, GRAPH, workers=2)
    assert other.least_ns == 500
    assert "all_gather was sent" in other.reason
    costs["all_reduce"] = AffineCost(0, Fraction(1))
    more = saving_of(900, 0, 300, {"all_reduce": 400}, costs, GRAPH, workers=2)
    assert "gradients have 40" in more.reason


def test_one_trace_a_rank() -> None:
    with refused(None, "2 are of rank 0"):
        why([alone(), alone()])
    assert why([alone(), replace(alone(), rank=1)], reason="no").steps == 1


def test_copies_are_a_part_of_the_step_of_their_own() -> None:
    copied = Recorded(0, 1, True, ((0, 10), (30, 40)), ((5, 8), (20, 26)), (), (Step("s", 0, 40),))
    (part,) = parts_of(copied)
    assert (part.compute_ns, part.waited_ns, part.copied_ns, part.idle_ns) == (20, 0, 6, 14)
    assert breakdown_of(copied).non_compute_ns == 6
