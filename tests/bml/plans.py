"""Problems and plans drawn by Hypothesis."""

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

from hypothesis import assume
from hypothesis import strategies as st

from planner.families.bml import Damage, Failures, Problem, Schedule, Transfer, TreePlan
from planner.families.bml.reroute import detour
from planner.families.bml.trees import Plan, Tree, root_at_centre
from planner.model.errors import NotApplicableError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.testing.strategies import networks
from tests.bml.networks import damaged_networks, hops_of, links_left, small_bcubes

NET = Network(Fraction(10**9))


@st.composite
def problems(
    draw: st.DrawFn, bcube: BCube, failed: Failures | None = None, *, most: int = 300
) -> Problem:
    """Draw a gradient, often smaller than the number of pieces, in one or several layers."""
    element = draw(st.integers(1, 4))
    elements = st.integers(0, 3) | st.integers(0, most)
    layers = draw(st.lists(elements, max_size=4))
    return Problem(
        bcube,
        draw(networks()),
        None if layers else element * draw(elements),
        tuple(element * size for size in layers),
        element,
        failed or Failures(),
    )


@st.composite
def spanning_trees(draw: st.DrawFn, bcube: BCube, failed: Failures) -> Tree:
    """Draw a spanning tree of a connected network."""
    links = links_left(bcube, failed)
    hops = hops_of(links)
    part = {server: server for server in links}
    tree = []
    for one, other, level in draw(st.permutations(hops)):
        if part[one] != part[other]:
            old, new = part[other], part[one]
            part = {server: new if its == old else its for server, its in part.items()}
            tree.append((one, other, level))
    return tuple(sorted(tree))


@st.composite
def tree_plans(draw: st.DrawFn, bcube: BCube, failed: Failures) -> TreePlan:
    """Draw up to three trees with shares."""
    trees = draw(st.lists(spanning_trees(bcube, failed), min_size=1, max_size=3))
    weights = [draw(st.integers(1, 6)) for _ in trees]
    shares = tuple(Fraction(weight, sum(weights)) for weight in weights)
    assert list(accumulate(shares))[-1] == 1
    return TreePlan(bcube, tuple(map(root_at_centre, trees)), shares, draw(st.integers(1, 6)))


@st.composite
def tree_planned(draw: st.DrawFn) -> tuple[Problem, TreePlan]:
    bcube, failed = draw(damaged_networks(most=1))
    assume(Damage(bcube, failed).living > 1)
    return draw(problems(bcube, failed)), draw(tree_plans(bcube, failed))


@st.composite
def detoured(draw: st.DrawFn) -> tuple[Problem, Schedule]:
    bcube, failed = draw(damaged_networks(most=2))
    try:
        plan = detour(Damage(bcube, failed))
    except NotApplicableError:
        assume(condition=False)
    return draw(problems(bcube, failed)), replace(plan, rounds=draw(st.integers(1, 6)))


@st.composite
def intact(draw: st.DrawFn, *, rounds: int = 1) -> tuple[Problem, Schedule]:
    bcube = draw(small_bcubes)
    plan = Schedule(bcube, rounds=draw(st.integers(1, rounds)))
    return draw(problems(bcube)), plan


def all_transfers(plan: Plan) -> list[Transfer]:
    """Return the transfers of all servers."""
    return [move for server in range(plan.bcube.servers) for move in plan.transfers(server)]
