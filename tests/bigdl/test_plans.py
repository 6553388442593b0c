"""Plans against replays that add up every pull and every sum, from the definitions alone.

What the checker accepts, what it costs, and what bounds it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import count, product
from math import ceil
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.families.bigdl import Driver, Exchange, Problem, check, check_pulls, evaluate, solve
from planner.families.bigdl.evaluation import COMPLETE_NODES, lower_bound_ns, pulls_at_once
from planner.families.bigdl.family import tree_levels
from planner.families.bigdl.problem import slice_of
from planner.model.errors import InvalidPlanError, NotApplicableError
from planner.model.network import Network
from planner.model.validation import MAX_TOTAL, MAX_VALUE
from planner.solving.result import Status
from planner.testing import problems
from tests.formats.refused import refused


@dataclass
class Step:
    """Bytes over each NIC in one turn, and bytes added on each machine."""

    sent: Counter[int] = field(default_factory=Counter)
    received: Counter[int] = field(default_factory=Counter)

    def move(self, source: int, target: int, size: int) -> None:
        self.sent[source] += size
        self.received[target] += size

    @property
    def busiest(self) -> int:
        return max([0, *self.sent.values(), *self.received.values()])


def own_slices(plan: Exchange) -> list[tuple[int, int]]:
    return [plan.slice(node) for node in range(plan.nodes)]


def own_order(plan: Exchange) -> list[tuple[int, ...]]:
    return [plan.pull_order(node) for node in range(plan.nodes)]


def exchange_turns(
    problem: Problem, order: Sequence[Sequence[int]], slices: Sequence[tuple[int, int]]
) -> tuple[list[Step], list[Step]]:
    """Every pull of both phases, turn by turn."""
    phases: tuple[list[Step], list[Step]] = ([], [])
    for turn in range(problem.nodes):
        first, second = Step(), Step()
        for node, row in enumerate(order):
            peer = row[turn]
            if peer == node:
                continue
            for step, (start, stop) in ((first, slices[node]), (second, slices[peer])):
                if stop > start:
                    step.move(peer, node, (stop - start) * problem.element_bytes)
        phases[0].append(first)
        phases[1].append(second)
    return phases


def sums_once(problem: Problem, order: Sequence[Sequence[int]], slices: Any) -> bool:
    """Return whether every node ends with every gradient once in every element.

    In the second phase it asks the owners of the element for what they pulled in the first one.
    """
    once = Counter(range(problem.nodes))
    for row, element in product(order, range(problem.elements)):
        owners = (peer for peer in row if element in range(*slices[peer]))
        if sum((Counter(order[peer]) for peer in owners), Counter[int]()) != once:
            return False
    return True


def spark_levels(tasks: int) -> list[int]:
    """How many sums Spark's treeAggregate has on each level: depth 2, in floating point."""
    scale = max(next(root for root in count() if root * root >= tasks), 2)
    levels = [tasks]
    while levels[-1] > scale + -int(-Fraction(levels[-1], scale) // 1):
        levels.append(int(levels[-1] / scale))
    return levels


def through_driver(
    problem: Problem, levels: Sequence[int], *, torrent: bool
) -> tuple[list[int], list[int], int]:
    """Send every partial sum to where it is merged, one by one, and return what moves and adds.

    Bytes sent and bytes added phase by phase, and all those at the driver's NIC.
    """
    nodes, size, driver = problem.nodes, problem.gradient_bytes, -1
    sums = [Counter({divmod(task, problem.partitions_per_node): 1}) for task in range(levels[0])]
    steps: list[Step] = []
    added: list[int] = []
    for after in levels[1:]:
        step, adding = Step(), Counter[int]()
        for index in range(after, len(sums)):
            target = index % after
            step.move(index % nodes, target % nodes, size)
            sums[target] += sums[index]
            adding[target % nodes] += size
        del sums[after:]
        steps.append(step)
        added.append(max(adding.values()))
    collect, last, spread = Step(), Step(), Step()
    for index in range(len(sums)):
        collect.move(index % nodes, driver, size)
    for node, (start, stop) in enumerate(own_slices(Exchange(problem.elements, nodes))):
        part = (stop - start) * problem.element_bytes
        last.move(driver, node, part if torrent else size)
        for peer in range(nodes):
            if peer != node:
                spread.move(node, peer, part)
    steps += [collect, last, spread] if torrent else [collect, last]
    added += [(len(sums) - 1) * size, 0, 0] if torrent else [(len(sums) - 1) * size, 0]
    everything = sum(sums, Counter[tuple[int, int]]())
    assert everything == dict.fromkeys(product(range(nodes), range(problem.partitions_per_node)), 1)
    sent = [step.busiest for step in steps]
    return sent, added, collect.received[driver] + last.sent[driver]


def slower(problem: Problem, factor: int) -> Problem:
    network = problem.network
    return replace(problem, network=replace(network, startup_ns=factor * network.startup_ns))


twelve = st.builds(slower, problems("bigdl", 6), st.sampled_from([0, 1, 10**2, 10**4]))
"""Problems of up to twelve nodes, in which start-ups may count more than bytes."""
ORDERS: Any = st.sampled_from(["rotated", "same"])


def problem_of(**fields: Any) -> Problem:
    good = dict[str, Any](elements=10, element_bytes=4, nodes=4, partitions_per_node=2)
    return Problem(**{**good, "network": Network(Fraction(10**9)), **fields})


def refusal(*arguments: Any, **options: Any) -> str:
    with pytest.raises(InvalidPlanError) as caught:
        check_pulls(*arguments, **options)
    return caught.value.path


@given(twelve, ORDERS)
def test_plans_and_their_lists_count_every_gradient_once_everywhere(
    problem: Problem, order: Any
) -> None:
    plan = Exchange(problem.elements, problem.nodes, order)
    check(problem, plan)
    slices, rows = own_slices(plan), own_order(plan)
    check_pulls(problem.elements, slices, rows, spread=order == "rotated")
    assert sums_once(problem, rows, slices)
    nodes = range(problem.nodes)
    assert rows == [tuple(plan.asked(node, turn) for turn in nodes) for node in nodes]
    sizes = [stop - start for start, stop in slices]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(problems("bigdl", 4), st.data())
def test_lists_pass_exactly_if_their_replay_does(problem: Problem, data: st.DataObject) -> None:
    """Any slices and any orders: the checker and the replay agree."""
    nodes, elements = problem.nodes, problem.elements
    end, node = st.integers(0, elements), st.integers(0, nodes - 1)
    slices = own_slices(Exchange(elements, nodes))
    order = [list(row) for row in own_order(Exchange(elements, nodes))]
    for _ in range(data.draw(st.integers(0, 3))):
        one, other, turn = (data.draw(node) for _ in range(3))
        kind = data.draw(st.sampled_from(["slice", "pull", "swap", "row"]))
        if kind == "slice":
            slices[one] = tuple(sorted(data.draw(st.tuples(end, end))))  # type: ignore[assignment]
        elif kind == "pull":
            order[one][turn] = other
        elif kind == "swap":  # still a permutation, but two may ask the same one
            order[one][turn], order[one][other] = order[one][other], order[one][turn]
        else:
            order[one] = list(order[other])
    complete = all(sorted(row) == list(range(nodes)) for row in order)
    right = complete and sums_once(problem, order, slices)
    spread = all(len({*turn}) == nodes for turn in zip(*order, strict=True))
    if not right:
        assert refusal(elements, slices, order, spread=False)
    elif all(stop > start for start, stop in slices) and slices == sorted(slices):
        check_pulls(elements, slices, order, spread=False)
        if spread:
            check_pulls(elements, slices, order)
    if not (right and spread):
        assert refusal(elements, slices, order)


SLICES, ORDER = [(0, 2), (2, 3)], [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("slices", "order", "path"),
    [
        ([], [], "slices"),
        ("01", ORDER, "slices"),
        ([(0, 2), (2, 2)], ORDER, "slices"),
        ([(0, 2), (2, 4)], ORDER, "slices"),
        ([(0, 2), (1, 3)], ORDER, "slices[1]"),
        ([(0, 3), (3, 2), (2, 3)], [[0, 1, 2], [1, 2, 0], [2, 0, 1]], "slices[1]"),
        ([(0, 2, 2), (2, 3)], ORDER, "slices[0]"),
        ([(0, True), (1, 3)], ORDER, "slices[0]"),
        ([(0, 2), 3], ORDER, "slices[1]"),
        (SLICES, None, "pull_order"),
        (SLICES, [[0, 1]], "pull_order"),
        (SLICES, [[0, 1], [1]], "pull_order[1]"),
        (SLICES, [["a", 1], [1, 0]], "pull_order[0]"),
        (SLICES, [[0, 1], [True, 0]], "pull_order[1]"),
        (SLICES, [[0, 1], 1], "pull_order[1]"),
        (SLICES, [[0, 1], [0, 1]], "pull_order[1][0]"),
    ],
)
def test_lists_are_refused_with_a_path(slices: Any, order: Any, path: str) -> None:
    check_pulls(3, SLICES, ORDER)
    assert refusal(3, slices, order) == path


@pytest.mark.parametrize(
    ("plan", "path"),
    [
        (Exchange(9, 4), "elements"),
        (Exchange(10, 5), "nodes"),
        (Exchange(10, 4, "any"), "order"),  # type: ignore[arg-type]
        (Driver(()), "levels"),
        (Driver((7,)), "levels"),
        (Driver((8, 8)), "levels[1]"),
        (Driver((8, 3, 0)), "levels[2]"),
        (Driver((8, 2.5)), "levels[1]"),  # type: ignore[arg-type]
        (Driver((8.0, 2)), "levels"),  # type: ignore[arg-type]
        (Driver(8), "levels"),  # type: ignore[arg-type]
        ("rotated", ""),
    ],
)
def test_plans_of_another_problem(plan: Any, path: str) -> None:
    with refused(path, "expected", InvalidPlanError):
        check(problem_of(), plan)
    with refused("nodes", "expected 1, got true", InvalidPlanError):
        check(problem_of(nodes=1), Exchange(10, True))


@pytest.mark.parametrize("nodes", [5, COMPLETE_NODES, COMPLETE_NODES + 1, 1000])
@pytest.mark.parametrize("wrong", ["turn", "row", "slice"])
def test_lazy_plans_are_looked_at_in_every_tier(
    nodes: int, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(elements=3 * nodes + 1, nodes=nodes)
    plan = Exchange(problem.elements, nodes)
    check(problem, plan)
    if wrong == "slice":
        monkeypatch.setattr(
            Exchange, "slice", lambda self, node: slice_of(self.elements + 1, self.nodes, node)
        )
    else:
        same = wrong == "turn"
        monkeypatch.setattr(Exchange, "asked", lambda _, node, turn: turn if same else node)
    with pytest.raises(InvalidPlanError):
        check(problem, plan)
    if wrong == "turn":
        check(problem, replace(plan, order="same"))


# Prices and bounds.


def seconds(problem: Problem, sent: list[int], added: list[int]) -> Fraction:
    """The model of a step, from its definition."""
    network = problem.network
    time = Fraction(0)
    for moved, summed in zip(sent, added, strict=True):
        time += (network.startup_ns if moved else 0) + summed * network.reduce_ns_per_byte
        time += Fraction(moved) * 10**9 / network.link_bytes_per_s
    return time


@given(twelve, ORDERS)
def test_an_exchange_costs_what_its_pulls_add_up_to(problem: Problem, order: Any) -> None:
    plan = Exchange(problem.elements, problem.nodes, order)
    cost, slices, nodes = evaluate(problem, plan), own_slices(plan), range(problem.nodes)
    turns = exchange_turns(problem, own_order(plan), slices)
    sent = [0, *(sum(step.busiest for step in phase) for phase in turns)]
    longest = max(stop - start for start, stop in slices) * problem.element_bytes
    local = (problem.partitions_per_node - 1) * problem.gradient_bytes
    added = [local, (problem.nodes - 1) * longest, 0]
    assert [phase.name for phase in cost.phases] == ["local_sum", "aggregate", "gather"]
    assert [phase.sent_bytes for phase in cost.phases] == sent
    assert [phase.added_bytes for phase in cost.phases] == added
    exact = seconds(problem, sent, added)
    assert cost.objective_ns == ceil(exact)
    assert cost.times_full_transfer == exact / problem.network.time(problem.gradient_bytes)
    assert list(cost.ends_ns) == sorted(cost.ends_ns)
    assert cost.driver_bytes == cost.driver_added_bytes == 0
    # How many pulls reach a node in a turn.
    rows, pulling = pulls_at_once(plan), sum(start < stop for start, stop in slices)
    assert sum(map(sum, rows)) == pulling * (problem.nodes - 1)
    for row, step in zip(rows, turns[0], strict=True):
        assert [pulls > 0 for pulls in row] == [step.sent[node] > 0 for node in nodes]
    if order == "rotated":
        assert max(map(max, rows)) <= 1
    elif pulling == problem.nodes:
        assert [rows[turn][turn] for turn in nodes] == [problem.nodes - 1] * problem.nodes
    half = problem.nodes // 2
    assert pulls_at_once(plan, half, half) == tuple(row[:half] for row in rows[:half])


@given(twelve, st.booleans(), st.data())
def test_drivers_cost_what_their_sums_add_up_to(
    problem: Problem, torrent: bool, data: st.DataObject
) -> None:
    levels = tree_levels(problem.tasks)
    if data.draw(st.booleans()):  # any tree, not only Spark's
        lower = data.draw(st.sets(st.integers(1, problem.tasks), max_size=3)) - {problem.tasks}
        levels = (problem.tasks, *sorted(lower, reverse=True))
    cost = evaluate(problem, Driver(levels, torrent))
    sent, added, driver_bytes = through_driver(problem, levels, torrent=torrent)
    assert [phase.sent_bytes for phase in cost.phases] == sent
    assert [phase.added_bytes for phase in cost.phases] == added
    assert cost.driver_bytes == driver_bytes
    assert cost.driver_added_bytes == (levels[-1] - 1) * problem.gradient_bytes
    assert cost.objective_ns == ceil(seconds(problem, sent, added))


def test_trees_have_sparks_levels() -> None:
    for tasks in range(1, 2000):
        assert list(tree_levels(tasks)) == spark_levels(tasks)


def direct_ns(problem: Problem) -> int:
    """Everybody sends its summed gradient to everybody in one step, and adds all it gets."""
    size, others = problem.gradient_bytes, problem.nodes - 1
    local = (problem.partitions_per_node - 1) * size
    return ceil(seconds(problem, [0, others * size], [local, others * size]))


@given(twelve, st.integers(1, 9))
@example(problem_of(network=Network(Fraction(10**9), 10**6, Fraction(1))), 3)
def test_the_bound_is_met_by_one_step_or_two(problem: Problem, each: int) -> None:
    even = replace(problem, elements=each * problem.nodes)
    free = replace(even, network=replace(problem.network, startup_ns=0))
    assert solve(free).status is Status.OPTIMAL  # where pieces divide and steps are free
    rotated = solve(even).objective_ns
    assert rotated is not None
    assert lower_bound_ns(even) == min(rotated, direct_ns(even))
    assert lower_bound_ns(problem) <= direct_ns(problem)


def test_a_million_nodes() -> None:
    problem = problem_of(elements=2**20 + 5, nodes=2**20, partitions_per_node=2**20)
    cost = evaluate(problem, Exchange(problem.elements, problem.nodes))
    assert cost.phases[1].sent_bytes == 2 * 4 * (2**20 - 1)
    assert tree_levels(problem.tasks) == (2**40, 2**20)


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        *(
            ({field: 0}, field, "expected an integer >= 1, got 0")
            for field in ("elements", "element_bytes", "nodes", "partitions_per_node")
        ),
        ({"nodes": 2**20 + 1}, "nodes", "expected an integer <= 1048576, got 1048577"),
        ({"partitions_per_node": 2**21}, "partitions_per_node", "expected an integer <= 1048576"),
        ({"network": 5}, "network", "expected a Network, got 5"),
    ],
)
def test_bad_problems(change: dict[str, Any], path: str, message: str) -> None:
    with refused(path, message):
        problem_of(**change)


def test_sums_beyond_63_bits_are_refused() -> None:
    slow = problem_of(elements=2**31, network=Network(Fraction(1, 1000)))
    fast = problem_of(elements=MAX_VALUE, element_bytes=1, network=Network(Fraction(2**62)))
    assert solve(fast).objective_ns is not None
    assert fast.gradient_bytes <= MAX_TOTAL
    for problem, method, what in (
        (slow, "auto", "the time of a synchronisation"),
        (fast, "reduce", "the bytes that pass the driver"),
        (fast, "same_order", "the bytes of a phase"),
    ):
        with refused("elements", what, NotApplicableError):
            solve(problem, method=method)
