"""Packings of spanning trees, against all spanning trees, against flows, and by their own proof."""

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import OptimizeResult, linprog

from planner.families import bml
from planner.families.bml.packing import Packing, pack
from planner.families.bml.trees import Edge, Port
from planner.model.topologies import BCube
from planner.solving.deadline import Deadline
from tests.bml.packing_checker import check_packing

Damage = tuple[BCube, frozenset[int], frozenset[Port]]
NOTHING: frozenset[Any] = frozenset()
NO_LIMIT = Deadline(None)


def surviving(
    bcube: BCube, dead: frozenset[int] = NOTHING, down: frozenset[Port] = NOTHING
) -> bml.Damage:
    return bml.Damage(bcube, bml.Failures(dead, down))


def hops_left(damage: Damage) -> list[Edge]:
    """All hops that can still be made, by the definition of a BCube."""
    bcube, dead, down = damage
    return [
        (one, other, level)
        for one, other in combinations(range(bcube.servers), 2)
        for level in range(bcube.k)
        if one not in dead
        and other not in dead
        and not {(one, level), (other, level)} & down
        and all(
            (bcube.digit(one, at) == bcube.digit(other, at)) == (at != level)
            for at in range(bcube.k)
        )
    ]


def living(damage: Damage) -> list[int]:
    return [server for server in range(damage[0].servers) if server not in damage[1]]


def spans(servers: list[int], hops: Iterable[Edge]) -> bool:
    return bool(servers) and len(ways(servers[0], hops)) == len(servers)


def ways(start: int, hops: Iterable[Edge]) -> dict[int, int]:
    """Hops to each server that can be reached."""
    beside: dict[int, list[int]] = {start: []}
    for one, other, _ in hops:
        beside.setdefault(one, []).append(other)
        beside.setdefault(other, []).append(one)
    distance = {start: 0}
    queue = [start]
    for server in queue:
        for there in beside[server]:
            if there not in distance:
                distance[there] = distance[server] + 1
                queue.append(there)
    return distance


def formula(damage: Damage) -> Fraction:
    """What all NICs together and the server with the fewest can do at best."""
    nics = {
        nic for one, other, level in hops_left(damage) for nic in [(one, level), (other, level)]
    }
    fewest = min(Counter(server for server, _ in nics).values())
    return max(Fraction(2 * (len(living(damage)) - 1), len(nics)), Fraction(1, fewest))


def optimum(damage: Damage, **start: Any) -> Fraction:
    """Pack, check, and return the least load, which the packing reaches."""
    packing = pack(surviving(*damage), NO_LIMIT, **start)
    check_packing(*damage, packing)
    assert packing.bound <= packing.load <= packing.bound * (1 + Fraction(1, 10**9))
    assert not packing.timed_out
    return packing.bound


@st.composite
def damages(draw: st.DrawFn, sizes: list[tuple[int, int]]) -> Damage:
    """Networks with anything from nothing to a lot lost, still connected."""
    bcube = BCube(*draw(st.sampled_from(sizes)))
    servers = st.integers(0, bcube.servers - 1)
    dead = draw(st.frozensets(servers, max_size=bcube.servers // 3))
    nics = st.tuples(servers.filter(lambda server: server not in dead), st.integers(0, bcube.k - 1))
    down: frozenset[Port] = NOTHING
    hops = hops_left((bcube, dead, down))
    servers_left = living((bcube, dead, down))
    if not spans(servers_left, hops):
        return bcube, NOTHING, NOTHING
    for server, level in draw(st.lists(nics, max_size=bcube.nics // 3)):
        fewer = [hop for hop in hops if hop[2] != level or server not in hop[:2]]
        if spans(servers_left, fewer):
            hops, down = fewer, down | {(server, level)}
    return bcube, dead, down


SMALL = [(2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (2, 3)]
LARGER = [*SMALL, (5, 1), (4, 2), (5, 2), (2, 4), (3, 3)]


@pytest.mark.parametrize(
    ("n", "k"), [(2, 1), (7, 1), (2, 2), (3, 2), (4, 2), (2, 3), (3, 3), (2, 4)]
)
def test_intact(n: int, k: int) -> None:
    damage = BCube(n, k), NOTHING, NOTHING
    packing = pack(surviving(*damage), NO_LIMIT)
    check_packing(*damage, packing)
    servers = damage[0].servers
    assert packing.load == packing.bound == Fraction(2 * (servers - 1), damage[0].nics)
    # BML's trees: some root is within k hops of all.
    for tree in packing.trees:
        assert min(max(ways(root, tree).values()) for root in range(servers)) <= k


def single_failures(bcube: BCube) -> Iterator[Damage]:
    for server in range(bcube.servers):
        yield bcube, frozenset([server]), NOTHING
        for level in range(bcube.k):
            yield bcube, NOTHING, frozenset([(server, level)])
    for level in range(bcube.k):
        for switch in range(bcube.switches // bcube.k):
            lost = frozenset((server, level) for server in bcube.on_switch(level, switch))
            yield bcube, NOTHING, lost


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k"), [(3, 2), (4, 2), (2, 3)])
def test_the_formula_is_reached_with_any_one_failure(n: int, k: int) -> None:
    for damage in single_failures(BCube(n, k)):
        assert optimum(damage) == formula(damage)


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        (BCube(4, 3), NOTHING, frozenset([(0, 0)])),
        (BCube(4, 3), frozenset([63]), NOTHING),
        (BCube(10, 2), frozenset([0]), NOTHING),
    ],
    ids=str,
)
def test_the_formula_is_reached_exactly_at_larger_sizes(damage: Damage) -> None:
    assert optimum(damage) == formula(damage)


def test_several_failures_cost_more_than_the_formula() -> None:
    # One hop is left between the halves of the cube, and every tree needs it.
    damage = BCube(2, 3), NOTHING, frozenset([(0, 2), (1, 2), (2, 2)])
    assert formula(damage) == Fraction(7, 9)
    assert optimum(damage) == 1


def by_enumeration(damage: Damage) -> float:
    """The least load by a linear program over all spanning trees."""
    servers, hops = living(damage), hops_left(damage)
    nics = sorted({nic for a, b, level in hops for nic in [(a, level), (b, level)]})
    columns = []
    for tree in combinations(hops, len(servers) - 1):
        if spans(servers, tree):
            used = Counter(nic for a, b, level in tree for nic in [(a, level), (b, level)])
            columns.append([used[nic] for nic in nics])
    answer = linprog(
        [0] * len(columns) + [1],
        A_ub=[[*row, -1] for row in np.array(columns).T],
        b_ub=[0] * len(nics),
        A_eq=[[1] * len(columns) + [0]],
        b_eq=[1],
    )
    return float(answer.fun)


@pytest.mark.parametrize(
    "damage",
    [
        (BCube(2, 2), NOTHING, NOTHING),
        (BCube(2, 2), frozenset([3]), NOTHING),
        (BCube(2, 2), NOTHING, frozenset([(0, 0)])),
        (BCube(3, 1), NOTHING, NOTHING),
        (BCube(5, 1), NOTHING, NOTHING),
        (BCube(2, 3), NOTHING, NOTHING),
        (BCube(2, 3), NOTHING, frozenset([(0, 0)])),
        (BCube(2, 3), NOTHING, frozenset([(0, 0), (3, 1), (6, 2)])),
        (BCube(2, 3), frozenset([5]), frozenset([(0, 0)])),
        (BCube(3, 2), frozenset([0, 4, 8]), NOTHING),
        (BCube(3, 2), frozenset([0, 1]), frozenset([(4, 1), (5, 1)])),
        (BCube(4, 2), frozenset(range(9)), frozenset([(13, 0)])),
    ],
    ids=str,
)
def test_it_is_the_best_of_all_packings(damage: Damage) -> None:
    assert float(optimum(damage)) == pytest.approx(by_enumeration(damage), abs=1e-7)


def by_flows(damage: Damage) -> float:
    """The least load with directed trees: sums need not come back the way they went.

    By Edmonds, capacities a hold branchings of total 1, x_r of them with root r, exactly when each
    server can receive a flow of 1 that enters at each r with at most x_r. Backwards, b for sums.
    """
    servers = living(damage)
    arcs = [
        arc
        for one, other, level in hops_left(damage)
        for arc in permutations((one, other))
        for arc in [(*arc, level)]
    ]
    count: dict[Any, int] = {}

    def variable(*name: Any) -> int:
        return count.setdefault(name, len(count))

    less: list[dict[int, int]] = []
    equal: list[tuple[dict[int, int], int]] = [({variable("x", r): 1 for r in servers}, 1)]
    loads: dict[Any, dict[int, int]] = {}
    for kind, goal in product("ab", servers):
        balance: dict[int, dict[int, int]] = {server: {} for server in servers}
        for one, other, level in arcs:
            flow = variable("flow", kind, goal, one, other, level)
            less.append({flow: 1, variable(kind, one, other, level): -1})
            balance[one][flow], balance[other][flow] = -1, 1
        for root in servers:
            entry = variable("entry", kind, goal, root)
            less.append({entry: 1, variable("x", root): -1})
            balance[root][entry] = 1
        equal += [(row, int(server == goal)) for server, row in balance.items()]
    for one, other, level in arcs:
        # Sums flow against the arcs of b.
        for kind, sender, receiver in (("a", one, other), ("b", other, one)):
            hop = variable(kind, one, other, level)
            loads.setdefault(("out", sender, level), {})[hop] = 1
            loads.setdefault(("in", receiver, level), {})[hop] = 1
    less += [row | {variable("T"): -1} for row in loads.values()]

    def matrix(rows: list[dict[int, int]]) -> Any:
        result = np.zeros((len(rows), len(count)))
        for number, row in enumerate(rows):
            result[number, list(row)] = list(row.values())
        return result

    cost = np.zeros(len(count))
    cost[variable("T")] = 1
    answer = linprog(
        cost,
        A_ub=matrix(less),
        b_ub=np.zeros(len(less)),
        A_eq=matrix([row for row, _ in equal]),
        b_eq=[value for _, value in equal],
    )
    return float(answer.fun)


@settings(max_examples=40)
@given(damages(SMALL))
def test_directed_trees_are_no_better(damage: Damage) -> None:
    assert float(optimum(damage)) == pytest.approx(by_flows(damage), abs=1e-6)


@pytest.mark.slow
@settings(max_examples=40)
@given(damages(LARGER))
def test_any_damage_is_planned_optimally_and_repeatably(damage: Damage) -> None:
    assert optimum(damage) >= formula(damage)
    assert pack(surviving(*damage), NO_LIMIT) == pack(surviving(*damage), NO_LIMIT)


@pytest.mark.slow
@settings(max_examples=25)
@given(damages(LARGER), st.data())
def test_names_do_not_matter(damage: Damage, data: st.DataObject) -> None:
    bcube, dead, down = damage
    levels = data.draw(st.permutations(range(bcube.k)))
    digits = [data.draw(st.permutations(range(bcube.n))) for _ in levels]

    def moved(server: int) -> int:
        return sum(
            digits[level][bcube.digit(server, level)] * int(bcube.n ** levels[level])
            for level in range(bcube.k)
        )

    renamed = (
        bcube,
        frozenset(moved(server) for server in dead),
        frozenset((moved(server), levels[level]) for server, level in down),
    )
    assert optimum(renamed) == optimum(damage)


@settings(max_examples=60)
@given(damages(SMALL), st.sampled_from([1e-9, 0.004, 0.01]))
def test_a_packing_and_a_bound_at_any_time(damage: Damage, seconds: float) -> None:
    packing = pack(surviving(*damage), Deadline(seconds))
    check_packing(*damage, packing)
    assert packing.bound >= formula(damage)
    assert packing.timed_out <= (packing.load > packing.bound)


def test_the_time_runs_out() -> None:
    damage = BCube(4, 2), frozenset([0]), NOTHING
    packing = pack(surviving(*damage), Deadline(1e-9))
    check_packing(*damage, packing)
    assert packing.timed_out
    assert packing.load > packing.bound == Fraction(14, 15)


@pytest.mark.slow
@settings(max_examples=60)
@given(damages(SMALL), st.data())
def test_it_may_start_with_any_trees(damage: Damage, data: st.DataObject) -> None:
    hops = hops_left((damage[0], NOTHING, NOTHING))
    trees = data.draw(st.lists(st.lists(st.sampled_from(hops)).map(tuple), min_size=1, max_size=3))
    assert optimum(damage, start=trees) == optimum(damage)


def test_the_given_trees_are_used() -> None:
    line = (0, 1, 0), (1, 2, 0), (2, 3, 0)
    packing = pack(surviving(BCube(4, 1)), Deadline(1e-9), start=[line])
    assert packing.trees == (line,)


def test_without_simple_fractions_the_load_is_near() -> None:
    damage = BCube(3, 3), NOTHING, frozenset([(0, 0)])
    packing = pack(surviving(*damage), NO_LIMIT)
    check_packing(*damage, packing)
    assert packing.bound == Fraction(13, 20)
    assert packing.bound <= packing.load < packing.bound * (1 + Fraction(1, 10**8))
    assert not packing.timed_out


def test_a_solver_that_gives_up_leaves_a_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_answer(*_: object, **__: object) -> OptimizeResult:
        return OptimizeResult(status=4)

    monkeypatch.setattr("scipy.optimize.linprog", no_answer)
    damage = BCube(3, 2), frozenset([0]), NOTHING
    packing = pack(surviving(*damage), NO_LIMIT)
    check_packing(*damage, packing)
    assert packing.bound == Fraction(7, 8) < packing.load
    assert not packing.timed_out


def test_a_server_alone_has_nothing_to_send() -> None:
    damage = BCube(2, 2), frozenset([0, 1, 3]), NOTHING
    packing = pack(surviving(*damage), NO_LIMIT)
    check_packing(*damage, packing)
    assert packing == Packing(((),), (Fraction(1),), Fraction(0), Fraction(0), timed_out=False)
