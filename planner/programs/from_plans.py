"""Builds programs from the contents of plans, which come typed or as answers.

Guarantee: a program sends the bytes of its plan in the plan's order; a plan that leaves a decision
open is refused. Complexity: O(parts).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, TypeGuard

import msgspec

from planner.families import bigdl, caramel, fsdp, ibatch, iteration
from planner.families.collectives.recipes import Recipe
from planner.jsonio import PROBLEMS, decode_answer, iteration_making
from planner.jsonio import bigdl as bigdl_json
from planner.jsonio import caramel as caramel_json
from planner.jsonio import fsdp as fsdp_json
from planner.jsonio import ibatch as ibatch_json
from planner.jsonio.bigdl import BigdlAnswer
from planner.jsonio.bml import BmlAnswer
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.fsdp import FsdpAnswer, plan_of
from planner.jsonio.ibatch import IbatchAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.jsonio.programs import recipe_in
from planner.jsonio.transfers import TransferDocument
from planner.jsonio.types import unset_to_none
from planner.model.errors import InvalidInputError
from planner.model.validation import shown
from planner.programs.forms import (
    Batch,
    Direction,
    GradientProgram,
    Piece,
    Program,
    ShardProgram,
    SliceProgram,
    piece_of,
)
from planner.programs.units import units_of
from planner.solving.deadline import NEVER
from planner.solving.family import Family
from planner.solving.result import Result
from planner.solving.transfers import Kind


def transfers(
    rows: Sequence[tuple[Kind, Batch]], *, barrier: bool
) -> GradientProgram | ShardProgram:
    """Return the program of a plan of `iteration`: all-reduces, or pushes and pulls, not both."""
    if all(kind == "all_reduce" for kind, _ in rows):
        return GradientProgram(tuple(batch for _, batch in rows), barrier)
    if barrier:
        raise InvalidInputError(
            "barrier", "expected none: what is pulled is waited for where it is read"
        )
    sharded: list[tuple[Direction, Batch]] = []
    for number, (kind, batch) in enumerate(rows):
        if kind == "all_reduce":
            path = f"transfers[{number}].kind"
            raise InvalidInputError(path, "all-reduces and pushes in one plan")
        sharded.append((kind, batch))
    return ShardProgram(tuple(sharded))


def shards(plans: Sequence[IbatchAnswer]) -> ShardProgram:
    """Return the program of one or two plans of `ibatch`, at most one per direction."""
    if len(plans) > 2 or len({plan.direction for plan in plans}) < len(plans):
        raise InvalidInputError("direction", "expected at most one plan to pull and one to push")
    table = unset_to_none(plans[0].layer_parameters)
    if any(unset_to_none(plan.layer_parameters) != table for plan in plans):
        raise InvalidInputError("layer_parameters", "the two plans are about different layers")
    if table is None:
        raise InvalidInputError(
            "layer_parameters",
            "missing: an executor has to know which parameters a layer has; plan with planner "
            "compare and a profile that names them, or put layer_parameters into the request",
        )
    names = [name for layer in table for name in layer]
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InvalidInputError("layer_parameters", f"{shown(repeated[0])} is in two layers")
    every = Batch(tuple(map(Piece, names)))
    batches: dict[str, tuple[Batch, ...]] = {"pull": (every,), "push": (every,)}
    for plan in plans:
        sizes = unset_to_none(plan.layer_bytes)
        batches[plan.direction] = tuple(
            Batch(
                tuple(Piece(name) for layer in table[start:stop] for name in layer),
                None if sizes is None else sum(sizes[start:stop]),
            )
            for start, stop in plan.batches
            if any(table[start:stop])
        )
    return ShardProgram.pushes_first(batches["pull"], batches["push"])


def through_a_driver(method: str) -> InvalidInputError:
    """Return the error for a plan of `bigdl` in which nodes own no slices."""
    return InvalidInputError("method", f"{method} goes through a driver: expected slices and pulls")


# ---
# Answers of the JSON interface as programs.

Answer = BigdlAnswer | BmlAnswer | CaramelAnswer | FsdpAnswer | IbatchAnswer | IterationAnswer


def read_plan(plan: bytes | Mapping[str, Any] | Answer) -> Answer:
    """Return an answer in its typed form, checked.

    An answer without a plan, or one that contradicts itself, is an `InvalidInputError`.
    """
    if isinstance(plan, Answer):
        PROBLEMS[plan.problem].view(plan)
        return plan
    document: object = plan
    if not isinstance(document, bytes | Mapping):
        message = f"expected bytes, a mapping or an answer, got {type(document).__name__}"
        if isinstance(document, str | PathLike):
            message += ": read the file, Path(…).read_bytes()"
        raise InvalidInputError("plan", message)
    data = plan if isinstance(plan, bytes) else msgspec.json.encode(dict(plan))
    answer, _ = decode_answer(data)
    if not isinstance(answer, Answer):
        raise InvalidInputError("problem", f"nothing to execute in a plan of {answer.problem}")
    return answer


def read_answer(answer: Answer) -> Program:
    """Return the program of a checked answer, of `ibatch` with the other direction as one batch.

    An answer that leaves the program open is an `InvalidInputError`.
    """
    if isinstance(answer, CaramelAnswer):
        sizes = answer.parameter_bytes
        groups = (
            Batch(_named_pieces(group, sizes), group.bytes, group.depth) for group in answer.groups
        )
        if answer.traffic != 1:
            raise InvalidInputError(
                "method",
                f"{answer.method} sends through parameter servers: expected all-reduces",
            )
        return GradientProgram(tuple(groups), answer.barrier)
    if isinstance(answer, IterationAnswer):
        pushed = answer.parameter_bytes
        pulled = unset_to_none(answer.pull_bytes) or pushed
        recipes, rows = recipes_of(answer), []
        for transfer in answer.transfers:
            pieces = _named_pieces(transfer, pulled if transfer.kind == "pull" else pushed)
            recipe = recipes[unset_to_none(transfer.algorithm)]
            batch = Batch(pieces, transfer.bytes, unset_to_none(transfer.depth) or 1, recipe)
            rows.append((transfer.kind, batch))
        return transfers(rows, barrier=answer.barrier)
    if isinstance(answer, IbatchAnswer):
        return shards([answer])
    if isinstance(answer, BigdlAnswer):
        slices, order = unset_to_none(answer.slices), unset_to_none(answer.pull_order)
        if slices is None or order is None:
            raise through_a_driver(answer.method)
        return SliceProgram(slices, order)
    if isinstance(answer, FsdpAnswer):
        plan, loads = plan_of(answer)
        mesh = answer.mesh.replicas, answer.mesh.shards
        return units_of(unset_to_none(answer.layer_names), plan, loads, mesh, answer.channels)
    raise InvalidInputError(
        "problem",
        f"a plan of {answer.problem} says how to sum up, not what to send when: give a plan of "
        "caramel, and sum up by BML with all_reduce=BcubeAllReduce(world, n, k), or --bcube n,k",
    )


def recipes_of(answer: IterationAnswer) -> dict[str | None, Recipe | None]:
    """Return the recipe of each algorithm of the transfers; the key None is the default.

    The recipe is None for the ring if the answer does not describe it, and with a single worker.
    """
    recipes: dict[str | None, Recipe | None] = {}
    for used in answer.synchronisation.algorithms:
        recipes[used.algorithm] = recipe = recipe_in(used.program)
        if recipe is None and used.algorithm not in ("ring", "none"):
            raise InvalidInputError(
                "synchronisation.program",
                f"missing: how to run {used.algorithm}; plan again, or with --algorithms",
            )
    return {None: recipes[answer.synchronisation.algorithm], **recipes}


def _named_pieces(transfer: TransferDocument, sizes: Mapping[str, int]) -> tuple[Piece, ...]:
    part = unset_to_none(transfer.part) or {}
    return tuple(
        piece_of(name, *part[name], sizes.get(name)) if name in part else Piece(name)
        for name in transfer.parameters
    )


# ---
# Typed plans, which are a problem with its plan or its result, as answers.

TypedPlan = (
    tuple[caramel.Problem, caramel.Plan | Result[caramel.Plan, Any]]
    | tuple[iteration.Problem, iteration.Plan | Result[iteration.Plan, Any]]
    | tuple[bigdl.Problem, bigdl.Plan | Result[bigdl.Plan, Any]]
    | tuple[fsdp.Problem, fsdp.Plan | Result[fsdp.Plan, Any]]
    | tuple[ibatch.Problem, ibatch.Plan | Result[ibatch.Plan, Any], Sequence[Sequence[str]]]
    | tuple[caramel.Problem | iteration.Problem, caramel.Plan | iteration.Plan]
)
"""Problems of `ibatch` name no parameters: the parameter names of each layer come third."""

_FAMILIES: Mapping[type, tuple[str, Family[Any, Any, Any], Callable[..., Answer]]] = {
    bigdl.Problem: ("bigdl", bigdl.BIGDL, bigdl_json.answer),
    caramel.Problem: ("caramel", caramel.CARAMEL, caramel_json.answer),
    fsdp.Problem: ("fsdp", fsdp.FSDP, fsdp_json.answer),
    ibatch.Problem: ("ibatch", ibatch.IBATCH, ibatch_json.answer),
    iteration.Problem: ("iteration", iteration.ITERATION, iteration_making.answer),
}
"""For each type of problem: its name, its family, and the function that makes its answers."""


def is_typed(plan: object) -> TypeGuard[TypedPlan]:
    """Return whether a value is a problem with its plan, and not a sequence of plans."""
    return isinstance(plan, tuple) and bool(plan) and type(plan[0]) in _FAMILIES


def answer_of(plan: TypedPlan) -> Answer:
    """Return the answer of a typed plan, after its family's checker has passed it."""
    problem: Any
    solution: Any
    problem, solution, *names = plan if len(plan) > 1 else (*plan, None)
    name, family, answer = _FAMILIES[type(problem)]
    method = f"this plan of {name}"
    if isinstance(solution, Result):
        if solution.infeasibility is not None:
            raise InvalidInputError("plan", f"there is none: {solution.infeasibility.reason}")
        method, solution = solution.method, solution.plan
    if not isinstance(solution, PROBLEMS[name].plans):
        raise InvalidInputError(
            "plan", f"expected a plan or result of a problem of {name}, got {shown(solution)}"
        )
    evaluation, objective_ns = family.priced(problem, solution, NEVER)
    known = {"layer_parameters": _table(problem, names)} if name == "ibatch" else {}
    result = Result(method, solution, objective_ns, None, 0.0, evaluation=evaluation)
    return answer(problem, result, **known)


def _table(problem: ibatch.Problem, names: Sequence[Any]) -> tuple[tuple[str, ...], ...] | None:
    """Return the parameters of each layer, or None if they were not given."""
    if not names or names[0] is None:
        return None
    table = tuple(map(tuple, names[0]))
    if len(table) != problem.layers:
        raise InvalidInputError(
            "layer_parameters", f"expected those of {problem.layers} layers, got {len(table)}"
        )
    return table
