"""What methods share: deadlines, fronts, merging, searches, CP-SAT, contention, simulation."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, islice, pairwise, product
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from planner.model.contention import Interference, progress
from planner.model.errors import InvalidInputError
from planner.solving import contention
from planner.solving.bucketing import ddp_buckets, earliest_end
from planner.solving.cpsat import solved
from planner.solving.deadline import NEVER, Deadline
from planner.solving.local_search import local_search
from planner.solving.methods import Outcome
from planner.solving.pareto import nondominated, staircase
from planner.solving.simulator import TimedTransfer, simulate
from planner.solving.timeline import Memory, busy_ns

LATE = Deadline(1e-9)
PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


def test_deadlines_are_put_off_shared_and_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("planner.solving.deadline.time", clock)
    cancel = threading.Event()
    assert Deadline(None).at_least(1).remaining_s is None
    assert Deadline(1e-9).at_least(1000).remaining_s == 1000
    whole, late, again = Deadline(1000), Deadline(None, cancel).later(5), Deadline.of(Deadline(3))
    assert whole.at_least(1) is whole
    share = Deadline(100, cancel).share(4)
    assert share.remaining_s == 25
    assert Deadline(None).share(4).remaining_s is None
    assert (Deadline(0).share(4).remaining_s or 0) > 0  # enough for a first plan
    now[0] = 2
    assert (again.remaining_s, again.passed) == (1, False)
    now[0] = 3
    assert again.passed
    assert (late.passed, share.passed) == (False, False)
    cancel.set()
    assert share.passed
    for moment, over in ((3, False), (7, False), (8, True)):  # five seconds after the cancel
        now[0] = moment
        assert late.passed == over


def front(items: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Those that no other one is at most as large as everywhere, each once."""

    def below(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        return one != other and all(a <= b for a, b in zip(one, other, strict=True))

    return sorted({item for item in items if not any(below(other, item) for other in items)})


@given(PAIRS)
def test_of_two_criteria_the_first_of_equal_items_stays(items: list[tuple[int, ...]]) -> None:
    numbered = [*enumerate(items)]
    found = staircase(numbered, lambda item: item[1], lambda item: item[1][1])
    assert found == [(items.index(pair), pair) for pair in front(items)]


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=12), st.integers(1, 5))
def test_more_criteria(items: list[tuple[int, ...]], most: int) -> None:
    assert nondominated(items) == front(items)
    assert nondominated(items, most) == front(items)[:most]


@given(st.lists(st.integers(0, 50)), st.integers(1, 60), st.integers(1, 60))
@example([4, 6, 10, 15, 24, 1], 10, 25)  # exactly at the limits
@example([9, 1, 24], 10, 25)
def test_ddp_buckets_hold_everything_and_fill_up_before_they_close(
    sizes: list[int], first: int, limit: int
) -> None:
    buckets, left = ddp_buckets(sizes, first, limit), iter(sizes)
    assert all(buckets)
    held = [[*islice(left, members)] for members in buckets]
    assert sum(buckets) == len(sizes)
    for number, bucket in enumerate(held, start=1):
        bound = first if number == 1 else limit
        assert sum(bucket[:-1]) < bound
        assert sum(bucket) >= bound or number == len(held)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=6),
    st.integers(0, 9),
)
def test_the_earliest_end_is_the_best(parts: list[tuple[int, int]], startup: int) -> None:
    parts.sort(reverse=True)
    moments, sizes = zip(*parts, strict=True)
    sent = list(accumulate(sizes))
    ends = []
    for cuts in product((False, True), repeat=len(parts) - 1):
        borders = [0, *(place for place, cut in enumerate(cuts, start=1) if cut), len(parts)]
        batches = enumerate(pairwise(borders), start=1)
        ends.append(max(n * startup + sent[stop - 1] + moments[at] for n, (at, stop) in batches))
    assert earliest_end(moments, sent, startup) == min(ends)


def found(start: int, first: list[int], budget: int = 1000, **more: Any) -> tuple[int, list[int]]:
    """Return the plan found, where plans cost what they are, and the plans that are valued.

    Neighbours of a number are those by one from it.
    """
    valued: list[int] = []

    def value(plan: int) -> int | None:
        valued.append(plan)
        return None if plan % 10 == 7 else plan

    known = {"bound": 0, "target": 0, "deadline": NEVER, "budget": lambda _: budget, **more}
    best, least = local_search(start, value, first, lambda n: iter((n + 1, n - 1)), **known)
    assert best == least
    return best, valued


@given(st.integers(0, 6), st.lists(st.integers(0, 50)), st.integers(0, 20))
def test_it_is_never_worse_than_its_start_and_values_nothing_twice(
    start: int, first: list[int], budget: int
) -> None:
    best, valued = found(start, first, budget=budget)
    assert best <= min((start, *(plan for plan in first if plan % 10 != 7)))
    assert len(valued) == len(set(valued)) <= 1 + len(first) + budget
    assert best == 0 or budget < 2 * start


def test_candidates_are_valued_down_to_the_bound_and_neighbours_to_the_target() -> None:
    """What is near the bound is not improved, but a better one that is there is taken."""
    assert found(16, [15, 13, 12, 11], bound=12, target=16) == (12, [16, 15, 13, 12])
    assert found(16, [15, 14], bound=12, target=15) == (14, [16, 15, 14])
    assert found(16, [15], bound=12, target=14)[0] == 14
    assert found(12, [11], bound=12, target=15) == (12, [12])


def test_it_stops_in_time_and_at_plans_that_are_not_allowed() -> None:
    assert found(18, [7, 17])[0] == 18
    assert found(16, [3, 2], deadline=LATE) == (16, [16])
    never = Mock(side_effect=AssertionError)  # to make a neighbour may take long
    known: dict[str, Any] = {"bound": 0, "target": 0, "budget": lambda _: 9}
    assert local_search(16, int, [], never, deadline=LATE, **known) == (16, 16)


def knapsack(least: int = 0) -> tuple[Any, list[Any]]:
    """Return a model with many solutions, of which one or few are best, and its choices."""
    model = cp_model.CpModel()
    weights = [31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97]
    chosen = [model.new_bool_var(f"x{weight}") for weight in weights]
    total = sum(weight * one for weight, one in zip(weights, chosen, strict=True))
    model.add(total <= 500)
    model.add(total >= least)
    model.maximize(sum((2 * weight + 7) * one for weight, one in zip(weights, chosen, strict=True)))
    return model, chosen


FIRST = {"stop_after_first_solution": True, "cp_model_presolve": False, "linearization_level": 0}


@pytest.mark.parametrize(
    ("least", "deadline", "options", "known"),
    [
        (0, NEVER, {}, [True, True]),
        (0, NEVER, FIRST, [True, False]),
        (501, NEVER, {}, [False, True]),
        (0, LATE, {}, [False, False]),
    ],
)
def test_what_is_known_of_a_solution_or_that_there_is_none(
    least: int, deadline: Deadline, options: dict[str, Any], known: list[bool]
) -> None:
    model, chosen = knapsack(least)
    solver, *found = solved(model, deadline, **options)
    assert found == known
    if all(known):
        again, *_ = solved(model, deadline, **options)
        assert [solver.value(one) for one in chosen] == [again.value(one) for one in chosen]


LASTS = {"rule": 7, "search": 9, "ab": 5, "abc": 4, "abcd": 6, "late": 8}


def family(asked: list[str], *, joins: bool = False) -> contention.ContentionPlanner[str, str]:
    """A family whose search answers `search`, then `late`, always the same way."""

    def ask(plan: str | None, charged: int) -> str:
        if charged > 10**9:
            raise InvalidInputError("network", "too slow")
        asked.append(f"{plan} {charged}")
        return "late" if plan == "search" else "search"

    def search(problem: str) -> Iterator[Outcome[str]]:
        yield Outcome(problem, timed_out=problem == "late")

    def joined(plan: str, place: int) -> str | None:
        if not joins or plan not in ("rule", "ab", "abc"):
            return None
        return {"rule": "ab", "ab": "abc", "abc": "abcd"}[plan] if place == 0 else None

    return contention.ContentionPlanner(LASTS.__getitem__, tuple, ask, search, joined)


@pytest.mark.parametrize(
    ("first", "more", "outcome", "searches"),
    [
        ("rule", {}, Outcome("rule", timed_out=True), 3),
        (None, {"charge": 0}, Outcome("late", timed_out=True), 3),
        # What is near its bound is left at that.
        ("rule", {"joins": True, "least_ns": 7}, Outcome("rule"), 0),
        ("rule", {"joins": True, "least_ns": 5}, Outcome("ab"), 0),
        # Neighbours are merged while that is shorter.
        ("rule", {"joins": True, "charge": 0}, Outcome("abc", timed_out=True), 3),
        # What cannot be counted is not asked.
        ("rule", {"charge": 2**62}, Outcome("rule", timed_out=True), 2),
        # When the time is up one plan is enough.
        ("search", {"deadline": LATE}, Outcome("search", timed_out=True), 0),
        (None, {"deadline": LATE}, Outcome("search", timed_out=True), 1),
        # Of very many transfers one search has to do.
        ("rule", {"transfers": contention.MANY}, Outcome("rule", timed_out=True), 3),
        ("rule", {"transfers": contention.MANY + 1}, Outcome("rule"), 1),
    ],
)
def test_under_contention_the_best_plan_is_kept_and_no_more_is_asked_than_need_be(
    first: str | None, more: dict[str, Any], outcome: Outcome[str], searches: int
) -> None:
    given = {"joins": False, "charge": 3, "deadline": NEVER, "least_ns": 0, **more}
    asked: list[str] = []
    words = family(asked, joins=given["joins"])
    if "transfers" in more:
        words = replace(words, transfers=lambda plan: range(more["transfers"]))
    plans = iter([Outcome(first)] if first else [])
    found = contention.best_under_contention(
        words, plans, given["charge"], given["deadline"], given["least_ns"]
    )
    assert found == outcome
    assert asked == ["None 0", "search 0", f"late {given['charge']}"][:searches]


@pytest.mark.parametrize("count", [100, 4000, 50_000])
def test_merging_looks_at_fewer_plans_of_very_many_transfers(count: int) -> None:
    looked = 0

    def lasts(plan: range) -> int:
        nonlocal looked
        looked += len(plan)
        return len(plan) if len(plan) > count - 2 else count  # two neighbours may be merged

    family: contention.ContentionPlanner[None, range] = contention.ContentionPlanner(
        lasts,
        lambda plan: plan,
        lambda plan, charged: None,
        lambda problem: [Outcome(range(count))],
        lambda plan, place: plan[1:],
    )
    found = contention.best_under_contention(family, (), 0, NEVER).plan
    assert found is not None
    assert len(found) == count - 1
    assert looked <= contention.MERGING**2 // max(contention.MERGING, count**2) + 5 * count


def test_nothing_is_made_or_priced_after_the_deadline() -> None:
    """But for the first plan: a price of thousands of transfers takes long."""
    priced: list[str] = []

    def lasts(plan: str) -> int:
        priced.append(plan)
        return LASTS[plan]

    def first() -> Iterator[Outcome[str]]:
        yield Outcome("rule")
        raise AssertionError

    words = replace(family([]), lasts=lasts)
    assert contention.best_under_contention(words, first(), 3, LATE).plan == "rule"
    assert priced == ["rule"]


def test_the_mean_slowdown_is_rounded_up() -> None:
    assert contention.mean_slowdown(3, 2) == Fraction(3, 2)
    assert contention.mean_slowdown(0, 0) == 1
    assert contention.mean_slowdown(10, 3) * 3 >= 10


times = st.integers(0, 20) | st.integers(0, 10**8)
Case = tuple[list[int], list[int], list[TimedTransfer], bool]


@st.composite
def iterations(draw: st.DrawFn) -> Case:
    backward = draw(st.lists(times, max_size=5))
    forward = draw(st.lists(times, min_size=1, max_size=5))
    work = st.integers(0, sum(backward))
    needed = st.integers(0, len(forward) - 1)
    transfer = st.builds(TimedTransfer, work, times, needed, times, st.just(0), st.just(0))
    return backward, forward, draw(st.lists(transfer, max_size=6)), draw(st.booleans())


@given(iterations())
def test_the_largest_end_plus_tail_decides(case: Case) -> None:
    backward, forward, transfers, barrier = case
    result = simulate(backward, forward, transfers, barrier=barrier)
    left = [*accumulate(reversed(forward))][::-1]
    free, end = 0, sum(backward) + sum(forward)
    for transfer in transfers:
        free = max(free, transfer.ready_ns, transfer.not_before_ns) + transfer.duration_ns
        end = max(end, free + left[0 if barrier else transfer.needed_by])
    assert result.end_ns == end


@st.composite
def disturbed(draw: st.DrawFn) -> Case:
    backward, forward, transfers, barrier = draw(iterations())
    slowdown = Fraction(draw(st.integers(4, 12)), 4) + Fraction(draw(st.integers(0, 99)), 1000)
    beside = Interference(slowdown=slowdown, delay_ns=draw(st.integers(0, 9)))
    transfers = [
        transfer._replace(
            processor_ns=draw(st.integers(0, transfer.duration_ns)),
            slower_ns=beside.overlapped_ns(transfer.duration_ns) - transfer.duration_ns,
        )
        for transfer in transfers
    ]
    return backward, forward, transfers, barrier


@given(disturbed())
def test_what_is_done_in_every_time_is_what_there_was_to_do(case: Case) -> None:
    backward, forward, transfers, barrier = case
    result = simulate(backward, forward, transfers, barrier=barrier)
    alone = [transfer.duration_ns for transfer in transfers]
    processor = [transfer.processor_ns for transfer in transfers]
    spans = (*result.backward, *result.forward)
    beside = [transfer.duration_ns + transfer.slower_ns for transfer in transfers]
    done = progress(spans, result.transfers, alone, processor, beside)
    for work, duration, borders in zip(done.ops, backward + forward, done.borders, strict=True):
        assert abs(Fraction(work - duration)) <= 3 * borders
    for part, duration in zip(done.transfers, alone, strict=True):
        assert abs(Fraction(part - duration)) <= 3
    assert sum(done.ops) >= sum(backward) + sum(forward) - 3 * len(transfers) - 3
    for number, (transfer, before) in enumerate(zip(transfers, done.before, strict=True)):
        assert before >= transfer.ready_ns - 3 * (number + 1)


@given(disturbed())
def test_the_same_schedule_comes_of_what_ops_and_transfers_took_none_of_it_earlier(
    case: Case,
) -> None:
    """Readers of answers know only the times, and simulate them again."""
    backward, forward, transfers, barrier = case
    result = simulate(backward, forward, transfers, barrier=barrier)
    rows = zip(transfers, result.ready, result.transfers, strict=True)
    took = [TimedTransfer(0, end - start, one.needed_by, at) for one, at, (start, end) in rows]
    backward, forward = (
        [end - start for start, end in spans] for spans in (result.backward, result.forward)
    )
    again = simulate(backward, forward, took, barrier=barrier)
    assert replace(again, ready=result.ready) == result
    alone = [transfer._replace(processor_ns=0, slower_ns=0) for transfer in transfers]
    free = simulate(case[0], case[1], alone, barrier=barrier)
    for late, early in zip(result.transfers, free.transfers, strict=True):
        assert late[0] >= early[0]
        assert late[1] >= early[1]
    assert result.end_ns >= free.end_ns


def test_stalls_and_transfers_beside_computation_by_hand() -> None:
    assert simulate([10], [5, 5], [TimedTransfer(10, 8, 1)]).forward == ((10, 15), (18, 23))
    waits = simulate([10], [5, 5], [TimedTransfer(10, 8, 1)], barrier=True)
    assert waits.forward[0] == (18, 23)
    transfer = TimedTransfer(10, 8, 1, processor_ns=4)
    # Beside 8 ns of the second op: 4 ns of it are done, and the other 6 afterwards.
    result = simulate([10, 10], [5, 5], [transfer])
    assert result.backward == ((0, 10), (10, 24))
    assert result.transfers == ((10, 18),)
    # Twice as long, until computation has nothing left to do.
    slowed = simulate([10, 1], [2], [TimedTransfer(10, 8, 0, slower_ns=8)])
    assert slowed.backward == ((0, 10), (10, 11))
    assert slowed.transfers == ((10, 19),)
    assert slowed.forward == ((19, 21),)


@given(st.lists(st.builds(lambda a, b: (a, a + b), st.integers(0, 30), st.integers(0, 10))))
def test_a_union_is_measured_exactly_and_a_peak_is_when_the_most_is_first_in_use(
    lane: list[tuple[int, int]],
) -> None:
    assert busy_ns(lane) == len({moment for start, end in lane for moment in range(start, end)})
    assert Memory(((0, 3), (10, 7), (20, 5), (30, 7), (40, 0))).peak == (10, 7)
