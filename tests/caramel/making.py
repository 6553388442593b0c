"""Problems made by hand, and answers that have a plan."""

from typing import Any

from planner.families.caramel import Plan, Problem, solve
from planner.model.graphs import Graph, Op, Parameter
from tests.solved import Solved


def apart(*layers: tuple[int, int, int]) -> Graph:
    """Return layers of (forward, backward, bytes) that do not depend on each other."""
    ops = [Op(f"f{i}", forward, "forward") for i, (forward, _, _) in enumerate(layers)]
    ops += [Op(f"b{i}", back, "backward", (f"f{i}",)) for i, (_, back, _) in enumerate(layers)]
    parameters = (
        Parameter(f"w{i}", size, (f"b{i}",), (f"f{i}",)) for i, (_, _, size) in enumerate(layers)
    )
    return Graph(tuple(ops), tuple(parameters))


def solved(problem: Problem, method: str = "auto", **options: Any) -> Solved[Plan]:
    """Return the answer to a problem that has a plan."""
    return Solved.of(solve(problem, method=method, **options))
