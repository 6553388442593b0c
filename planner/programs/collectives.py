"""The collective program by which a plan sums up gradients, on a BCube and elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET

from planner.families.bml.checker import CheckerContext, check
from planner.families.bml.program import made, program_of
from planner.families.bml.reroute import Damage
from planner.families.bml.trees import Plan
from planner.families.collectives.exchange import bml_program
from planner.families.collectives.layout import GivenLayout
from planner.families.collectives.program import ListedProgram, Program
from planner.families.collectives.recipes import Recipe
from planner.jsonio.bigdl import BigdlAnswer
from planner.jsonio.bml import BmlAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.jsonio.links import failures_of
from planner.jsonio.results import plan_of
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube, Failures
from planner.model.validation import inside, shown
from planner.programs.from_plans import Answer, read_plan, recipes_of, through_a_driver


class SummingProgram(NamedTuple):
    """The program by which a plan sums up gradients."""

    program: Program  # the all-reduce
    depth: int = 1  # pipelined parts, each one step behind the part before
    size_bytes: int | None = None  # the only size of tensors that the program fits; None: any


def summing_program(
    answer: Answer, algorithm: str | None = None, depth: int | None = None
) -> SummingProgram:
    """Return the program by which a checked answer sums up gradients.

    `algorithm` and `depth` choose a program where transfers have several. Raises an
    `InvalidInputError`, with the path of the missing field, if the answer leaves the program open,
    and a `NotApplicableError` if the program cannot be generated.
    """
    if isinstance(answer, IterationAnswer):
        return _chosen(answer, algorithm, depth)
    for path, chosen in (("algorithm", algorithm), ("depth", depth)):
        if chosen is not None:
            raise InvalidInputError(path, f"not with a plan of {answer.problem}, which has one")
    if isinstance(answer, BmlAnswer):
        return _of_bcube(answer)
    if isinstance(answer, BigdlAnswer):
        if answer.slices is UNSET:
            raise through_a_driver(answer.method)
        return SummingProgram(_sliced(answer, answer.slices), 1, answer.gradient_bytes)
    raise InvalidInputError(
        "problem",
        f"a plan of {answer.problem} leaves open how to sum up: expected one of iteration, bml "
        "or bigdl",
    )


def _chosen(answer: IterationAnswer, algorithm: str | None, depth: int | None) -> SummingProgram:
    """Return the program and depth of all transfers, or of those with the given algorithm."""
    ring = Recipe("ring", (answer.workers,))
    recipes = {name: recipe or ring for name, recipe in recipes_of(answer).items()}
    first = recipes.pop(None)
    several = len({first, *recipes.values()}) > 1
    if (several and algorithm is None) or (algorithm is not None and algorithm not in recipes):
        named = ", ".join(str(name) for name in recipes)
        raise InvalidInputError(
            "algorithm", f"expected one by which transfers are summed up: {named}"
        )
    recipe = first if algorithm is None else recipes[algorithm]
    depths = {
        transfer.depth or 1
        for transfer in answer.transfers
        if recipes.get(transfer.algorithm or None, first) == recipe
    } or {1}
    if depth not in depths and (depth is not None or len(depths) > 1):
        named = ", ".join(map(str, sorted(depths)))
        raise InvalidInputError("depth", f"expected one at which transfers are summed up: {named}")
    return SummingProgram(made(recipe), depth or depths.pop())


def _sliced(answer: BigdlAnswer, slices: Sequence[tuple[int, int]]) -> Program:
    """Return the direct exchange of slices; each slice is a chunk."""
    program = made(Recipe("direct", (answer.nodes,)))
    if len({stop - start for start, stop in slices}) == 1:
        return program
    starts = (start * answer.element_bytes for start, _ in slices)
    layout = GivenLayout((*starts, answer.gradient_bytes))
    return ListedProgram(
        program.name,
        program.ranks,
        program.lanes,
        program.links,
        program.chunks,
        tuple(program.messages()),
        range(program.ranks),
        program.scatter_steps,
        placed=lambda *_: layout,
    )


def _of_bcube(answer: BmlAnswer) -> SummingProgram:
    """Return the program of the plan that an answer holds, or else of Algorithm 1."""
    bcube = BCube(answer.n, answer.k)
    failed = Failures() if answer.failed is UNSET else failures_of(bcube, answer.failed)
    if answer.plan is not UNSET:
        with inside("plan"):
            plan = plan_of(answer.plan)
        if not isinstance(plan, Plan):
            raise InvalidInputError("plan.kind", f"no plan of bml: {shown(answer.plan.kind)}")
        damage = Damage(bcube, failed)
        check(CheckerContext(bcube, damage.dead, damage.down), plan)
        return SummingProgram(program_of(plan), plan.rounds)
    if failed or answer.method not in ("bml", "detour") or answer.steps is UNSET:
        why = '; ask for "with_plan": true' if answer.reason is UNSET else f": {answer.reason}"
        raise InvalidInputError("plan", f"missing{why}")
    return SummingProgram(bml_program(bcube), 1 if answer.rounds is UNSET else answer.rounds)


# ---
# Synchronisation plans of a BCube, typed or as answers, as collective programs.


def bcube_program(
    bcube: BCube, plan: bytes | Mapping[str, Any] | BmlAnswer | Plan | None
) -> SummingProgram:
    """Return a plan's program, its depth, and the only tensor size it fits, if any.

    Raises an `InvalidInputError` if the plan is for another network, or if an answer around
    failures lacks its plan.
    """
    if plan is None:
        return SummingProgram(bml_program(bcube))
    if not isinstance(plan, bytes | Mapping | BmlAnswer):
        if plan.bcube != bcube:
            raise InvalidInputError("plan", f"expected one for {bcube}, got one for {plan.bcube}")
        return SummingProgram(program_of(plan), plan.rounds)
    answer = read_plan(plan)  # `read_plan` also checks
    if not isinstance(answer, BmlAnswer):
        raise InvalidInputError("problem", f"expected a plan of bml, got {answer.problem}")
    if (answer.n, answer.k) != (bcube.n, bcube.k):
        raise InvalidInputError(
            "n" if answer.n != bcube.n else "k",
            f"a plan for BCube({answer.n}, {answer.k}), expected one for "
            f"BCube({bcube.n}, {bcube.k})",
        )
    return summing_program(answer)
