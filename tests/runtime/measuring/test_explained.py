"""What of a run was off, and why: events and plans made up, sentences held against them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import planner
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.service import decode_answer
from planner.model.machine import Load
from planner.runtime.measuring.explained import Run, against, explained, other_threads, together
from planner.runtime.measuring.trace import Event
from planner.solving.diagnostics import Circumstances

QUIET = Circumstances(threads=2, processors=8, others=0.0, ranks=2)

REQUEST = {
    "problem": "caramel",
    "ops": [
        {"name": "f1", "ns": 30_000, "pass": "forward", "after": []},
        {"name": "f2", "ns": 30_000, "pass": "forward", "after": ["f1"]},
        {"name": "b2", "ns": 20_000, "pass": "backward", "after": ["f2"]},
        {"name": "b1", "ns": 20_000, "pass": "backward", "after": ["b2", "f1"]},
    ],
    "parameters": [
        {"name": "w2", "bytes": 10_000, "updated_by": "b2", "read_by": "f2"},
        {"name": "w1", "bytes": 10_000, "updated_by": "b1", "read_by": "f1"},
    ],
    "network": {"startup_ns": 1_000, "ns_per_byte": 0.9},
    "method": "layer_by_layer",
}


@pytest.fixture(scope="module")
def plan() -> CaramelAnswer:
    """100 µs of computation; two transfers of 10 µs, the last of them waited for."""
    answer, _ = decode_answer(json.dumps(planner.solve(REQUEST)))
    assert isinstance(answer, CaramelAnswer)
    assert (answer.iteration_ns, answer.stall_ns) == (110_000, 10_000)
    return answer


def run_of(
    *,
    compute: float = 1.0,
    transfer: float = 1.0,
    late: int = 0,
    update: int = 0,
    order: tuple[int, ...] = (0, 1),
    steps: int = 4,
) -> Run:
    """Return a run whose parts take so many times as long as planned; rank 1 comes late."""
    ranks: list[tuple[Event, ...]] = []
    for rank in (0, 1):
        events, now = [], 1_000_000
        for step in range(steps):
            begin, wait = now, round(10_000 * transfer)
            events.append(Event("wait", step, 1, now, now + wait))
            forward = now + wait + round(60_000 * compute)
            backward = forward + round(40_000 * compute)
            events.append(Event("forward", step, -1, now, forward))
            events.append(Event("backward", step, -1, forward, backward))
            for place, batch in enumerate(order):
                start = forward + 1_000 * place
                length = round(10_000 * transfer) + (late if rank == 0 else 0)
                events.append(Event("transfer", step, batch, start, start + length))
            now = backward + update
            events.append(Event("step", step, -1, begin, now))
        ranks.append(tuple(events))
    return ranks, 1


def test_as_predicted(plan: CaramelAnswer) -> None:
    assert explained([plan], [run_of()], QUIET) == ("a step took what was predicted, within 10%",)


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (QUIET, "nothing else ran here that would explain it"),
        (None, "nothing else ran here that would explain it"),
        (
            Circumstances(threads=4, processors=2, ranks=2),
            "2 ranks with 4 threads in all on 2 proc",
        ),
        (Circumstances(threads=2, processors=2, others=1.5), "other processes kept 1.5 of 2"),
    ],
)
def test_slow_computation_has_a_reason(
    plan: CaramelAnswer, machine: Circumstances | None, why: str
) -> None:
    first, second = explained([plan], [run_of(compute=1.8)], machine)
    assert first == "a step took 80 µs more than the 110 µs predicted"
    assert "computation took 1.80 times as long as in the profile (180 µs, not 100 µs)" in second
    assert why in second


def test_fast_computation_is_one_of_the_profile(plan: CaramelAnswer) -> None:
    _, second = explained([plan], [run_of(compute=0.5)], QUIET)
    assert "took 0.50 times" in second
    assert "busier or slower machine" in second


@pytest.mark.parametrize(
    ("profiled", "each", "said"),
    [
        (2, (1, 1), "measured with 2 threads, a rank here computes with 1 thread: profile again"),
        (1, (2, 2), "measured with 1 thread, a rank here computes with 2 threads: profile again"),
        (2, (1, 2), "measured with 2 threads, a rank here computes with 1 to 2 threads: give"),
    ],
)
@pytest.mark.parametrize("compute", [0.5, 1.8])
def test_other_threads_than_the_profile_s_are_the_reason(
    plan: CaramelAnswer, profiled: int, each: tuple[int, ...], said: str, compute: float
) -> None:
    made = replace(plan, profile_threads=profiled)
    machine = Circumstances(threads=2, processors=2, ranks=2, each=each)
    _, second = explained([made], [run_of(compute=compute)], machine)
    assert said in second
    assert "busier" not in second
    assert "nothing else ran here" not in second
    assert said in other_threads([made], each)[0]


def test_the_same_threads_and_unknown_ones_are_no_reason(plan: CaramelAnswer) -> None:
    assert other_threads([replace(plan, profile_threads=2)], (2, 2)) == ()
    assert other_threads([replace(plan, profile_threads=2)], ()) == ()
    assert other_threads([plan], (2, 2)) == ()


def test_slow_transfers_say_how_much(plan: CaramelAnswer) -> None:
    found = explained([plan], [run_of(transfer=3)], QUIET)
    assert found[1] == "computation waited 30 µs for transfers, 20 µs more than predicted"
    assert found[2].startswith("transfers took 3.00 times as long as the plan's network says")
    assert "batch 1 most: 3.00 times" in found[2]
    faster = explained([plan], [run_of(transfer=0.5)], QUIET)[-1]
    assert "0.50 times" in faster
    assert "faster than was calibrated" in faster


def test_waiting_for_a_late_rank_is_no_slow_transfer(plan: CaramelAnswer) -> None:
    assert len(explained([plan], [run_of(late=50_000)], QUIET)) == 1


def test_what_matters_most_comes_first(plan: CaramelAnswer) -> None:
    found = explained([plan], [run_of(compute=1.3, transfer=11, update=50_000)], QUIET)
    assert len(found) == 5
    assert "waited" in found[1]
    assert "update" in found[2]
    assert "1.30 times" in found[3]


def test_a_plan_for_one_direction_is_held_against_its_pass() -> None:
    request: dict[str, Any] = {
        "problem": "ibatch",
        "direction": "push",
        "startup_ns": 1_000,
        "transfer_ns": [9_000, 9_000],
        "compute_ns": [10_000, 10_000],
    }
    answer, _ = decode_answer(json.dumps(planner.solve(request)))
    found = explained([answer], [run_of()], QUIET)
    assert any("computation of the backward pass took 2.00 times" in text for text in found)
    assert not any("a step took" in text for text in found)


def test_no_complete_step_explains_nothing(plan: CaramelAnswer) -> None:
    assert explained([plan], [run_of(steps=1)], QUIET) == ()


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=9))
def test_no_difference_exactly_if_1_lies_between(ratios: list[float]) -> None:
    interval = against(ratios)
    assert interval.low <= interval.median <= interval.high
    one_side = all(ratio > 1 for ratio in ratios) or all(ratio < 1 for ratio in ratios)
    assert interval.differs == (one_side and len(ratios) > 1)


def test_the_confidence_is_that_of_a_coin() -> None:
    """All n rounds fall on one side of the median with probability 2 / 2^n."""
    for rounds in range(1, 12):
        assert against([1.0] * rounds).confidence == pytest.approx(1 - 2 / 2**rounds)


def test_ranks_of_one_machine_are_counted_together() -> None:
    said = [["a", 2, 3.0, [0, 1]], ["b", 9, 9.0, [5]], ["a", 1, 1.0, [1, 2]]]
    before, now = Load(0.0, 0.0, 0.0), Load(2.0, 3.0, 5.0)
    found = together(tuple(map(json.dumps, said)), before, now)
    assert (found.threads, found.processors, found.ranks) == (3, 3, 2)
    assert found.each == (2, 9, 1)  # those elsewhere, too
    assert found.others == pytest.approx(0.5)
