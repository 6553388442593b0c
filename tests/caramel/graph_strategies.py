"""Hypothesis strategies of dataflow graphs."""

from collections.abc import Sequence

from hypothesis import strategies as st

from planner.model.graphs import Graph, Op, Parameter

MAX_OPS = 12
MAX_PARAMETERS = 6

durations = st.integers(0, 9) | st.sampled_from([0, 0, 1, 1, 2])
"""Short times with many zeros and ties, where orders go wrong."""

tied_durations = st.sampled_from([0, 1])
"""Nothing but zeros and ties."""

sizes = st.integers(1, 60)


@st.composite
def graphs(
    draw: st.DrawFn,
    *,
    max_ops: int = MAX_OPS,
    max_parameters: int = MAX_PARAMETERS,
    durations: st.SearchStrategy[int] | None = None,
    sizes: st.SearchStrategy[int] = sizes,
) -> Graph:
    """Any valid graph: shared weights, ops of no parameter, several sources, ops in any order."""
    durations = draw(_some_durations) if durations is None else durations
    forward_count = draw(st.integers(1, max(1, max_ops // 2)))
    forward = [f"f{index}" for index in range(forward_count)]
    backward = [f"b{i}" for i in range(draw(st.integers(1, max(1, max_ops - forward_count))))]
    ops = []
    for index, name in enumerate(forward):
        after = draw(_some_of(forward[:index], at_least=0))
        ops.append(Op(name, draw(durations), "forward", after))
    for index, name in enumerate(backward):
        near = draw(_some_of(backward[:index], at_least=0))
        after = near + draw(_some_of(forward, at_least=0 if near else 1))
        ops.append(Op(name, draw(durations), "backward", after))
    parameters = []
    for index in range(draw(st.integers(1, max_parameters))):
        updated_by, read_by = (draw(_some_of(names, at_least=1)) for names in (backward, forward))
        parameters.append(Parameter(f"w{index}", draw(sizes), updated_by, read_by))
    return Graph(tuple(draw(st.permutations(ops))), tuple(parameters))


_some_durations = st.sampled_from([durations, durations, tied_durations])


def _some_of(names: Sequence[str], *, at_least: int) -> st.SearchStrategy[tuple[str, ...]]:
    if not names:
        return st.just(())
    some = st.lists(st.sampled_from(names), min_size=at_least, max_size=3, unique=True)
    return some.map(tuple)
