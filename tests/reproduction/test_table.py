"""The tables of the remade figures: their arithmetic, by hand."""

import pytest
from table import Claim, Row, claims, difference, numbers


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (Row("slower", paper=20, ours=25, unit="s"), 25.0),
        (Row("below", paper=8, ours=6, unit="×"), -25.0),
        (Row("points, not per cent of 50", paper=50, ours=60, unit="%"), 10.0),
        (Row("limit kept", paper=70, ours=95, unit="%", limit="≥"), 0.0),
        (Row("limit met exactly", paper=70, ours=70, unit="%", limit="≥"), 0.0),
        (Row("limit missed", paper=70, ours=48, unit="%", limit="≥"), -22.0),
        (Row("upper limit kept", paper=25, ours=11, unit="%", limit="≤"), 0.0),
        (Row("upper limit missed", paper=25, ours=31, unit="%", limit="≤"), 6.0),
        (Row("nothing to compare with", paper=None, ours=1), None),
        (Row("no result", paper=1, ours=None), None),
        (Row("no per cent of nothing", paper=0, ours=1, unit="s"), None),
        (Row("points from nothing", paper=0, ours=1, unit="%"), 1.0),
    ],
)
def test_differences_are_points_or_per_cent_of_the_papers(row: Row, expected: float | None) -> None:
    assert difference(row) == expected


def test_numbers_by_hand() -> None:
    rows = (
        Row("speed-up", paper=1234, ours=1000.04, unit="×"),
        Row("share", paper=68.5, ours=68.0, unit="%", fitted=True),
        Row("time", paper=None, ours=2.375, unit="s", decimals=2),
        Row("least", paper=70, ours=95.0, unit="%", limit="≥"),
        Row("missing", paper=3, ours=None, unit="×"),
    )
    assert numbers(rows).splitlines() == [
        "|  | paper | ours | difference |",
        "| --- | --- | --- | --- |",
        "| speed-up | 1,234× | 1,000.0× | -19.0 % |",
        "| share | 68.5 % | 68.0 % | fitted |",
        "| time | not printed | 2.38 s |  |",
        "| least | ≥ 70 % | 95.0 % | kept |",
        "| missing | 3× | none |  |",
    ]


def test_claims_by_hand() -> None:
    table = claims((Claim("a", "b", holds=True), Claim("c", "d", holds=False)))
    assert table.splitlines()[2:] == ["| a | b | holds |", "| c | d | does not hold |"]
