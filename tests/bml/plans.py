"""Problems and plans drawn by Hypothesis."""

from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

from hypothesis import assume, reject
from hypothesis import strategies as st

from planner.families import bml
from planner.families.bml.reroute import detour
from planner.families.bml.schedule import FULL_WEIGHT
from planner.families.bml.trees import Tree, root_at_centre
from planner.model.errors import NotApplicableError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.testing.strategies import networks
from tests.bml.networks import damaged_networks, hops_of, links_left, small_bcubes

NET = Network(Fraction(10**9))

Planned: TypeAlias = tuple[bml.Problem, bml.Plan]


def context_of(bcube: BCube, failed: bml.Failures) -> bml.CheckerContext:
    """Return the checker's context of a network."""
    damage = bml.Damage(bcube, failed)
    return bml.CheckerContext(bcube, damage.dead, damage.down)


def all_transfers(plan: bml.Plan) -> list[bml.Transfer]:
    """Return the transfers of all servers."""
    return [move for server in range(plan.bcube.servers) for move in plan.transfers(server)]


@st.composite
def problems(
    draw: st.DrawFn, bcube: BCube, failed: bml.Failures | None = None, *, most: int = 300
) -> bml.Problem:
    """Draw a gradient, often smaller than the number of pieces, in one or several layers."""
    element = draw(st.integers(1, 4))
    elements = st.integers(0, 3) | st.integers(0, most)
    layers = draw(st.lists(elements, max_size=4))
    return bml.Problem(
        bcube,
        draw(networks()),
        None if layers else element * draw(elements),
        tuple(element * size for size in layers),
        element,
        failed or bml.Failures(),
    )


@st.composite
def spanning_trees(draw: st.DrawFn, bcube: BCube, failed: bml.Failures) -> Tree:
    """Draw a spanning tree of a connected network."""
    links = links_left(bcube, failed)
    part = {server: server for server in links}
    tree = []
    for one, other, level in draw(st.permutations(hops_of(links))):
        if part[one] != part[other]:
            old, new = part[other], part[one]
            part = {server: new if its == old else its for server, its in part.items()}
            tree.append((one, other, level))
    return tuple(sorted(tree))


@st.composite
def tree_planned(draw: st.DrawFn) -> tuple[bml.Problem, bml.TreePlan]:
    """Draw up to three trees with shares."""
    bcube, failed = draw(damaged_networks(most=1))
    assume(bml.Damage(bcube, failed).living > 1)
    trees = draw(st.lists(spanning_trees(bcube, failed), min_size=1, max_size=3))
    weights = [draw(st.integers(1, 6)) for _ in trees]
    shares = tuple(Fraction(weight, sum(weights)) for weight in weights)
    plan = bml.TreePlan(bcube, tuple(map(root_at_centre, trees)), shares, draw(st.integers(1, 6)))
    return draw(problems(bcube, failed)), plan


def detour_or_reject(damage: bml.Damage) -> bml.Schedule:
    """Return the detours around failures, if there are any."""
    try:
        return detour(damage)
    except NotApplicableError:
        reject()


@st.composite
def detoured(draw: st.DrawFn) -> tuple[bml.Problem, bml.Schedule]:
    bcube, failed = draw(damaged_networks(most=2))
    plan = detour_or_reject(bml.Damage(bcube, failed))
    return draw(problems(bcube, failed)), replace(plan, rounds=draw(st.integers(1, 6)))


@st.composite
def intact(draw: st.DrawFn, *, rounds: int = 1) -> tuple[bml.Problem, bml.Schedule]:
    bcube = draw(small_bcubes)
    plan = bml.Schedule(bcube, rounds=draw(st.integers(1, rounds)))
    return draw(problems(bcube)), plan


@st.composite
def lighter(draw: st.DrawFn) -> Planned:
    """Draw a plan in which some ranges of pieces weigh less than others, or nothing."""
    problem, plan = draw(st.one_of(intact(rounds=3), detoured()))
    count = plan.threads * plan.pieces
    ends = sorted(draw(st.sets(st.integers(0, count), max_size=6)))
    light = tuple(zip(ends[::2], ends[1::2], strict=False))
    covered = {piece for start, stop in light for piece in range(start, stop)}
    assume(light and len(covered | set(plan.left_out)) < count)
    weight = draw(st.integers(0, FULL_WEIGHT - 1))
    return problem, replace(plan, light=light, light_weight=weight)


planned = st.one_of(intact(rounds=5), detoured(), tree_planned(), lighter())
"""Plans of every kind."""
