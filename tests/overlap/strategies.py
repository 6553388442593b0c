"""Small graphs of computation and collectives."""

from hypothesis import strategies as st

from planner.families.overlap import (
    Collective,
    Kind,
    Node,
    Problem,
    Tensor,
    evaluate,
    own_order,
    with_limit,
)


@st.composite
def problems(
    draw: st.DrawFn, computations: int = 3, collectives: int = 2, *, limited: bool = True
) -> Problem:
    """A graph whose nodes need some of those before, with some collectives."""
    kinds = tuple(
        Kind(f"kind {n}", draw(st.sampled_from("ab")), ((0, low), (4, low + high)), mergeable)
        for n, (low, high, mergeable) in enumerate(
            draw(
                st.lists(
                    st.tuples(st.integers(0, 5), st.integers(0, 9), st.booleans()),
                    min_size=1,
                    max_size=2,
                )
            )
        )
    )
    wanted = ["c"] * draw(st.integers(0, computations)) + ["t"] * draw(st.integers(1, collectives))
    items = draw(st.permutations(wanted))
    nodes: list[Node] = []
    made: list[Collective] = []
    pending: list[tuple[int, int]] = []

    def needs() -> tuple[int, ...]:
        return tuple(sorted(n for n in range(len(nodes)) if draw(st.integers(0, 3)) == 0))

    def wait() -> None:
        start, kind = pending.pop(0)
        nodes.append(Node(f"wait {len(nodes)}", tuple(sorted({start, *needs()}))))
        small = st.integers(0, 3)
        sizes = [draw(small) for _ in range(5)]
        made.append(Collective(start, len(nodes) - 1, kind, *sizes))

    for item in items:
        if item == "c":
            nodes.append(Node(f"compute {len(nodes)}", needs(), draw(st.integers(0, 6))))
        else:
            nodes.append(Node(f"start {len(nodes)}", needs()))
            pending.append((len(nodes) - 1, draw(st.integers(0, len(kinds) - 1))))
        if draw(st.booleans()) and pending:
            wait()
    while pending:
        wait()
    tensors = []
    for _ in range(draw(st.integers(0, 4))):
        producer = draw(st.one_of(st.none(), st.integers(0, len(nodes) - 1)))
        after = 0 if producer is None else producer + 1
        readers = tuple(n for n in range(after, len(nodes)) if draw(st.integers(0, 2)) == 0)
        tensors.append(Tensor(draw(st.integers(0, 5)), producer, readers, draw(st.booleans())))
    problem = Problem(nodes=nodes, kinds=kinds, collectives=made, tensors=tensors)
    if not limited or draw(st.booleans()):
        return problem
    peak = evaluate(problem, own_order(problem)).peak_bytes
    return with_limit(problem, peak)
