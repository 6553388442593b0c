"""What was measured, from events written by hand."""

from typing import Any

import pytest

from planner import solve
from planner.jsonio.ibatch import IbatchAnswer
from planner.programs import Answer, read_plan
from planner.runtime.executors.trace import Event
from planner.runtime.measuring.measured import (
    MeasuredTime,
    StepTime,
    batches_of,
    beside_each_other,
    compared,
    mean_steps,
    predicted_timeline,
    shown_step,
    steps_of,
    timeline_of,
)
from tests.timelines import check_serial


def solved(**request: Any) -> Answer:
    return read_plan(solve(request))


CARAMEL = solved(
    problem="caramel",
    ops=[
        {"name": "f", "ns": 10, "pass": "forward", "after": []},
        {"name": "b", "ns": 20, "pass": "backward", "after": ["f"]},
    ],
    parameters=[{"name": "w", "bytes": 64, "updated_by": "b", "read_by": "f"}],
    network={"startup_ns": 5, "ns_per_byte": 1},
)
PULL, PUSH = (
    solved(
        problem="ibatch", startup_ns=5, transfer_ns=[9, 2], compute_ns=[7, 3], direction=direction
    )
    for direction in ("pull", "push")
)

STEP = [
    Event("wait", 0, 1, 110, 130),  # of the step before, in this step's forward pass
    Event("forward", 1, -1, 100, 160),
    Event("backward", 1, -1, 160, 200),
    Event("transfer", 1, 0, 170, 190),
    Event("wait", 1, 0, 205, 215),
    Event("step", 1, -1, 100, 220),
    Event("transfer", 1, 1, 190, 260),
    Event("wait", 1, 1, 230, 260),  # in the next step
    Event("forward", 2, -1, 222, 280),
    Event("backward", 2, -1, 281, 300),
    Event("step", 2, -1, 220, 300),
]
EARLIER = [event._replace(start_ns=event.start_ns - 5) for event in STEP]


def test_a_step_lasts_between_calls_and_waits_count_where_they_happen() -> None:
    first, second = StepTime(120, 20 + 10, 60, 40, 60 - 20 + 40), StepTime(80, 30, 61, 19, 47)
    assert steps_of(STEP) == {1: first, 2: second}
    assert steps_of(STEP[:-1]) == {1: first}  # an unfinished step is none


def test_phases_end_with_the_last_push_and_begin_with_the_first_pull() -> None:
    events = [event for event in STEP if event.kind != "transfer"]
    pushed = [*events, Event("transfer", 1, 0, 170, 214, "push")]
    assert steps_of(pushed)[1].backward_phase_ns == 214 - 160
    pulls = [Event("transfer", 1, batch, 225 + batch, 240, "pull") for batch in (1, 0)]
    assert steps_of(STEP + pulls)[2].forward_phase_ns == 281 - 225
    assert steps_of([*STEP, pulls[0]._replace(start_ns=210)])[2].forward_phase_ns == 281 - 220


def test_the_mean_over_the_ranks_counts_field_by_field() -> None:
    later = [event._replace(end_ns=event.end_ns + 1000 * (event.kind == "step")) for event in STEP]
    quick = [event for event in later if event.kind != "wait"]
    both = mean_steps([STEP, quick], 1)
    assert [(step.step_ns, step.exposed_ns) for step in both] == [(620, 15), (580, 15)]
    assert mean_steps([STEP, STEP[:-1]], 0) == (steps_of(STEP)[1],)  # complete on all ranks
    assert mean_steps([STEP], 3) == ()


def test_batches_take_as_long_as_on_the_slowest_rank_which_others_wait_for() -> None:
    for ranks in ([STEP, EARLIER], [EARLIER, STEP]):
        first, second = batches_of([(ranks, 0)])
        assert (first.direction, first.batch, second.direction, second.batch) == ("", 0, "", 1)
        assert (first.measured_ns, first.sending_ns, first.waited_ns) == ((25,), (20,), (5,))
        assert (second.measured_ns, second.sending_ns, second.waited_ns) == ((75,), (70,), (5,))
    assert batches_of([([STEP], 0)])[0].waited_ns == (0,)
    (both, _) = batches_of([([STEP, EARLIER], 0), ([STEP], 0)])
    assert (both.measured_ns, both.waited_ns) == ((25, 20), (5, 0))


def test_a_timeline_shows_every_rank_from_its_own_backward_pass_on() -> None:
    shifted = [
        event._replace(start_ns=event.start_ns + 10**6, end_ns=event.end_ns + 10**6)
        for event in STEP
    ]
    timeline = timeline_of([STEP, shifted], 1)
    check_serial(timeline)
    computation, network, *others = (
        [(interval.start_ns, interval.end_ns, interval.kind) for interval in timeline.on(resource)]
        for resource in timeline.resources
    )
    assert computation == [(0, 40, "backward"), (62, 70, "forward"), (100, 120, "forward")]
    assert network == [(10, 30, "all_reduce"), (30, 100, "all_reduce")]
    assert others == [computation, network]


def rows(answers: list[Answer], steps: list[StepTime]) -> dict[str, MeasuredTime]:
    return {row.name: row for row in compared(answers, steps)}


def test_each_plan_predicts_what_it_is_about_and_errors_are_relative_to_the_measured() -> None:
    times = (100, 60, 50, 50, 40), (140, 70, 60, 80, 70), (120, 80, 55, 65, 40)
    steps = [StepTime(*each) for each in times]
    found = rows([CARAMEL], steps)
    assert found["step"] == MeasuredTime("step", 10 + 20 + 64 + 5, (100, 140, 120))
    assert found["exposed communication"].predicted_ns == 69
    assert found["computation"] == MeasuredTime("computation", 10 + 20, (40, 70, 40))
    assert found["step"].median_ns == 120
    for predicted, measured, error in ((None, 5, None), (0, 5, -1), (9, 6, 0.5), (5, 0, None)):
        assert MeasuredTime("x", predicted, (measured,)).error == error  # the third too long
    assert found["step"].error == pytest.approx(99 / 120 - 1)  # it took longer: too short
    assert isinstance(PULL, IbatchAnswer)
    assert isinstance(PUSH, IbatchAnswer)
    found = rows([PULL, PUSH], steps)
    assert found["forward phase"].predicted_ns == PULL.makespan_ns
    assert found["backward phase"].predicted_ns == PUSH.makespan_ns
    assert found["step"].predicted_ns == PULL.makespan_ns + PUSH.makespan_ns
    found = rows([PULL], steps)
    assert not {"backward phase", "computation"} & set(found)
    assert found["step"] == MeasuredTime("step", None, (100, 140, 120))
    sizes = {"elements": 100, "element_bytes": 4, "nodes": 2, "partitions_per_node": 1}
    slices = solved(problem="bigdl", link_bytes_per_s=1e9, **sizes)
    found = rows([slices], steps)
    assert found["exposed communication"].predicted_ns == slices.objective_ns
    assert found["step"].predicted_ns is None


# ---
# The picture of a run: what was predicted and measured, on one axis.


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
    predicted = predicted_timeline([CARAMEL])
    assert predicted is not None
    rounds = [([steps(50, 70, 60, 50)], 1), ([steps(50, 104, 104, 50), steps(50, 98, 66, 50)], 1)]
    times = [step for events, first in rounds for step in mean_steps(events, first)]
    assert compared([CARAMEL], times)[0].median_ns == 65  # of 70, 60, 50, 104, 104, 50
    title, shown, _ = beside_each_other("m", [CARAMEL], rounds)
    assert title == (
        "m: median step 65 ns (nearest, shown: rank 1, round 2, step 2), "
        f"{65 / predicted.end_ns:.2f} times as long as predicted"
    )
    assert [mark.time_ns for mark in shown.marks] == [predicted.end_ns, 66]
    lanes = ("computation", "network")
    assert shown.resources == tuple(
        f"{lane}, {which}" for lane in lanes for which in ("predicted", "measured")
    )
    check_serial(shown)
    for lane in lanes:
        assert [(one.start_ns, one.end_ns) for one in shown.on(f"{lane}, predicted")] == [
            (one.start_ns, one.end_ns) for one in predicted.on(lane)
        ]


def test_no_bound_above_what_was_measured() -> None:
    least = CARAMEL.lower_bound_ns
    assert least is not None
    for step, bound in ((least - 2, None), (least + 2, least)):
        assert beside_each_other("m", [CARAMEL], [([steps(step, step)], 0)])[2] == bound


def test_a_push_and_a_pull_are_a_step_and_one_of_them_is_none() -> None:
    predicted = predicted_timeline([PULL, PUSH])
    assert predicted is not None
    spans = predicted.intervals
    pushed = max(span.end_ns for span in spans if span.kind in ("push", "backward"))
    assert pushed == PUSH.objective_ns
    assert min(span.start_ns for span in spans if span.kind == "startup") < pushed
    assert predicted.end_ns == (PULL.objective_ns or 0) + pushed
    title, shown, bound = beside_each_other("m", [PULL], [([steps(50, 100, 50)], 0)])
    assert "plans predict no whole step" in title
    assert bound is None
    assert shown.resources == ("computation, measured", "network, measured")
