"""Times, sizes, rates and names as people write and read them."""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInputError
from planner.model import units
from planner.model.layers import module_range

Parse = Callable[[str, str], Any]

TIMES = {"50us": 50_000, "0.1 ms": 100_000, "3ns": 3, "1e-3s": 10**6, "2µs": 2000, "0s": 0}
SIZES = {"25MiB": 25 * 2**20, "1kB": 1000, "7B": 7, "0.5 GiB": 2**29, "1KB": 1000}
READ: dict[Parse, Mapping[str, int | Fraction]] = {
    units.parse_time: TIMES,
    units.parse_bytes: SIZES,
    units.parse_rate: {
        "10Gb/s": Fraction(10**10, 8),
        "1.25GB/s": Fraction(125 * 10**7),
        "10 Gbit/s": Fraction(10**10, 8),
        "100Mbps": Fraction(10**8, 8),
        "1GiB/s": Fraction(2**30),
    },
}


@pytest.mark.parametrize("parse", READ)
def test_what_people_write(parse: Parse) -> None:
    assert {text: parse(text, "--option") for text in READ[parse]} == READ[parse]


NONE: dict[Parse, tuple[str, ...]] = {
    units.parse_time: ("", "5", "us", "-5us", "5 parsecs", "1e99s", "nan us", "5Gb/s", "9" * 99),
    units.parse_bytes: ("", "5", "5Mb", "5XB", "-1B"),
    units.parse_rate: ("", "10", "10G", "0Gb/s", "10Gb", "10ib/s", "-1Gb/s"),
}


@pytest.mark.parametrize("parse", NONE)
def test_what_is_none(parse: Parse) -> None:
    for text in NONE[parse]:
        with pytest.raises(InvalidInputError) as caught:
            parse(text, "--option")
        assert caught.value.path == "--option"


def test_formatting() -> None:
    times = {0: "0 ns", 999: "999 ns", 1500: "1.5 µs", 2_345_678: "2.346 ms", 12 * 10**9: "12 s"}
    assert {time: units.format_ns(time) for time in times} == times
    sizes = {5: "5 B", 2048: "2 KiB", 3 * 2**20: "3 MiB", 2**30: "1 GiB"}
    assert {size: units.format_bytes(size) for size in sizes} == sizes
    together = {0: "0 GiB", 5: "<0.0001 GiB", 3 * 2**19: "0.001465 GiB", 2**30: "1 GiB"}
    assert {size: units.format_bytes(size, max(together)) for size in together} == together


def test_factors_near_1_are_put_in_words() -> None:
    assert units.format_factor(2.5) == "2.5 times as much"
    assert units.format_factor(1010.2) == "1,010 times as much"
    assert units.format_factor(0.9) == "0.9 times as much"
    assert units.format_factor(1.001) == "a little more"
    assert units.format_factor(0.999) == "a little less"


GPT = [f"transformer.h.{i}.attn.c_attn.{kind}" for i in (11, 10, 9) for kind in ("weight", "bias")]


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (60, "transformer.h.11.attn.c_attn – 9.attn.c_attn"),
        (40, "transformer.h.11.attn – 9.attn"),
        (20, "transformer.h.11 – 9"),
        (12, "…h.11 – 9"),
        (5, "6 parameters"),
    ],
)
def test_ranges_leave_out_inner_modules_then_outer_ones(length: int, text: str) -> None:
    assert module_range(GPT, length) == text


@pytest.mark.parametrize(
    ("names", "length", "text"),
    [
        (["features.0.weight"], 20, "features.0.weight"),
        (["features.0.weight"], 10, "…0.weight"),
        (["features.0.weight"], 3, "1 parameter"),
        (["a.weight", "a.bias"], 20, "a.weight, a.bias"),
        (["classifier.fc1.weight", "classifier.fc1.bias"], 30, "classifier.fc1 (2 parameters)"),
        (["classifier.fc1.weight", "classifier.fc1.bias"], 15, "classifier.fc1"),
        (["w0", "w1", "w2", "w3"], 20, "w0 – w3"),
    ],
)
def test_one_module_is_named_once(names: list[str], length: int, text: str) -> None:
    assert module_range(names, length) == text


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
