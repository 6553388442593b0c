"""The paper's greedy rule taken literally: every closure is computed anew at each pick."""

from planner.model.graphs import Graph


def closure(graph: Graph, parameter: int, marked: set[int]) -> frozenset[int]:
    """Ops that the parameter's gradient needs and that are not marked."""
    found: set[int] = set()
    stack = list(graph.updaters[parameter])
    while stack:
        op = stack.pop()
        if op not in found and op not in marked:
            found.add(op)
            stack += graph.predecessors[op]
    return frozenset(found)


def literal_steps(graph: Graph) -> list[tuple[int, frozenset[int]]]:
    """What is picked, and which ops it marks."""
    left = list(range(len(graph.parameters)))
    marked: set[int] = set()
    steps = []
    while left:
        closures = {parameter: closure(graph, parameter, marked) for parameter in left}
        costs = {parameter: cost(graph, closures[parameter]) for parameter in left}
        least = min(costs.values())
        cheapest = [closures[parameter] for parameter in left if costs[parameter] == least]
        best = next(
            parameter
            for parameter in left
            if costs[parameter] == least
            and not any(other < closures[parameter] for other in cheapest)
        )
        steps.append((best, closures[best]))
        marked |= closures[best]
        left.remove(best)
    return steps


def cost(graph: Graph, ops: frozenset[int]) -> int:
    """Total duration."""
    return sum(graph.ops[op].duration_ns for op in ops)
