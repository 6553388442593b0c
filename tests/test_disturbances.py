"""What may have put a measurement off: pure sentences, whatever this machine does now."""

import re
from dataclasses import replace
from mmap import PAGESIZE, mmap
from pathlib import Path
from typing import Any

import pytest

from planner.model.machine import Load, page_faults
from planner.solving.diagnostics import MeasurementConditions, Spread, disturbances

QUIET = MeasurementConditions(threads=2, processors=2, others=0.1, spread=Spread(0.02, 0.2))


def test_a_quiet_machine_is_not_warned_about() -> None:
    """Layers may sum to a fifth less or more than the pass, and spare processors may be busy."""
    assert disturbances(MeasurementConditions(threads=1, processors=1)) == ()
    for share in (0.8, 1, 1.2):
        sums = (share * 10e6, 10e6)
        assert disturbances(replace(QUIET, forward_layers=sums, backward_layers=sums)) == ()
    assert disturbances(replace(QUIET, processors=8, others=6.0)) == ()
    assert disturbances(replace(QUIET, processors=8, others=6.5))
    assert disturbances(replace(QUIET, faults=(2000, 100e6))) == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"threads": 3}, "3 threads on 2 processors"),
        ({"others": 0.9}, "other processes kept 0.9 of 2 processors busy, and 2 were needed"),
        ({"others": 1.4, "threads": 1}, "and 1 was needed here"),
        ({"spread": Spread(0.5, 0.2)}, "whole iterations spreads over 50% of the median"),
        ({"spread": Spread(0.0, 1.05)}, "single layers spreads over 105% of the median"),
        (
            {"forward_layers": (1.9e6, 10.1e6)},
            "of the forward pass sum to 1.9 ms, the whole pass took 10.1 ms: more than 20% apart",
        ),
        ({"backward_layers": (12.1e6, 10e6)}, "of the backward pass sum to 12.1 ms, the whole"),
        ({"faults": (2001, 100e6)}, "2,001 page faults"),
    ],
)
def test_each_number_has_its_sentence_in_the_past(change: dict[str, Any], said: str) -> None:
    (sentence,) = disturbances(replace(QUIET, **change))
    assert said in sentence
    assert not re.search(r"\b(wait|end|is|are)\b", sentence), sentence


def test_causes_come_before_what_they_did() -> None:
    first, *others = disturbances(replace(QUIET, threads=9, spread=Spread(1.0, 1.0)))
    assert "9 threads" in first
    assert len(others) == 2


def test_others_are_what_is_counted_beyond_ones_own() -> None:
    start = Load(10.0, 1.0, 100.0)
    assert Load(12.0, 2.0, 104.0).others(start) == pytest.approx(1.5)
    assert Load(12.0, 2.0, 104.0).others(start, own_s=4.0) == 0
    assert Load(12.0, 9.0, 104.0).others(start) == 0  # ticks of two clocks
    assert Load(10.1, 1.0, 101.0).others(start) is None
    assert Load(12.0, 2.0, None).others(start) is None


def test_the_ranks_of_a_machine_are_not_others_to_each_other() -> None:
    pytest.importorskip("torch")
    from planner.runtime.measuring.trial import load_of

    before, now = Load(10.0, 1.0, 100.0), Load(12.0, 2.0, 104.0)
    alone = [["here", 1, 2.0, [0]], ["here", 1, 2.0, [1]], ["there", 8, 9.0, [0]]]
    assert disturbances(load_of(alone, before, now)) == ()
    (said,) = disturbances(load_of([["here", 1, 1.0, [0]], *alone[1:]][:2], before, now))
    assert said.startswith("other processes kept 0.5 of 2 processors busy")
    assert said.endswith("measure again without them")


def test_new_pages_are_counted() -> None:
    before = page_faults()
    with mmap(-1, 256 * PAGESIZE) as pages:
        for place in range(256):
            pages[place * PAGESIZE] = 1
        assert page_faults() > before


def test_what_linux_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda _: 100)
    file = tmp_path / "stat"
    assert Load.now(file).all_s is None
    file.write_text("cpu  100 20 30 9999 8888 5 5 40 7 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    assert Load.now(file).all_s == pytest.approx(2.0)
    file.write_text("something else")
    assert Load.now(file).all_s is None
