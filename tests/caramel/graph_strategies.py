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


@st.composite
def training_graphs(
    draw: st.DrawFn,
    *,
    max_blocks: int = 3,
    max_branches: int = 4,
    max_depth: int = 2,
    durations: st.SearchStrategy[int] | None = None,
    sizes: st.SearchStrategy[int] = sizes,
    shuffled: bool | None = None,
) -> Graph:
    """Blocks of branches with residuals, then the loss, then all of it mirrored.

    Each forward op has a backward op for the gradient of its input, which also needs the forward
    op's result. Ops with a parameter may have one more for its gradient, or share one parameter.
    """
    durations = draw(_some_durations) if durations is None else durations
    forward: dict[str, tuple[str, ...]] = {"f0": ()}
    last = "f0"

    def add(*after: str) -> str:
        forward[name := f"f{len(forward)}"] = after
        return name

    for _ in range(draw(st.integers(1, max_blocks))):
        ends = [last] if draw(st.booleans()) else []  # a residual passes by the branches
        for _ in range(draw(st.integers(1, max_branches))):
            end = last
            for _ in range(draw(st.integers(1, max_depth))):
                end = add(end)
            ends.append(end)
        last = add(*ends) if len(ends) > 1 else ends[0]
    ops = [Op(name, draw(durations), "forward", after) for name, after in forward.items()]
    updated_by: list[list[str]] = []
    read_by: list[list[str]] = []
    for name in reversed(forward):
        mirror = name.replace("f", "b")
        followers = (one.replace("f", "b") for one, after in forward.items() if name in after)
        needed = (*followers, name)
        ops.append(Op(mirror, draw(durations), "backward", needed))
        kind = draw(st.sampled_from(["own", "own", "apart", "shared", "none"]))
        if kind == "none" and (updated_by or name != "f0"):
            continue
        if kind == "apart":
            mirror += "w"
            ops.append(Op(mirror, draw(durations), "backward", needed))
        if kind == "shared" and updated_by:
            which = draw(st.integers(0, len(updated_by) - 1))
            updated_by[which].append(mirror)
            read_by[which].append(name)
        else:
            updated_by.append([mirror])
            read_by.append([name])
    parameters = [
        Parameter(f"w{index}", draw(sizes), tuple(updaters), tuple(readers))
        for index, (updaters, readers) in enumerate(zip(updated_by, read_by, strict=True))
    ]
    if draw(st.booleans()) if shuffled is None else shuffled:
        ops, parameters = draw(st.permutations(ops)), draw(st.permutations(parameters))
    return Graph(tuple(ops), tuple(parameters))


_some_durations = st.sampled_from([durations, durations, tied_durations])


def _some_of(names: Sequence[str], *, at_least: int) -> st.SearchStrategy[tuple[str, ...]]:
    if not names:
        return st.just(())
    some = st.lists(st.sampled_from(names), min_size=at_least, max_size=3, unique=True)
    return some.map(tuple)
