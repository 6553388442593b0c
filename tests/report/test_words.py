"""Numbers as the page shows them, by hand."""

from fractions import Fraction
from typing import Any

import pytest

from planner.model.units import format_rate, format_share
from planner.view.chart import shortened, ticks
from planner.view.html import Html, element, joined
from planner.view.wording import abbreviated, times

NAME = "features.denseblock4.denselayer16.conv2.weight"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (format_share(0), "0.00%"),
        (format_share(1e-6), "<0.01%"),
        (format_share(0.0013), "0.13%"),
        (format_share(0.5), "50.00%"),
        (format_share(None), "?"),
        (times(1.714), "1.71×"),
        (times(1234.5), "1,234×"),
        (format_rate(Fraction(1250000000)), "10 Gb/s"),
        (format_rate(Fraction(1, 8)), "1 b/s"),
        (abbreviated(("a", "b")), "a, b"),
        (abbreviated(("a", "b", "c")), "a … c (3 parameters)"),
        (shortened(NAME, 60), NAME),
        (shortened(NAME, 33), "features.….conv2.weight"),
        (shortened("a" * 30, 9), "aaaa…aaaa"),
        (ticks(0, 863.5, 8), [0, 200, 400, 600, 800]),
        (ticks(0, 1, 5), pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])),
        (ticks(3, 3, 5), [3]),
        (
            element("p", "a < b & c", title='"x"', class_=None),
            '<p title="&quot;x&quot;">a &lt; b &amp; c</p>',
        ),
        (element("p", element("b", "x"), Html("<i></i>")), "<p><b>x</b><i></i></p>"),
        (joined("<", Html("<br>")), "&lt;<br>"),
        (element("rect", x=1.0, width=2.126), '<rect x="1" width="2.13"></rect>'),
    ],
)
def test_numbers_names_and_markup(written: Any, text: Any) -> None:
    assert written == text


def test_names_are_shortened_to_any_length() -> None:
    for length in range(5, 46):
        assert len(shortened(NAME, length)) <= length
