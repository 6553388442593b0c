"""Times, sizes and rates as people write them."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from planner import InvalidInputError
from planner.model import units

Parse = Callable[[str, str], Any]

TIMES = {"50us": 50_000, "0.1 ms": 100_000, "3ns": 3, "1e-3s": 10**6, "2µs": 2000, "0s": 0}
SIZES = {"25MiB": 25 * 2**20, "1kB": 1000, "7B": 7, "0.5 GiB": 2**29, "1KB": 1000}
READ: dict[Parse, dict[str, int | Fraction]] = {
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
