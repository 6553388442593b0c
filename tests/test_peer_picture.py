"""Pictures of standings: every case and mean is there, and no text lies on another."""

from typing import Any

import pytest
from peer_cases import Ratios, Standing
from peer_picture import PeersChart

GAINS = {"joint": (1.3, 2.0), "ddp": (1.0, 1.0), "ps": (0.25, 1.1), "bigdl": (0.5, 0.4)}


def chart(scales: int = 2, bound: float = 1.0) -> PeersChart:
    """Four methods with two cases each, and one without any, at some scales."""
    rows = [
        Standing(name, 2, Ratios(gains), Ratios(tuple(bound * 2.01 / gain for gain in gains)))
        for name, gains in GAINS.items()
    ]
    rows.append(Standing("bml", 0, None, None))
    return PeersChart("two cases", tuple((0.1**power, tuple(rows)) for power in range(scales)))


def drawn(given: PeersChart) -> Any:
    """Return the figure, laid out."""
    pytest.importorskip("matplotlib")
    from figures import write_title
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from peer_picture import _fill

    figure = Figure(dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    write_title(figure, given.title)
    _fill(figure, given)
    figure.draw_without_rendering()
    return figure


def test_every_case_range_and_mean_is_drawn() -> None:
    given = chart()
    gains, distances = drawn(given).axes
    assert [tick.get_text() for tick in gains.get_yticklabels()] == [
        "joint (joint plan)",
        "ddp",
        "ps",
        "bigdl",
        "bml",
    ]
    for axes, field in ((gains, "speedup"), (distances, "over_bound")):
        lines = [tuple(map(float, line.get_xdata())) for line in axes.lines]
        for _, standings in given.scales:
            for standing in standings:
                spread = getattr(standing, field)
                if spread is not None:
                    assert lines.count(tuple(dict.fromkeys(spread.values))) >= 2  # one a scale
                    assert lines.count((spread.least, spread.most)) >= 2
                    assert lines.count((spread.mean,)) >= 2
        low, high = axes.get_xlim()
        assert all(low < value < high for line in lines for value in line if line != (0.0, 1.0))
        assert 1.0 in axes.get_xticks()
        assert axes.get_xscale() == "log"


def test_means_stand_at_the_ends_of_their_rows() -> None:
    gains, distances = drawn(chart(1)).axes
    shown = [text.get_text() for text in gains.texts]
    assert shown[:2] == ["1.61× (1.30–2.00)", "1.00× (1.00–1.00)"]
    assert shown[2:] == ["0.52× (0.25–1.10)", "0.45× (0.40–0.50)", "–", "mean (range)"]
    shown = [text.get_text() for text in distances.texts]
    assert shown[:3] == ["25% (55%)", "101% (101%)", "283% (704%)"]


def test_a_range_beyond_the_axis_ends_in_an_arrow() -> None:
    cases = (*(1.0,) * 30, 0.01, 50.0)
    far = (Standing("ddp", 32, Ratios((1.0,)), None), Standing("ps", 32, Ratios(cases), None))
    gains, _ = drawn(PeersChart("far", ((1.0, far),))).axes
    low, high = gains.get_xlim()
    assert 0.01 < low < 1 / 3 < 3 < high < 50
    arrows = {line.get_marker(): float(line.get_xdata()[0]) for line in gains.lines}
    assert (arrows["<"], arrows[">"]) == (low, high)
    inside = [tuple(line.get_xdata()) for line in gains.lines if line.get_marker() == "o"]
    assert (1.0,) in inside
    assert all(low <= value <= high for values in inside for value in values)
