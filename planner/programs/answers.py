"""Answers of the JSON interface as programs."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from planner.families.collectives.recipes import Recipe
from planner.jsonio import PROBLEMS, decode_answer
from planner.jsonio.bigdl import BigdlAnswer
from planner.jsonio.bml_answer import BmlAnswer
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.fsdp import FsdpAnswer
from planner.jsonio.ibatch import IbatchAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.jsonio.programs import recipe_in
from planner.jsonio.transfers import TransferDocument
from planner.model.errors import InvalidInputError
from planner.programs.building import Layers, gradients, through_a_driver, transfers
from planner.programs.forms import Batch, Piece, Program, SliceProgram, piece_of
from planner.programs.units import plan_of, units_of

Answer = BigdlAnswer | BmlAnswer | CaramelAnswer | FsdpAnswer | IbatchAnswer | IterationAnswer
ValueT = TypeVar("ValueT")


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


def read_answer(answer: Answer) -> Program | Layers:
    """Return the program of a checked answer.

    An answer that leaves the program open is an `InvalidInputError`.
    """
    if isinstance(answer, CaramelAnswer):
        sizes = _known(answer.parameter_bytes) or {}
        groups = (Batch(_pieces(group, sizes), group.bytes, group.depth) for group in answer.groups)
        barrier, traffic = answer.barrier, answer.traffic
        return gradients(groups, answer.groups, answer.method, barrier=barrier, traffic=traffic)
    if isinstance(answer, IterationAnswer):
        pushed = _known(answer.parameter_bytes) or {}
        pulled = _known(answer.pull_bytes) or pushed
        recipes, rows = recipes_of(answer), []
        for transfer in _known(answer.transfers) or ():
            pieces = _pieces(transfer, pulled if transfer.kind == "pull" else pushed)
            recipe = recipes[_known(transfer.algorithm)]
            batch = Batch(pieces, transfer.bytes, _known(transfer.depth) or 1, recipe)
            rows.append((transfer.kind, batch))
        return transfers(rows, _known(answer.transfers) or (), barrier=answer.barrier)
    if isinstance(answer, IbatchAnswer):
        batches = _known(answer.batches) or ()
        names = _known(answer.layer_parameters)
        return Layers(answer.direction, batches, names, _known(answer.layer_bytes))
    if isinstance(answer, BigdlAnswer):
        slices, order = _known(answer.slices), _known(answer.pulls())
        if slices is None or order is None:
            raise through_a_driver(answer.method)
        return SliceProgram(slices, order)
    if isinstance(answer, FsdpAnswer):
        plan, loads = plan_of(answer)
        assert answer.mesh is not UNSET
        mesh = answer.mesh.replicas, answer.mesh.shards
        return units_of(_known(answer.layer_names), plan, loads, mesh, answer.channels)
    raise InvalidInputError(
        "problem",
        f"a plan of {answer.problem} says how to sum up, not what to send when: give a plan of "
        "caramel, and sum up by BML with all_reduce=BcubeAllReduce(world, n, k), or --bcube n,k",
    )


def recipes_of(answer: IterationAnswer) -> dict[str | None, Recipe | None]:
    """Return the recipe of each algorithm of the transfers; the key None is the default.

    The recipe is None for the ring if the answer does not describe it, and with a single worker.
    """
    synchronisation = _known(answer.synchronisation)
    if synchronisation is None:
        return {None: None}
    recipes: dict[str | None, Recipe | None] = {}
    for used in synchronisation.algorithms:
        recipes[used.algorithm] = recipe = recipe_in(used.program)
        if recipe is None and used.algorithm not in ("ring", "none"):
            raise InvalidInputError(
                "synchronisation.program",
                f"missing: how to run {used.algorithm}; plan again, or with --algorithms",
            )
    return {None: recipes[synchronisation.algorithm], **recipes}


def _pieces(transfer: TransferDocument, sizes: Mapping[str, int]) -> tuple[Piece, ...]:
    part = _known(transfer.part) or {}
    return tuple(
        piece_of(name, *part[name], sizes.get(name)) if name in part else Piece(name)
        for name in transfer.parameters
    )


def _known(value: ValueT | UnsetType) -> ValueT | None:
    return None if value is UNSET else value
