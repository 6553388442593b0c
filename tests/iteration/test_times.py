"""When transfers are ready and due, and what start-ups cost, by hand."""

from dataclasses import replace

import pytest

from planner.families.iteration import Problem, Transfer, check, evaluate
from planner.families.iteration.baselines import enforced
from planner.families.iteration.evaluation import check_times, lasting
from planner.model.errors import InvalidPlanError
from planner.solving.transfers import Kind, Part
from tests.iteration.making import chain, on_switch


def test_times_by_hand() -> None:
    """Half a nanosecond a byte and 10 ns to start each way, between two machines."""
    problem = Problem(chain((40, 20, 100), (60, 30, 200)), on_switch(2, 10))
    w1, w2 = Part(0, 0, 100), Part(1, 0, 200)
    sent = [
        Transfer((w2,), kind="push"),  # 30 to 140
        Transfer((w1,), kind="push"),  # to 200
        Transfer((w1,), kind="pull"),  # to 260, when f1 starts
        Transfer((w2,), kind="pull"),  # to 370, when f2 starts
    ]
    found = evaluate(problem, enforced(problem, "ring", sent))
    assert [tuple(times) for times in found.times] == [
        (30, 30, 140, 90),
        (50, 140, 200, 50),
        (200, 200, 260, 50),
        (140, 260, 370, 90),
    ]
    assert found.iteration_ns == 370 + 60
    assert found.startup_ns == 4 * 10
    assert found.communication_ns == 110 + 60 + 60 + 110
    assert found.stall_ns == 430 - 150


def test_a_pull_between_pushes_waits_for_the_backward_pass() -> None:
    """No optimiser steps before: w2 is pushed by 50, when b1 still runs until 70."""
    problem = Problem(chain((40, 40, 100), (60, 30, 20)), on_switch(2, 10))
    w1, w2 = Part(0, 0, 100), Part(1, 0, 20)
    kinds: list[tuple[Kind, Part]] = [("push", w2), ("pull", w2), ("push", w1), ("pull", w1)]
    plan = enforced(problem, "ring", [Transfer((part,), kind=kind) for kind, part in kinds])
    check(problem, plan)
    found = evaluate(problem, plan)
    assert [tuple(times) for times in found.times] == [
        (30, 30, 50, 110),
        (70, 70, 90, 110),
        (70, 90, 150, 70),
        (150, 150, 210, 70),
    ]
    assert found.iteration_ns == lasting(problem, plan)(problem.costs) == 210 + 100
    check_times(problem, plan, found.iteration)
    push, (start, end), *others = found.iteration.transfers
    early = replace(found.iteration, transfers=(push, (start - 1, end - 1), *others))
    with pytest.raises(
        InvalidPlanError, match=r"transfers\[1\].*before the backward pass has ended"
    ):
        check_times(problem, plan, early)
