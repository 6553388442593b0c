"""The tables of the remade figures: those printed are those kept, and their arithmetic by hand."""

from collections.abc import Callable, Sequence
from functools import partial

import bigdl
import bml
import bml_times
import caramel_motivation
import caramel_network
import drizzle
import drizzle_online
import ibatch
import pytest
import yan
from ibatch_model import DEFAULT, fit
from results import load, sections
from table import Claim, Row, claims, difference, numbers

PRINTED: dict[str, Sequence[Callable[[], str]]] = {
    "bigdl": [bigdl.report],
    "bml": [bml_times.report, partial(bml.jobs, 6), partial(bml.jobs, 7)],
    "caramel": [
        *(caramel_motivation.figure_3, caramel_motivation.figure_4),
        *(caramel_network.figure_13, caramel_network.figure_14),
    ],
    "drizzle": [*(partial(drizzle.report, number) for number in (4, 5, 6)), drizzle_online.report],
    "ibatch": [partial(figure, fit(DEFAULT)) for figure in ibatch.FIGURES.values()],
    "yan": [partial(yan.scalability, "mnist"), yan.table1, yan.figure11],
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] if one == "yan" else []) for one in PRINTED]
)
def test_the_results_file_holds_what_is_printed(name: str) -> None:
    kept = [table for section in load(f"reproduction/{name}").sections for table in section.tables]
    for report in PRINTED[name]:
        found = [table for section in sections(report()) for table in section.tables]
        assert found
        assert all(table in kept for table in found)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (Row("slower", paper=20, ours=25, unit="s"), 25.0),
        (Row("below", paper=8, ours=6, unit="×"), -25.0),
        (Row("points, not per cent of 50", paper=50, ours=60, unit="%"), 10.0),
        (Row("limit met exactly", paper=70, ours=70, unit="%", limit="≥"), 0.0),
        (Row("limit missed", paper=70, ours=48, unit="%", limit="≥"), -22.0),
        (Row("upper limit kept", paper=25, ours=11, unit="%", limit="≤"), 0.0),
        (Row("upper limit missed", paper=25, ours=31, unit="%", limit="≤"), 6.0),
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
