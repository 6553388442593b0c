"""Programs around failures, and all others, by their recipes: whoever reads a plan makes the same.

Problem. A plan of a whole iteration on a damaged BCube sums up around what has failed, time and
again and whatever the size. Its recipe is all that is written of the program.

Method. Detours (`planner.bml.detour`) with pieces of one size; where they do not apply, a few trees
of equal shares, one after the other the cheapest where a NIC costs what it carries. Both are made
in integers, in a fixed order, by no solver. The living servers are the ranks, in order.

With rounds everything is cut in so many parts, each a step behind the part before it: NICs then
carry what summing up loads and what handing out does at once. That has no halves.

Guarantee. The same program for the same recipe, everywhere; one exists wherever the failures do not
cut the network. With one round its halves are mirror images: they take as many steps, and NICs
carry as much. No optimality: `planner.bml.solve` plans for one size of gradient.

Complexity. Linear in the program's messages, 2k²(n-1)·N about, times the rounds. Source. Own.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from planner.bml.damage import Damage
from planner.bml.detour import detour
from planner.bml.family import infeasibility_of
from planner.bml.packing import few_trees
from planner.bml.plan import Plan
from planner.bml.program import listed
from planner.bml.trees import TreePlan, root_at_centre
from planner.collectives import recipes
from planner.collectives.parts import in_parts
from planner.collectives.program import Program
from planner.collectives.recipes import Recipe
from planner.deadline import NEVER
from planner.errors import InvalidInputError, NotApplicableError
from planner.solving.methods import known_method
from planner.topologies import BCube, Failures
from planner.validation import integer

__all__ = ["GENERATORS", "MAX_REPLANNED", "REPLAN", "made", "ranks_of", "replanned"]

REPLAN = "bml_replan"
"""The generator of programs around failures: n, k and, if there are several, the rounds."""

MAX_REPLANNED = 2**10
"""Servers up to which a program around failures is listed, message by message: some seconds."""

MAX_ROUNDS = 2**6

TREES = 8
"""Trees where detours do not apply."""


MAX_ROUNDED = 2**6
"""The same with rounds."""


def replanned(bcube: BCube, failed: Failures, rounds: int = 1) -> Program:
    """Return how the living servers sum up, in so many rounds; rank r is the r-th of them.

    Raises
    ------
    InvalidInputError
        If something is not in the network, or fewer than two servers are left.
    NotApplicableError
        If the failures cut the network, or it is too large.
    """
    most = MAX_REPLANNED if rounds == 1 else MAX_ROUNDED
    if bcube.servers > most:
        raise NotApplicableError(
            "failed",
            f"expected a network of at most {most} servers where something has failed, "
            f"got {bcube.servers}",
        )
    failed.check(bcube)
    damage = Damage(bcube, failed)
    if damage.living < 2:
        raise InvalidInputError(
            "failed.servers", f"expected two that work at least, got {damage.living}"
        )
    cut = infeasibility_of(damage)
    if cut is not None:
        raise NotApplicableError("failed", cut.reason)
    program = replace(listed(_plan(damage)), placed=None)  # all chunks have one size
    return in_parts(program, rounds)


def _plan(damage: Damage) -> Plan:
    try:
        return detour(damage)
    except NotApplicableError:
        packing = few_trees(damage.bcube, damage.dead, damage.down, TREES, NEVER)
        shares = zip(packing.trees, packing.weights, strict=True)
        trees = [root_at_centre(tree) for tree, share in shares for _ in range(int(share * TREES))]
        return TreePlan(damage.bcube, tuple(trees), (Fraction(1, TREES),) * TREES)


def _replan(recipe: Recipe) -> Program:
    bcube, (rounds,) = _bcube(recipe), recipe.shape[2:] or (1,)
    return replanned(
        bcube, recipe.failed, integer(rounds, "shape[2]", minimum=1, maximum=MAX_ROUNDS)
    )


def _bcube(recipe: Recipe) -> BCube:
    if not 2 <= len(recipe.shape) <= 3:
        raise InvalidInputError("shape", f"expected 2 or 3 numbers, got {len(recipe.shape)}")
    return BCube(*recipe.shape[:2])


GENERATORS: Mapping[str, Callable[[Recipe], Program]] = MappingProxyType(
    {**dict.fromkeys(recipes.GENERATORS, recipes.made), REPLAN: _replan}
)
"""Every generator by its name."""


def made(recipe: Recipe) -> Program:
    """Return the program of a recipe.

    Raises
    ------
    InvalidInputError
        If there is no such generator, or its shape or its failures are none.
    NotApplicableError
        If the generator does not apply to them.
    """
    return GENERATORS[known_method(recipe.generator, GENERATORS, "generator")](recipe)


def ranks_of(recipe: Recipe) -> int:
    """Return among how many ranks the program of a recipe is, without making it.

    Raises
    ------
    InvalidInputError
        If its shape, or its failures, are none.
    """
    if recipe.generator != REPLAN:
        return recipes.ranks_of(recipe)
    bcube = _bcube(recipe)
    recipe.failed.check(bcube)
    return bcube.servers - len(recipe.failed.servers)
