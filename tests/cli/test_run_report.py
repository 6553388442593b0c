"""What `planner run` concludes from its rounds, and from the threads of the ranks."""

from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from planner.cli import run_report
from planner.cli.run_report import Ran, against, as_json, other_threads, report
from planner.runtime.measuring.measured import StepTime
from planner.solving.diagnostics import Circumstances


class Trial(tuple[tuple[Any, ...], int]):
    """A run of one step, without transfers."""

    __slots__ = ()
    warmup = 0
    steps: ClassVar[tuple[StepTime, ...]] = (StepTime(1, 0, 0, 0, 1),)


@pytest.mark.parametrize(
    ("profiled", "each", "said"),
    [
        (2, (1, 1), "measured with 2 threads, a rank here computes with 1 thread: give"),
        (1, (2, 2), "measured with 1 thread, a rank here computes with 2 threads: give"),
        (2, (1, 2), "measured with 2 threads, a rank here computes with 1 to 2 threads: give"),
        (2, (2, 2), None),
        (UNSET, (2, 2), None),
    ],
)
def test_other_threads_than_the_profile_s_are_a_warning(
    profiled: Any, each: tuple[int, ...], said: str | None
) -> None:
    plan: Any = SimpleNamespace(profile_threads=profiled)
    warnings = other_threads([plan], each)
    assert (said in warnings[0]) if said else warnings == ()


def test_a_busy_machine_is_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_report, "_collective", lambda _: "ring(2)")
    options = SimpleNamespace(model="m", optimizer="sgd", bcube=None, plans=[])
    answer = SimpleNamespace(headline=str, profile_threads=UNSET, warnings=(), problem="caramel")

    def ran(others: float) -> Ran:
        machine = Circumstances(threads=2, processors=2, others=others)
        parts: tuple[Any, ...] = (options, [answer], [Trial(((), 0))], [], (1, 1), machine)
        return Ran(*parts)

    said = report(ran(1.5)).splitlines()[-1]
    assert said.startswith("warning: other processes kept 1.5 of 2 processors busy")
    assert said.endswith("measure again without them")
    told = msgspec.json.decode(as_json(ran(1.5)))["warnings"]
    assert told == [said.removeprefix("warning: ")]
    assert "other processes" not in report(ran(0.1))


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
