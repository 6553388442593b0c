"""Hypothesis strategies for transfer windows."""

from hypothesis import strategies as st

from planner.families.caramel.windows import Windows
from tests.strategies import times

sizes = st.one_of(st.integers(1, 30), st.sampled_from([1, 1, 4, 7, 100]))
"""Small sizes with many ties."""


@st.composite
def windows_strategy(
    draw: st.DrawFn,
    max_parameters: int = 6,
    *,
    max_bytes: int | None = None,
    min_parameters: int = 1,
) -> Windows:
    """Any windows, with ties and zeros; `max_bytes` limits each parameter."""
    count = draw(st.integers(min_parameters, max_parameters))

    def values(elements: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(st.lists(elements, min_size=count, max_size=count)))

    return _around(
        draw,
        values(sizes if max_bytes is None else st.integers(1, max_bytes)),
        values(times),
        values(times),
    )


@st.composite
def nested_windows(draw: st.DrawFn, max_parameters: int = 6) -> Windows:
    """Windows of a chain, in any order: what is ready later is needed earlier, ties allowed."""
    count = draw(st.integers(1, max_parameters))
    many = st.lists(times, min_size=count, max_size=count)
    heads, tails = sorted(draw(many)), sorted(draw(many))
    order = draw(st.permutations(range(count)))
    return _around(
        draw,
        tuple(draw(st.lists(sizes, min_size=count, max_size=count))),
        tuple(heads[index] for index in order),
        tuple(tails[index] for index in order),
    )


def _around(
    draw: st.DrawFn, sizes: tuple[int, ...], heads: tuple[int, ...], tails: tuple[int, ...]
) -> Windows:
    """Add passes that hold the windows, mostly tightly."""
    return Windows(
        sizes=sizes,
        heads=heads,
        tails=tails,
        backward_ns=max(heads) + draw(st.sampled_from([0, 0, 0, 1, 50])),
        forward_ns=max(tails) + draw(st.sampled_from([0, 0, 0, 1, 50])),
    )
