"""Numbers as the page shows them, by hand."""

from fractions import Fraction

import pytest

from planner.model.units import format_rate, format_share
from planner.view.chart import shortened, ticks
from planner.view.html import Html, element, joined
from planner.view.wording import (
    abbreviated,
    times,
)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0.00%"), (1e-6, "<0.01%"), (0.0013, "0.13%"), (0.5, "50.00%"), (None, "?")],
)
def test_distances(share: float | None, text: str) -> None:
    assert format_share(share) == text


def test_ratios_rates_and_sizes() -> None:
    assert times(1.714) == "1.71×"
    assert times(1234.5) == "1,234×"
    assert format_rate(Fraction(1250000000)) == "10 Gb/s"
    assert format_rate(Fraction(1, 8)) == "1 b/s"


def test_names_are_abbreviated() -> None:
    assert abbreviated(("a", "b")) == "a, b"
    assert abbreviated(("a", "b", "c")) == "a … c (3 parameters)"


def test_ticks_are_round_and_within() -> None:
    assert ticks(0, 863.5, 8) == [0, 200, 400, 600, 800]
    assert ticks(0, 1, 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert ticks(3, 3, 5) == [3]


def test_text_is_escaped_and_markup_is_not() -> None:
    assert element("p", "a < b & c", title='"x"', class_=None) == (
        '<p title="&quot;x&quot;">a &lt; b &amp; c</p>'
    )
    assert element("p", element("b", "x"), Html("<i></i>")) == "<p><b>x</b><i></i></p>"
    assert joined("<", Html("<br>")) == "&lt;<br>"
    assert element("rect", x=1.0, width=2.126) == '<rect x="1" width="2.13"></rect>'


def test_names_are_shortened_by_whole_words() -> None:
    name = "features.denseblock4.denselayer16.conv2.weight"
    assert shortened(name, 60) == name
    assert shortened(name, 33) == "features.….conv2.weight"
    assert shortened("a" * 30, 9) == "aaaa…aaaa"
    for length in range(5, 46):
        assert len(shortened(name, length)) <= length
