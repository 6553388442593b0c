"""FSDP units: against all choices of units, and against the same model as an integer program."""

import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.clusters import Cluster, Nic
from planner.costs import AffineCost
from planner.errors import NotApplicableError
from planner.graphs import Graph, Op, Parameter
from planner.iteration import Footprint, Problem, check, fsdp_units, solve
from planner.iteration.checker import check_room
from planner.iteration.fsdp_units import choose_units, fsdp_milp
from planner.iteration.module_tree import module_tree
from planner.topologies import Switch

Layer = tuple[str, int, int, int]
"""Module, forward time, backward time, bytes of its parameter; 0 if it has none."""


def model(layers: list[Layer]) -> Graph:
    """A chain of ops, each with at most one parameter."""
    names = [f"{name}/forward" for name, *_ in layers]
    forward = [
        Op(name, layer[1], "forward", tuple(names[max(i - 1, 0) : i]))
        for i, (name, layer) in enumerate(zip(names, layers, strict=True))
    ]
    backward = []
    for i in range(len(layers) - 1, -1, -1):
        after = (f"{layers[i + 1][0]}/backward",) if i + 1 < len(layers) else ()
        backward.append(
            Op(f"{layers[i][0]}/backward", layers[i][2], "backward", (names[i], *after))
        )
    parameters = tuple(
        Parameter(f"{name}.weight", size, (f"{name}/backward",), (f"{name}/forward",))
        for name, _, _, size in layers
        if size
    )
    return Graph((*forward, *backward), parameters)


def cluster(memory: int | None = None) -> Cluster:
    """Half an all-reduce costs 3 times 5 ns and 3/4 ns a byte by ring."""
    nic = Nic(Fraction(10**9), 5)
    return Cluster("four", "made up", 4, Switch(4), nic, memory_bytes=memory)


def problem(
    layers: list[Layer], room: int | None = None, pulls: list[int] | None = None
) -> Problem:
    return Problem(model(layers), cluster(), pull_bytes=pulls, max_transfer_bytes=room)


def inside(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def candidates(layers: list[Layer]) -> list[str]:
    """Names of all modules with parameters but the root."""
    found = {
        ".".join(name.split(".")[:depth])
        for name, _, _, size in layers
        if size
        for depth in range(1, name.count(".") + 2)
    }
    return sorted(found)


def exposed(
    layers: list[Layer], sizes: dict[str, tuple[int, int]], units: tuple[str, ...], half: AffineCost
) -> tuple[Fraction, int]:
    """The objective as printed, and bytes of the largest unit, the root's share too."""

    def cost(size: int) -> Fraction:
        return half.startup_ns + half.ns_per_byte * size

    def members(unit: str) -> list[Layer]:
        return [layer for layer in layers if inside(layer[0], unit)]

    def size(unit: str, way: int) -> int:
        return sum(sizes[layer[0]][way] for layer in members(unit))

    in_order = sorted(units, key=lambda unit: layers.index(members(unit)[0]))
    rest = [sum(one[way] for one in sizes.values()) for way in (0, 1)]
    rest = [rest[way] - sum(size(unit, way) for unit in units) for way in (0, 1)]
    found = sum(map(cost, rest), Fraction(-2 * half.startup_ns))  # they are in every choice
    if in_order:
        found += cost(size(in_order[0], 0)) + cost(size(in_order[0], 1))
    for one, following in pairwise(in_order):
        found += max(Fraction(0), cost(size(following, 1)) - sum(m[1] for m in members(one)))
        found += max(Fraction(0), cost(size(following, 0)) - sum(m[2] for m in members(one)))
    largest = max([*rest, *(size(unit, way) for unit in units for way in (0, 1))])
    return found, largest


def antichains(names: list[str]) -> Iterator[tuple[str, ...]]:
    """Every choice of modules of which none contains another."""
    for count in range(len(names) + 1):
        for units in combinations(names, count):
            if not any(inside(a, b) or inside(b, a) for a, b in combinations(units, 2)):
                yield units


modules = st.sampled_from(["a", "a.x", "a.y", "b", "b.x.u", "b.x.v", "b.y", "c.x", "c.x.u", "d"])
times = st.integers(0, 60)
half_costs = st.builds(
    AffineCost, st.integers(0, 20), st.fractions(Fraction(1, 4), 2, max_denominator=5)
)


@st.composite
def chains(draw: st.DrawFn) -> list[Layer]:
    """Layers of few modules; those of one module stand together."""
    names = sorted(draw(st.sets(modules, min_size=1, max_size=5)))
    layers = [(name, draw(times), draw(times), draw(st.integers(0, 40))) for name in names]
    assume(any(layer[3] for layer in layers))
    return layers


@given(chains(), half_costs, st.none() | st.integers(1, 120), st.booleans())
@settings(deadline=None, max_examples=150)
def test_no_choice_of_units_exposes_less(
    layers: list[Layer], half: AffineCost, room: int | None, larger: bool
) -> None:
    sent = [layer[3] for layer in layers if layer[3]]
    pulls = [size + 7 * (place % 3) for place, size in enumerate(sent)] if larger else None
    given_problem = problem(layers, pulls=pulls)
    pulled = iter(pulls or sent)
    sizes = {layer[0]: (layer[3], next(pulled) if layer[3] else 0) for layer in layers}
    tree = module_tree(given_problem)
    chosen = choose_units(tree, half, room)
    costs = []
    for units in antichains(candidates(layers)):
        objective, largest = exposed(layers, sizes, units, half)
        if room is None or largest <= room:
            costs.append((objective, len(units)))
    if not costs:
        assert chosen is None
        return
    assert chosen is not None
    names = tuple(tree[index].name for index in chosen)
    objective, largest = exposed(layers, sizes, names, half)
    assert (objective, len(names)) == min(costs)
    assert room is None or largest <= room


@given(chains(), half_costs, st.integers(1, 60))
@settings(deadline=None, max_examples=80)
def test_a_search_given_up_leaves_the_best_for_its_share_of_the_root(
    layers: list[Layer], half: AffineCost, room: int
) -> None:
    sizes = {layer[0]: (layer[3], layer[3]) for layer in layers}
    tree = module_tree(problem(layers))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fsdp_units, "MAX_KEPT", 0)
        chosen = choose_units(tree, half, room)

    def share(units: tuple[str, ...]) -> int:
        return sum(layer[3] for layer in layers if not any(inside(layer[0], u) for u in units))

    fitting = [
        units
        for units in antichains(candidates(layers))
        if exposed(layers, sizes, units, half)[1] <= room
    ]
    assert (chosen is None) == (not fitting)
    if chosen is not None:
        names = tuple(tree[index].name for index in chosen)
        mine, largest = exposed(layers, sizes, names, half)
        assert largest <= room
        assert all(
            exposed(layers, sizes, units, half)[0] >= mine
            for units in fitting
            if share(units) <= share(names)
        )


def integer_program(layers: list[Layer], half: AffineCost, room: int | None) -> float | None:
    """The least exposed time by PuLP: a path of units, each arc what the later one exposes."""
    pytest.importorskip("planner.ibatch.milp")  # loads OR-Tools and PuLP in the order they need
    import pulp
    from pulp.apis.coin_api import pulp_cbc_path

    names = candidates(layers)
    first = {unit: min(i for i, m in enumerate(layers) if inside(m[0], unit)) for unit in names}
    covers = {unit: [m for m in layers if inside(m[0], unit)] for unit in names}
    size = {unit: sum(m[3] for m in covers[unit]) for unit in names}
    total, rate = sum(m[3] for m in layers), float(half.ns_per_byte)
    model = pulp.LpProblem("units", pulp.LpMinimize)
    arcs: list[tuple[str, str, float, Any]] = []
    for place, one in enumerate(["", *names]):
        for other in [*names, "end"]:
            if one and other != "end" and first[other] < first[one] + len(covers[one]):
                continue
            shown = 0.0
            if other != "end":
                time = half.startup_ns + rate * size[other]
                forward = sum(m[1] for m in covers[one]) if one else 0
                backward = sum(m[2] for m in covers[one]) if one else 0
                shown = max(0.0, time - forward) + max(0.0, time - backward)
            x = model.add_variable(f"x{place}_{len(arcs)}", cat=pulp.LpBinary)
            arcs.append((one, other, shown, x))
    share = total - pulp.lpSum(size[b] * x for _, b, _, x in arcs if b != "end")
    model.setObjective(pulp.lpSum(shown * x for _, _, shown, x in arcs) + 2 * rate * share)
    model.addConstraint(pulp.lpSum(x for a, _, _, x in arcs if not a) == 1)
    for unit in names:
        into = pulp.lpSum(x for _, b, _, x in arcs if b == unit)
        model.addConstraint(into == pulp.lpSum(x for a, _, _, x in arcs if a == unit))
        if room is not None and size[unit] > room:
            model.addConstraint(into == 0)
    if room is not None:
        model.addConstraint(share <= room)
    model.solve(pulp.COIN_CMD(path=pulp_cbc_path, msg=False, threads=1, timeLimit=20))
    if model.status == pulp.LpStatusInfeasible:
        return None
    assert model.status == pulp.LpStatusOptimal
    return float(pulp.value(model.objective))


@pytest.mark.parametrize("seed", range(4))
def test_the_integer_program_finds_nothing_better(seed: int) -> None:
    """Too many modules to try all choices; memory binds in every other model."""
    draw = random.Random(seed)
    layers = [
        (
            f"part{p}.block{b}.layer{n}",
            draw.randint(0, 90),
            draw.randint(0, 90),
            draw.randint(1, 60),
        )
        for p in range(2)
        for b in range(3)
        for n in range(3)
    ]
    half = AffineCost(15, Fraction(3, 4))
    room = 70 if seed % 2 else None
    tree = module_tree(problem(layers))
    chosen = choose_units(tree, half, room)
    best = integer_program(layers, half, room)
    assert chosen is not None
    assert best is not None
    sizes = {layer[0]: (layer[3], layer[3]) for layer in layers}
    objective, largest = exposed(layers, sizes, tuple(tree[i].name for i in chosen), half)
    assert float(objective) == pytest.approx(best, abs=1e-3)
    assert room is None or largest <= room


@given(chains(), st.none() | st.integers(1, 120))
@settings(deadline=None, max_examples=40)
def test_plans_are_plans_and_without_a_cap_the_joint_plan_is_never_worse(
    layers: list[Layer], room: int | None
) -> None:
    given_problem = problem(layers, room)
    synchronisation = given_problem.single[0]
    try:
        plan = fsdp_milp(given_problem, synchronisation)
    except NotApplicableError:
        assert room is not None
        return
    check(given_problem, plan)
    check_room(given_problem, plan)
    tree = module_tree(given_problem)
    assert isinstance(synchronisation.half, AffineCost)
    chosen = choose_units(tree, synchronisation.half, room)
    assert chosen is not None
    names = [tree[index].name for index in chosen]
    parameters = [parameter.name for parameter in given_problem.graph.parameters]
    units = [{parameter for parameter in parameters if inside(parameter, name)} for name in names]
    rest = set(parameters).difference(*units)
    expected = sorted(map(sorted, [*units, *([rest] if rest else [])]))
    for kind in ("push", "pull"):
        sent = [
            sorted(parameters[part.parameter] for part in transfer.parts)
            for transfer in plan.transfers
            if transfer.kind == kind
        ]
        assert sorted(sent) == expected
    mine, joint = solve(given_problem, method="fsdp_milp"), solve(given_problem)
    assert mine.objective_ns is not None
    assert joint.objective_ns is not None
    assert joint.objective_ns <= mine.objective_ns


def test_a_small_model_by_hand() -> None:
    """b hides behind a; c would not hide behind b, so what is left of the model is the root's."""
    layers = [("a", 100, 100, 4), ("b", 0, 0, 80), ("c", 0, 0, 4)]
    given_problem = problem(layers)
    tree = module_tree(given_problem)
    assert [one.name for one in tree] == ["", "a", "b", "c"]
    chosen = choose_units(tree, AffineCost(15, Fraction(1)))
    assert chosen == (1, 2)  # 2·19 for a, 0 for b, 2·4 for c with the root: 46


def test_calls_of_functions_and_second_calls_belong_to_their_modules() -> None:
    names = ["a.conv", "a:add+view", "a.relu", "a.relu#2"]
    graph = model([(name, 1, 2, 4 if name == "a.conv" else 0) for name in names])
    tree = module_tree(Problem(graph, cluster()))
    assert [(one.name, one.stop) for one in tree] == [
        ("", 4),
        ("a", 4),
        ("a.conv", 3),
        ("a.relu", 4),
    ]
    assert [(one.forward_ns, one.backward_ns) for one in tree] == [(4, 8), (4, 8), (1, 2), (2, 4)]


def test_ops_without_modules_are_refused() -> None:
    graph = Graph(
        (Op("f", 1, "forward"), Op("b", 1, "backward", ("f",))),
        (Parameter("w", 4, ("b",), ("f",)),),
    )
    given_problem = Problem(graph, cluster())
    with pytest.raises(NotApplicableError, match="called after their modules") as caught:
        fsdp_milp(given_problem, given_problem.single[0])
    assert caught.value.path == "method"


def test_too_little_memory_is_named() -> None:
    layers = [("a", 1, 1, 40), ("b", 1, 1, 60)]
    footprint = Footprint(100, 100)  # a quarter of the parameters is the worker's own copy
    for memory, fits in ((225 + 60, True), (225 + 59, False)):
        given_problem = Problem(model(layers), cluster(memory), footprint=footprint)
        synchronisation = given_problem.single[0]
        if fits:
            check_room(given_problem, fsdp_milp(given_problem, synchronisation))
            continue
        with pytest.raises(NotApplicableError, match="memory_bytes leaves room for units of 59"):
            fsdp_milp(given_problem, synchronisation)
