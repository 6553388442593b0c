"""Times, sizes, rates and names as people write them, and as they are shown."""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.model import units
from planner.model.layers import module_range
from planner.model.units import format_bytes, format_factor, format_ns, format_rate, format_share
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


@given(st.text("abc._", max_size=60), st.integers(5, 60))
def test_names_are_shortened_to_any_length(name: str, length: int) -> None:
    assert len(shortened(name, length)) <= length


words = st.text("abc123_", min_size=1, max_size=8)
dotted = st.lists(words, min_size=1, max_size=6).map(".".join)


@given(st.lists(dotted, min_size=1, max_size=12), st.integers(0, 60))
def test_nothing_is_cut_and_nothing_is_too_long(names: list[str], length: int) -> None:
    text = module_range(names, length)
    count = re.fullmatch(r"\d+ parameters?", text)
    assert count or len(text) <= length
    known = {part for name in names for part in name.split(".")}
    if not count:
        bare = re.sub(r" \(\d+ parameters\)$", "", text)
        assert set(re.split(r"[.…]| – |, ", bare)) - {""} <= known
