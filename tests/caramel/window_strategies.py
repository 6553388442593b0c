"""Hypothesis strategies for transfer windows and small graphs."""

from hypothesis import strategies as st

from planner.families.caramel.windows import Windows
from planner.model.graphs import Graph, Op, Parameter
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


@st.composite
def small_graphs(draw: st.DrawFn, max_backward: int = 4, max_parameters: int = 3) -> Graph:
    """Graphs whose backward ops leave a choice of order."""
    forward = [
        Op(f"f{index}", draw(times), "forward", after=(f"f{index - 1}",) if index else ())
        for index in range(draw(st.integers(1, 3)))
    ]
    backward: list[Op] = []
    for index in range(draw(st.integers(1, max_backward))):
        needed = [f"b{one}" for one in range(index) if draw(st.integers(0, 3)) == 0]
        backward.append(Op(f"b{index}", draw(times), "backward", after=("f0", *needed)))

    def some(ops: list[Op]) -> tuple[str, ...]:
        chosen = st.lists(st.sampled_from(ops), min_size=1, max_size=2, unique=True)
        return tuple(op.name for op in draw(chosen))

    parameters = [
        Parameter(f"p{index}", draw(sizes), updated_by=some(backward), read_by=some(forward))
        for index in range(draw(st.integers(1, max_parameters)))
    ]
    return Graph((*forward, *backward), tuple(parameters))
