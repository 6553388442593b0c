"""Times, sizes, rates and names as people write them, and as they are shown; sentences.

Those say what may have put a measurement off, whatever this machine does now.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from mmap import PAGESIZE, mmap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.model import units
from planner.model.layers import module_range
from planner.model.machine import Load, page_faults
from planner.model.units import format_bytes, format_factor, format_ns, format_rate, format_share
from planner.solving.diagnostics import MeasurementConditions, Spread, disturbances
from planner.solving.views import epoch_text, share_text
from planner.view.chart import shortened, ticks
from planner.view.html import Html, element, joined
from planner.view.panels import above_bound, slowdown_text
from planner.view.wording import abbreviated, times
from tests.formats.refused import refused

Parse = Callable[[str, str], Any]

GIB, FAST = 2**30, 1_250_000_000
TIMES = {"50us": 50_000, "0.1 ms": 100_000, "3ns": 3, "1e-3s": 10**6, "2µs": 2000, "0s": 0}
SIZES = {"25MiB": 25 * 2**20, "1kB": 1000, "7B": 7, "0.5 GiB": GIB // 2, "1KB": 1000}
RATES = {"10Gb/s": FAST, "1.25GB/s": FAST, "10 Gbit/s": FAST, "100Mbps": FAST // 100, "1GiB/s": GIB}
NO_TIMES = ("", "5", "us", "-5us", "5 parsecs", "1e99s", "nan us", "5Gb/s", "9" * 99)


@pytest.mark.parametrize(
    ("parse", "read", "wrong"),
    [
        (units.parse_time, TIMES, NO_TIMES),
        (units.parse_bytes, SIZES, ("", "5", "5Mb", "5XB", "-1B")),
        (units.parse_rate, RATES, ("", "10", "10G", "0Gb/s", "10Gb", "10ib/s", "-1Gb/s")),
    ],
)
def test_what_people_write(parse: Parse, read: dict[str, int], wrong: tuple[str, ...]) -> None:
    assert {text: parse(text, "--option") for text in read} == read
    for text in wrong:
        with refused("--option", ""):
            parse(text, "--option")


GPT = tuple(f"transformer.h.{i}.attn.c_attn.{x}" for i in (11, 10, 9) for x in ("weight", "bias"))
FC1 = ("classifier.fc1.weight", "classifier.fc1.bias")
ONE = ("features.0.weight",)
NAME = "features.denseblock4.denselayer16.conv2.weight"

TEXTS: list[tuple[Callable[..., str], dict[Any, str]]] = [
    (format_ns, {0: "0 ns", 999: "999 ns", 1500: "1.5 µs", 2_345_678: "2.346 ms"}),
    (format_ns, {12 * 10**9: "12 s"}),
    (format_bytes, {5: "5 B", 2048: "2 KiB", 3 * 2**20: "3 MiB", GIB: "1 GiB"}),
    (format_bytes, {(0, GIB): "0 GiB", (5, GIB): "<0.0001 GiB", (GIB, GIB): "1 GiB"}),
    (format_bytes, {(3 * 2**19, GIB): "0.001465 GiB"}),
    (format_factor, {2.5: "2.5 times as much", 1010.2: "1,010 times as much"}),
    (format_factor, {0.9: "0.9 times as much", 1.001: "a little more", 0.999: "a little less"}),
    (
        module_range,
        {(GPT, 60): "transformer.h.11.attn.c_attn – 9.attn.c_attn", (GPT, 12): "…h.11 – 9"},
    ),
    (module_range, {(GPT, 40): "transformer.h.11.attn – 9.attn", (ONE, 10): "…0.weight"}),
    (module_range, {(GPT, 20): "transformer.h.11 – 9", (GPT, 5): "6 parameters"}),
    (module_range, {(ONE, 20): "features.0.weight", (ONE, 3): "1 parameter"}),
    (module_range, {(FC1, 30): "classifier.fc1 (2 parameters)", (FC1, 15): "classifier.fc1"}),
    (module_range, {(("a.weight", "a.bias"), 20): "a.weight, a.bias"}),
    (module_range, {(("w0", "w1", "w2", "w3"), 20): "w0 – w3"}),
    (format_share, {0: "0.00%", 1e-6: "<0.01%", 0.0013: "0.13%", 0.5: "50.00%", None: "?"}),
    (share_text, {0: "0.00%", 0.5: "50.00%", 0.001: "0.10%", 0.00012: "0.012%"}),
    (epoch_text, {1_500_000_000: "1.5 s", 20_050 * 10**9: "5.569 h", 129_600 * 10**9: "36 h"}),
    (epoch_text, {265_277 * 10**9: "3.07 days", 10**6 * 86_400 * 10**9: "1,000,000 days"}),
    (slowdown_text, {(10**6, 10**6): "0%", (10**6 + 1, 10**6): "<0.01%", (5, 0): "0%"}),
    (slowdown_text, {(1_012_300, 10**6): "1.23%", (35 * 10**6, 10**6): "35×"}),
    (above_bound, {(5, None): "", (5, 0): "", (0, 0): "the lower bound"}),
    (above_bound, {(10**6 + 1, 10**6): "<0.01% above the bound"}),
    (above_bound, {(199, 100): "99.00% above the bound", (200, 100): "2× the bound"}),
    (times, {1.714: "1.71×", 1234.5: "1,234×"}),
    (format_rate, {Fraction(1250000000): "10 Gb/s", Fraction(1, 8): "1 b/s"}),
    (abbreviated, {(("a", "b"),): "a, b", (("a", "b", "c"),): "a … c (3 parameters)"}),
    (shortened, {(NAME, 60): NAME, (NAME, 33): "features.….conv2.weight"}),
    (shortened, {("a" * 30, 9): "aaaa…aaaa"}),
    (joined, {("<", Html("<br>")): "&lt;<br>"}),
]


@pytest.mark.parametrize(("write", "texts"), TEXTS)
def test_numbers_and_names(write: Callable[..., str], texts: dict[Any, str]) -> None:
    written = {given: write(*given if isinstance(given, tuple) else (given,)) for given in texts}
    assert written == texts


def test_ticks_and_markup() -> None:
    assert ticks(0, 863.5, 8) == [0, 200, 400, 600, 800]
    assert ticks(0, 1, 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert ticks(3, 3, 5) == [3]
    text = element("p", "a < b & c", title='"x"', class_=None)
    assert text == '<p title="&quot;x&quot;">a &lt; b &amp; c</p>'
    assert element("p", element("b", "x"), Html("<i></i>")) == "<p><b>x</b><i></i></p>"
    assert element("rect", x=1.0, width=2.126) == '<rect x="1" width="2.13"></rect>'


dotted = st.from_regex(r"[abc123_]{1,8}(\.[abc123_]{1,8}){0,5}", fullmatch=True)


@given(st.lists(dotted, min_size=1, max_size=12), st.text("abc._"), st.integers(0, 60))
def test_nothing_is_cut_and_nothing_is_too_long(names: list[str], name: str, length: int) -> None:
    assert len(shortened(name, max(length, 5))) <= max(length, 5)
    text = module_range(names, length)
    count = re.fullmatch(r"\d+ parameters?", text)
    assert count or len(text) <= length
    bare = re.sub(r" \(\d+ parameters\)$", "", text)
    known = {"", *(part for name in names for part in name.split("."))}
    assert count or {*re.split(r"[.…]| – |, ", bare)} <= known


QUIET = MeasurementConditions(threads=2, processors=2, others=0.1, spread=Spread(0.02, 0.2))


def test_a_quiet_machine_is_not_warned_about_and_causes_come_before_what_they_did() -> None:
    """Layers may sum to a fifth less or more than the pass, and spare processors may be busy."""
    assert disturbances(MeasurementConditions(threads=1, processors=1)) == ()
    for share in (0.8, 1, 1.2):
        sums = (share * 10e6, 10e6)
        assert disturbances(replace(QUIET, forward_layers=sums, backward_layers=sums)) == ()
    assert disturbances(replace(QUIET, processors=8, others=6.0)) == ()
    assert disturbances(replace(QUIET, processors=8, others=6.5))
    assert disturbances(replace(QUIET, faults=(2000, 100e6))) == ()
    first, *others = disturbances(replace(QUIET, threads=9, spread=Spread(1.0, 1.0)))
    assert "9 threads" in first
    assert len(others) == 2


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


def test_new_pages_and_what_linux_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = page_faults()
    with mmap(-1, 256 * PAGESIZE) as pages:
        for place in range(256):
            pages[place * PAGESIZE] = 1
        assert page_faults() > before
    monkeypatch.setattr("os.sysconf", lambda _: 100)
    file = tmp_path / "stat"
    assert Load.now(file).all_s is None
    file.write_text("cpu  100 20 30 9999 8888 5 5 40 7 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    assert Load.now(file).all_s == pytest.approx(2.0)
    file.write_text("something else")
    assert Load.now(file).all_s is None
