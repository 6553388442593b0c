"""Times, sizes and rates as people write them."""

from collections.abc import Callable
from fractions import Fraction

import pytest

from planner import InvalidInputError
from planner.model.units import (
    format_bytes,
    format_factor,
    format_ns,
    parse_bytes,
    parse_rate,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("50us", 50_000), ("0.1 ms", 100_000), ("3ns", 3), ("1e-3s", 10**6), ("2µs", 2000), ("0s", 0)],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text, "--startup") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("25MiB", 25 * 2**20), ("1kB", 1000), ("7B", 7), ("0.5 GiB", 2**29), ("1KB", 1000)],
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_bytes(text, "--max-batch") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10Gb/s", Fraction(10**10, 8)),
        ("1.25GB/s", Fraction(125 * 10**7)),
        ("10 Gbit/s", Fraction(10**10, 8)),
        ("100Mbps", Fraction(10**8, 8)),
        ("1GiB/s", Fraction(2**30)),
    ],
)
def test_rates(text: str, expected: Fraction) -> None:
    assert parse_rate(text, "--bandwidth") == expected


NONE: dict[Callable[[str, str], object], tuple[str, ...]] = {
    parse_time: ("", "5", "us", "-5us", "5 parsecs", "1e99s", "nan us", "5Gb/s", "9" * 99),
    parse_bytes: ("", "5", "5Mb", "5XB", "-1B"),
    parse_rate: ("", "10", "10G", "0Gb/s", "10Gb", "10ib/s", "-1Gb/s"),
}


@pytest.mark.parametrize("parse", NONE)
def test_what_is_none(parse: Callable[[str, str], object]) -> None:
    for text in NONE[parse]:
        with pytest.raises(InvalidInputError) as caught:
            parse(text, "--option")
        assert caught.value.path == "--option"


def test_formatting() -> None:
    assert [format_ns(t) for t in (0, 999, 1500, 2_345_678, 12 * 10**9)] == [
        "0 ns",
        "999 ns",
        "1.5 µs",
        "2.346 ms",
        "12 s",
    ]
    assert [format_bytes(s) for s in (5, 2048, 3 * 2**20, 2**30)] == [
        "5 B",
        "2 KiB",
        "3 MiB",
        "1 GiB",
    ]


def test_sizes_that_stand_together_have_one_unit() -> None:
    sizes = (0, 5, 3 * 2**19, 2**30)
    assert [format_bytes(size, max(sizes)) for size in sizes] == [
        "0 GiB",
        "<0.0001 GiB",
        "0.001465 GiB",
        "1 GiB",
    ]


def test_factors_near_1_are_put_in_words() -> None:
    assert format_factor(2.5) == "2.5 times as much"
    assert format_factor(1010.2) == "1,010 times as much"
    assert format_factor(0.9) == "0.9 times as much"
    assert format_factor(1.001) == "a little more"
    assert format_factor(0.999) == "a little less"
