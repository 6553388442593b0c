"""The picture of a run: what was predicted and measured, on one axis."""

from planner import solve
from planner.programs import read_plan
from planner.runtime.measuring.drawn import beside_each_other, predicted_timeline, shown_step
from planner.runtime.measuring.trace import Event
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
            Event("forward", step + 1, -1, middle, now + length),
        ]
        now += length
    return events


def test_the_step_shown_is_the_usual_one_after_the_first() -> None:
    events = steps(50, 90, 52, 70, 50)
    assert shown_step(events, [49, 51, 60]) == (2, 1140, 1192)
    assert shown_step(events, [80]) == (1, 1050, 1140)
    assert shown_step(steps(50, 90), [80]) == (0, 1000, 1050)


def test_both_are_on_one_axis_and_the_title_has_their_ratio() -> None:
    answer = read_plan(solve(CARAMEL))
    predicted = predicted_timeline([answer])
    assert predicted is not None
    title, shown, bound = beside_each_other("m", [answer], steps(50, 100, 50), [100])
    assert f"{100 / predicted.end_ns:.2f} times as long as predicted" in title
    assert bound == answer.lower_bound_ns
    assert [mark.time_ns for mark in shown.marks] == [predicted.end_ns, 100]
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
    title, shown, bound = beside_each_other("m", both[:1], steps(50, 100, 50), [100])
    assert "plans predict no whole step" in title
    assert bound is None
    assert shown.resources == ("computation, measured", "network, measured")
