"""Hypothesis strategies for transfer windows."""

from collections.abc import Sequence

from hypothesis import strategies as st

from planner.families.caramel.windows import Windows
from planner.testing.strategies import sizes, times

Row = tuple[int, int, int]


@st.composite
def windows_strategy(
    draw: st.DrawFn,
    max_parameters: int = 6,
    *,
    max_bytes: int | None = None,
    min_parameters: int = 1,
) -> Windows:
    """Any windows, with ties and zeros; `max_bytes` limits each parameter."""
    each = sizes if max_bytes is None else st.integers(1, max_bytes)
    row = st.tuples(each, times, times)
    return _around(draw, draw(st.lists(row, min_size=min_parameters, max_size=max_parameters)))


@st.composite
def nested_windows(draw: st.DrawFn, max_parameters: int = 6) -> Windows:
    """Windows of a chain, in any order: what is ready later is needed earlier, ties allowed."""
    rows = draw(st.lists(st.tuples(sizes, times, times), min_size=1, max_size=max_parameters))
    known, heads, tails = zip(*rows, strict=True)
    nested = zip(known, sorted(heads), sorted(tails), strict=True)
    return _around(draw, draw(st.permutations(list(nested))))


def _around(draw: st.DrawFn, rows: Sequence[Row]) -> Windows:
    """Add passes that hold the windows, mostly tightly."""
    known, heads, tails = zip(*rows, strict=True)
    more = st.sampled_from([0, 0, 0, 1, 50])
    return Windows(known, heads, tails, max(heads) + draw(more), max(tails) + draw(more))


@st.composite
def sides(draw: st.DrawFn, most: tuple[int, ...]) -> tuple[Windows, list[int], list[int]]:
    """Windows, nested more often than not, with bytes to push and to pull.

    `most`: bytes of a parameter, at most, of one parameter, of two, and so on.
    """
    count = draw(st.integers(1, len(most)))
    moments = draw(st.sampled_from([3, 10, 30]))

    def some(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    heads, tails = some(0, 2 * moments), some(0, moments)
    if draw(st.integers(0, 2)):
        heads.sort(reverse=True)
        tails.sort(reverse=True)
    pushed = some(1, most[count - 1])
    pulled = some(1, most[count - 1]) if draw(st.booleans()) else pushed
    backward = max(heads) + draw(st.sampled_from([0, 0, 1, moments]))
    known = Windows(tuple(pushed), tuple(heads), tuple(tails), backward, max(tails))
    return known, pushed, pulled
