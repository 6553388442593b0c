"""The picture of a run: what was predicted and measured, on one axis."""

from planner import solve
from planner.programs import read_plan
from planner.runtime.executors.trace import Event
from planner.runtime.measuring.measured import (
    beside_each_other,
    compared,
    predicted_timeline,
    shown_step,
    slowest,
)
from tests.timelines import check_serial

CARAMEL = {
    "problem": "caramel",
    "ops": [
        {"name": "f", "ns": 10, "pass": "forward", "after": []},
        {"name": "b", "ns": 20, "pass": "backward", "after": ["f"]},
    ],
    "parameters": [{"name": "w", "bytes": 64, "updated_by": "b", "read_by": "f"}],
    "network": {"startup_ns": 5, "ns_per_byte": 1},
}
IBATCH = {"problem": "ibatch", "startup_ns": 5, "transfer_ns": [9, 2], "compute_ns": [7, 3]}


def steps(*lengths: int) -> list[Event]:
    """Steps that are half backward pass and half forward pass, with a transfer in each."""
    events, now = [], 1000
    for step, length in enumerate(lengths):
        middle = now + length // 2
        events += [
            Event("backward", step, -1, now, middle),
            Event("transfer", step, 0, middle - 5, middle),
            Event("step", step, -1, middle - length, middle),
            Event("forward", step + 1, -1, middle, now + length),
        ]
        now += length
    return events


def test_the_step_shown_is_the_usual_one_of_those_that_count() -> None:
    first, second = ([steps(50, 90, 52, 70, 50)], 1), ([steps(50, 80, 50), steps(58, 60, 50)], 0)
    assert shown_step([first], 50) == (0, 0, 2, 52)
    assert shown_step([first, second], 50) == (1, 0, 0, 50)
    assert shown_step([first, second], 61) == (1, 1, 1, 60)
    assert shown_step([([steps(50, 90)], 0)], 80) == (0, 0, 0, 50)


def test_both_are_on_one_axis_and_the_title_has_the_median_of_the_table() -> None:
    answer = read_plan(solve(CARAMEL))
    predicted = predicted_timeline([answer])
    assert predicted is not None
    rounds = [([steps(50, 70, 60, 50)], 1), ([steps(50, 104, 104, 50), steps(50, 98, 66, 50)], 1)]
    times = [step for events, first in rounds for step in slowest(events, first)]
    assert compared([answer], times)[0].median_ns == 65  # of 70, 60, 50, 104, 104, 50
    title, shown, _ = beside_each_other("m", [answer], rounds)
    assert title == (
        "m: median step 65 ns (nearest, shown: rank 1, round 2, step 2), "
        f"{65 / predicted.end_ns:.2f} times as long as predicted"
    )
    assert [mark.time_ns for mark in shown.marks] == [predicted.end_ns, 66]
    assert shown.resources == tuple(
        f"{lane}, {which}"
        for lane in ("computation", "network")
        for which in ("predicted", "measured")
    )
    check_serial(shown)
    for lane in ("computation", "network"):
        assert [(one.start_ns, one.end_ns) for one in shown.on(f"{lane}, predicted")] == [
            (one.start_ns, one.end_ns) for one in predicted.on(lane)
        ]


def test_no_bound_above_what_was_measured() -> None:
    answer = read_plan(solve(CARAMEL))
    assert answer.lower_bound_ns is not None
    quick, slow = answer.lower_bound_ns - 2, answer.lower_bound_ns + 2
    assert beside_each_other("m", [answer], [([steps(quick, quick)], 0)])[2] is None
    assert beside_each_other("m", [answer], [([steps(slow, slow)], 0)])[2] is not None


def test_a_push_and_a_pull_are_a_step_and_one_of_them_is_none() -> None:
    both = [read_plan(solve({**IBATCH, "direction": way})) for way in ("pull", "push")]
    predicted = predicted_timeline(both)
    assert predicted is not None
    pushed = max(
        interval.end_ns for interval in predicted.intervals if interval.kind in ("push", "backward")
    )
    assert pushed == both[1].objective_ns
    assert (
        min(interval.start_ns for interval in predicted.intervals if interval.kind == "startup")
        < pushed
    )
    assert predicted.end_ns == sum(one.objective_ns or 0 for one in both)
    title, shown, bound = beside_each_other("m", both[:1], [([steps(50, 100, 50)], 0)])
    assert "plans predict no whole step" in title
    assert bound is None
    assert shown.resources == ("computation, measured", "network, measured")
