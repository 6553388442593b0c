"""Independent answers to compare the library with: enumeration, and algorithms taken literally."""

from collections.abc import Iterator
from functools import partial
from itertools import combinations, pairwise

from planner.families.ibatch import Plan, Problem


def communication(problem: Problem, start: int, stop: int) -> int:
    """Time of one batch, from the problem's raw fields."""
    if problem.cost is None:
        assert problem.startup_ns is not None
        assert problem.transfer_ns is not None
        return problem.startup_ns + sum(problem.transfer_ns[start:stop])
    assert problem.layer_bytes is not None
    return problem.cost.cost_ns(sum(problem.layer_bytes[start:stop]))


def computation(problem: Problem, start: int, stop: int) -> int:
    return sum(problem.compute_ns[start:stop])


def all_boundaries(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Every way to cut the layers that respects the cap and, for eq4, Eq. 5."""
    sizes, count = problem.layer_bytes or [0] * problem.layers, problem.layers
    cap = problem.max_batch_bytes or sum(sizes)
    for cuts in range(count):
        for inner in combinations(range(1, count), cuts):
            boundaries = (0, *inner, count)
            fits = all(sum(sizes[a:b]) <= cap for a, b in pairwise(boundaries))
            if fits and (problem.objective == "makespan" or eq5(problem, boundaries)):
                yield boundaries


def eq5(problem: Problem, boundaries: tuple[int, ...]) -> bool:
    """Eq. 5 of the paper, in the pull form."""
    return all(
        communication(problem, b, c) >= computation(problem, a, b)
        for a, b, c in zip(boundaries, boundaries[1:], boundaries[2:], strict=False)
    )


def eq4(problem: Problem, boundaries: tuple[int, ...]) -> int:
    """Eq. 4 of the paper, in the pull form."""
    sent = sum(communication(problem, a, b) for a, b in pairwise(boundaries))
    return sent + sum(problem.compute_ns[boundaries[-2] :])


def makespan(
    problem: Problem, boundaries: tuple[int, ...], slower: int = 1, longer: int = 1
) -> int:
    """Simulate layer by layer: pull waits for parameters, push waits for gradients.

    Transfers take `slower` times as long, computation `longer` times.
    """
    if problem.direction == "pull":
        sent, computed = 0, 0
        for a, b in pairwise(boundaries):
            sent += slower * communication(problem, a, b)
            for layer in range(a, b):
                computed = max(computed, sent) + longer * problem.compute_ns[layer]
        return computed
    ready, clock = {}, 0
    for layer in reversed(range(problem.layers)):
        clock += longer * problem.compute_ns[layer]
        ready[layer] = clock
    sent = 0
    for a, b in reversed(list(pairwise(boundaries))):
        sent = max(sent, ready[a]) + slower * communication(problem, a, b)
    return max(sent, clock)


def objective(problem: Problem, boundaries: tuple[int, ...]) -> int:
    return (makespan if problem.objective == "makespan" else eq4)(problem, boundaries)


def brute_force(problem: Problem) -> int | None:
    """Best objective of all plans; None if there is no plan."""
    return min((objective(problem, plan) for plan in all_boundaries(problem)), default=None)


def boundaries_of(problem: Problem, plan: Plan) -> tuple[int, ...]:
    batches = plan.batches if problem.direction == "pull" else plan.batches[::-1]
    return (0, *(stop for _, stop in batches))


def literal_greedy_forward(problem: Problem) -> tuple[int, ...]:
    """Algorithm 1 as printed, all pairs listed; for the makespan, without a cap."""
    sent, computed = partial(communication, problem), partial(computation, problem)
    count = problem.layers
    pairs = [
        (i, j) for i, j in combinations(range(1, count + 1), 2) if sent(i, j) >= computed(0, i)
    ]
    if not pairs:
        return (0, count)
    most = max(computed(0, one) for one, _ in pairs)
    pairs = [pair for pair in pairs if computed(0, pair[0]) == most]
    least = min(sent(0, one) for one, _ in pairs)
    pairs = [pair for pair in pairs if sent(0, pair[0]) == least]
    chosen = [0, *min(pairs, key=lambda pair: (pair[0], sent(*pair), pair[1]))]
    while chosen[-1] < count:
        start, covered = chosen[-1], computed(chosen[-2], chosen[-1])
        options = [end for end in range(start + 1, count + 1) if sent(start, end) >= covered]
        chosen.append(min(options, key=lambda end: (sent(start, end), end), default=count))
    return tuple(chosen)


def literal_greedy_backward(problem: Problem) -> tuple[int, ...]:
    """Algorithm 2 as printed (line 5 corrected), all pairs listed."""
    sent, computed = partial(communication, problem), partial(computation, problem)
    count = problem.layers
    ends = combinations(range(count), 2)
    pairs = [(last, one) for one, last in ends if sent(last, count) >= computed(one, last)]
    if not pairs:
        return (0, count)
    most = max(computed(before, last) for last, before in pairs)
    pairs = [pair for pair in pairs if computed(pair[1], pair[0]) == most]
    least = min(computed(last, count) for last, _ in pairs)
    pairs = [pair for pair in pairs if computed(pair[0], count) == least]
    chosen = [count, *min(pairs, key=lambda pair: (-pair[0], pair[1]))]
    while chosen[-1] > 0:
        stop, available = chosen[-1], sent(chosen[-1], chosen[-2])
        options = [start for start in range(stop) if available >= computed(start, stop)]
        chosen.append(max(options, key=lambda start: (computed(start, stop), -start), default=0))
    return tuple(reversed(chosen))


def literal_mg_wfbp(problem: Problem) -> tuple[int, ...]:
    """MG-WFBP's Algorithm 1, recomputing all start times after each merge, O(L²)."""
    count = problem.layers
    backward = list(problem.compute_ns)
    ready = [sum(backward[layer:]) for layer in range(count)]
    group_end = {layer: layer + 1 for layer in range(count)}  # first layer of a group -> its end

    def starts() -> dict[int, int]:
        begin, free = {}, 0
        for first in sorted(group_end, reverse=True):
            begin[first] = max(free, ready[first])
            free = begin[first] + communication(problem, first, group_end[first])
        return begin

    for layer in range(count - 1, 0, -1):
        if ready[layer - 1] - starts()[layer] < problem.transfer_startup_ns:
            group_end[layer - 1] = group_end.pop(layer)
    return (0, *sorted(group_end.values()))
