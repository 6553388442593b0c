"""Plans of synchronisation as collective programs, including programs around later failures.

Living servers become ranks, in order; threads become lanes, levels links, and pieces in use chunks.
Without failures the result is Algorithm 1 in its symmetric form.

Complexity: linear in the plan's transfers; O(n·k²) without failures. Source: own.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from types import MappingProxyType

from planner.families.bml.methods import infeasibility_of
from planner.families.bml.packing import few_trees
from planner.families.bml.reroute import Damage, detour
from planner.families.bml.schedule import Schedule
from planner.families.bml.trees import Plan, TreePlan, root_at_centre
from planner.families.collectives import recipes
from planner.families.collectives.exchange import bml_program
from planner.families.collectives.layout import GivenLayout, Layout
from planner.families.collectives.program import ListedProgram, Message, Program, in_parts
from planner.families.collectives.recipes import Recipe
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.topologies import BCube, Failures
from planner.model.validation import integer, one_of
from planner.solving.deadline import NEVER


def program_of(plan: Plan) -> Program:
    """Return a plan as a program; its rounds are the depth to run it with."""
    if isinstance(plan, Schedule) and not plan.changed:
        return bml_program(plan.bcube)
    return listed(plan)


def listed(plan: Plan) -> ListedProgram:
    """Return a plan as a program with one message per transfer."""
    bcube, out = plan.bcube, plan.left_out
    transfers = [move for server in range(bcube.servers) for move in plan.transfers(server)]
    gone = set(out)
    kept = [piece for piece in range(plan.threads * plan.pieces) if piece not in gone]
    owners = [plan.owner(*divmod(piece, plan.pieces)) for piece in kept]
    servers = sorted({*owners, *(end for move in transfers for end in (move.server, move.peer))})
    rank = {server: number for number, server in enumerate(servers)}

    def chunk(piece: int) -> int:
        return piece - bisect_left(out, piece)

    messages = []
    for move in transfers:
        piece = move.thread * plan.pieces + move.offset
        first, stop = chunk(piece), chunk(piece + move.length)
        if first < stop:
            adds = move.stage == "aggregate"
            step = move.step if adds else plan.steps + move.step
            ends = rank[move.server], rank[move.peer]
            messages.append(Message(step, move.thread, *ends, move.level, first, stop, adds))
    return ListedProgram(
        f"bml({bcube.n}, {bcube.k}) around failures",
        len(servers),
        plan.threads,
        bcube.k,
        len(kept),
        tuple(messages),
        [rank[owner] for owner in owners],
        plan.steps,
        placed=partial(_placed, plan, tuple(kept)),
    )


def _placed(plan: Plan, kept: tuple[int, ...], elements: int, element_bytes: int) -> Layout:
    layout = plan.layout(elements, element_bytes)
    return GivenLayout((*map(layout.start, kept), layout.start(plan.threads * plan.pieces)))


# ---
# Collective programs from recipes, including programs around failures.
#
# Problem: a plan of a whole iteration stores only the recipe of a program, so every reader must
# make the same program from it. Method: `planner.families.bml.reroute` with equal pieces; where it
# does not apply, `TREES` greedy trees of equal share. Both use integers in a fixed order and no
# solver. The living servers are the ranks, in order. With rounds everything is cut into parts, each
# one step behind the part before. Guarantee: the same program for the same recipe on every machine;
# it exists wherever the failures leave the network connected. With one round its halves are mirror
# images with equal steps and loads; with more rounds they overlap and are not separate. Not
# optimal; `planner.bml.solve` optimises for one gradient size. Complexity: linear in the messages,
# about 2k²(n-1)·N, times the rounds. Source: own.

REPLAN = "bml_replan"
"""The generator of programs around failures; its shape is n, k and, if above 1, the rounds."""

MAX_REPLANNED = 2**10
"""Largest number of servers for which a program is listed message by message: some seconds."""

MAX_ROUNDS = 2**6

TREES = 8
"""Number of trees where detours do not apply."""


MAX_ROUNDED = 2**6
"""Largest number of servers if there are several rounds."""


def replanned(bcube: BCube, failed: Failures, rounds: int = 1) -> Program:
    """Return the all-reduce program of the living servers; rank r is the r-th living server.

    InvalidInputError if a failed part does not exist in the network, or fewer than two servers are
    left; NotApplicableError if the failures cut the network, or it is too large.
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
        packing = few_trees(damage, TREES, NEVER)
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


def made(recipe: Recipe) -> Program:
    """Return the program of a recipe.

    InvalidInputError if the generator is unknown, or its shape or failures are invalid;
    NotApplicableError if it does not apply to them.
    """
    return GENERATORS[one_of(recipe.generator, GENERATORS, "generator")](recipe)


def ranks_of(recipe: Recipe) -> int:
    """Return the number of ranks of a recipe's program, without making the program.

    InvalidInputError if the shape or failures are invalid.
    """
    if recipe.generator != REPLAN:
        return recipes.ranks_of(recipe)
    bcube = _bcube(recipe)
    recipe.failed.check(bcube)
    return bcube.servers - len(recipe.failed.servers)
