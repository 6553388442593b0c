"""Plans as executors follow them: which bytes of which parameters travel together, in which order.

The adapter between answers of the JSON interface and executors. It copies what a plan says and
decides nothing; what a plan leaves open is an error, with the path of what is missing. It needs no
torch, so that a plan can be read, compared and exported without it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from planner.errors import InvalidInputError
from planner.jsonio import PROBLEMS, decode_answer
from planner.jsonio.bigdl import BigdlAnswer
from planner.jsonio.bml_answer import BmlAnswer
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.decoding import decode
from planner.jsonio.ibatch import IbatchAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.jsonio.iteration_timeline import gradient_answer
from planner.validation import shown

__all__ = [
    "Batch",
    "GradientProgram",
    "Piece",
    "Program",
    "ShardProgram",
    "SliceProgram",
    "digest",
    "program_of",
    "read_plan",
]

Answer = BigdlAnswer | BmlAnswer | CaramelAnswer | IbatchAnswer | IterationAnswer


_OTHERS = {
    "problem": "a request: planner solve answers it",
    "layers": "a profile: planner compare … -o plan.json plans with it",
    "ops": "a profile: planner compare … -o plan.json plans with it",
    "network": "a measured network: planner compare PROFILE --network … -o plan.json plans with it",
}
"""Documents one may take for a plan, by a field that only they have."""


class Piece(NamedTuple):
    """Bytes start … stop-1 of a parameter's gradient; a `stop` of None is its end."""

    parameter: str
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transfer carries.

    Attributes
    ----------
    pieces : tuple of Piece
        In the order in which they lie in the message.
    size_bytes : int or None
        Their size, where the plan says it.
    depth : int
        Chunks in flight at once.
    """

    pieces: tuple[Piece, ...]
    size_bytes: int | None = None
    depth: int = 1


@dataclass(frozen=True, slots=True)
class GradientProgram:
    """Gradients are all-reduced batch by batch, in this order.

    Attributes
    ----------
    batches : tuple of Batch
        In transfer order.
    barrier : bool
        Whether the next forward pass waits for all of them; else for each where it is read.
    """

    batches: tuple[Batch, ...]
    barrier: bool = False


@dataclass(frozen=True, slots=True)
class ShardProgram:
    """Each rank keeps and updates a shard of every parameter.

    Parameters are pulled batch by batch ahead of the forward pass, gradients pushed batch by batch
    behind the backward pass.

    Attributes
    ----------
    pulls, pushes : tuple of Batch
        In transfer order; all pieces are whole parameters.
    """

    pulls: tuple[Batch, ...]
    pushes: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class SliceProgram:
    """Each rank sums up one slice of the gradient, updates it and hands it out.

    Attributes
    ----------
    slices : tuple of (int, int)
        First element of each rank's slice, and the one after its last.
    pull_order : tuple of tuple of int
        For each rank, the ranks in the order in which it pulls from them.
    """

    slices: tuple[tuple[int, int], ...]
    pull_order: tuple[tuple[int, ...], ...]


Program = GradientProgram | ShardProgram | SliceProgram


def read_plan(plan: bytes | Mapping[str, Any] | Answer) -> Answer:
    """Return a plan in its typed form.

    A replicated plan of a whole iteration is one of gradient transfers, and returned as that.

    Parameters
    ----------
    plan : bytes or mapping or answer
        An answer of ``planner solve`` or `planner.solve`, as JSON text or plain values.

    Raises
    ------
    InvalidInputError
        If it is no answer, one without a plan, or one that contradicts itself.
    """
    if isinstance(plan, Answer):
        PROBLEMS[plan.problem].content(plan)
        return _gradients_if_replicated(plan)
    given: object = plan
    if not isinstance(given, bytes | Mapping):
        found = f"expected bytes, a mapping or an answer, got {type(given).__name__}"
        if isinstance(given, str | PathLike):
            found += ": read the file, Path(…).read_bytes()"
        raise InvalidInputError("plan", found)
    data = plan if isinstance(plan, bytes) else msgspec.json.encode(dict(plan))
    try:
        answer, _ = decode_answer(data)
    except InvalidInputError as error:
        if error.path == "status" and "status" not in decode(data):
            _say_what_it_is(decode(data))
        raise
    if not isinstance(answer, Answer):
        raise InvalidInputError("problem", f"nothing to execute in a plan of {answer.problem}")
    return _gradients_if_replicated(answer)


def _gradients_if_replicated(answer: Answer) -> Answer:
    return (gradient_answer(answer) or answer) if isinstance(answer, IterationAnswer) else answer


def program_of(*plans: bytes | Mapping[str, Any] | Answer) -> Program:
    """Return what executors follow.

    Parameters
    ----------
    *plans
        One plan of `iteration`, `caramel` or `bigdl`; or one or two of `ibatch`, for pull and for
        push. A direction without a plan travels as one batch, as it does without iBatch.

    Raises
    ------
    InvalidInputError
        If a plan leaves open what an executor has to know, or plans do not belong together.
    """
    answers = [read_plan(plan) for plan in plans]
    if not answers:
        raise InvalidInputError("", "expected a plan")
    if all(isinstance(answer, IbatchAnswer) for answer in answers):
        return _shards([answer for answer in answers if isinstance(answer, IbatchAnswer)])
    first = answers[0]
    if len(answers) > 1:
        names = " and ".join(answer.problem for answer in answers)
        raise InvalidInputError("problem", f"expected one plan, or two of ibatch, got {names}")
    if isinstance(first, CaramelAnswer):
        return _gradients(first)
    if isinstance(first, IterationAnswer):
        return _halves(first)
    if isinstance(first, BigdlAnswer):
        return _slices(first)
    raise InvalidInputError(
        "problem",
        f"a plan of {first.problem} says how to sum up, not what to send when: give a plan of "
        "caramel, and sum up by BML with all_reduce=BcubeAllReduce(world, n, k), or --bcube n,k",
    )


def _say_what_it_is(value: Any) -> None:
    """Raise an error that says which other document was given, if it is one of the known ones."""
    for field, what in _OTHERS.items():
        if field in value:
            raise InvalidInputError(
                "status", f"missing: expected an answer of planner solve, got {what}"
            )


def digest(*parts: object) -> str:
    """Return a hash of frozen values, the same in every process."""
    return sha256(repr(parts).encode()).hexdigest()


def _gradients(answer: CaramelAnswer) -> GradientProgram:
    if answer.traffic != 1:
        raise InvalidInputError(
            "method", f"{answer.method} sends through parameter servers: expected all-reduces"
        )
    batches = []
    for group in answer.groups:
        parts = {} if group.part is UNSET else group.part
        pieces = tuple(Piece(name, *parts.get(name, (0, None))) for name in group.parameters)
        batches.append(Batch(pieces, group.bytes, group.depth))
    return GradientProgram(tuple(batches), answer.barrier)


def _shards(answers: Sequence[IbatchAnswer]) -> ShardProgram:
    if len(answers) > 2 or len({answer.direction for answer in answers}) < len(answers):
        raise InvalidInputError("direction", "expected at most one plan to pull and one to push")
    tables = {answer.layer_parameters for answer in answers}
    if len(tables) > 1:
        raise InvalidInputError("layer_parameters", "the two plans are about different layers")
    (table,) = tables
    if table is UNSET:
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
    found: dict[str, tuple[Batch, ...]] = {"pull": (every,), "push": (every,)}
    for answer in answers:
        batches = () if answer.batches is UNSET else answer.batches
        pieces = [
            tuple(Piece(name) for layer in table[start:stop] for name in layer)
            for start, stop in batches
        ]
        found[answer.direction] = tuple(Batch(one) for one in pieces if one)
    return ShardProgram(found["pull"], found["push"])


def _halves(answer: IterationAnswer) -> ShardProgram:
    found: dict[str, list[Batch]] = {"pull": [], "push": []}
    for number, one in enumerate(() if answer.transfers is UNSET else answer.transfers):
        path = f"transfers[{number}]"
        if one.kind == "all_reduce":
            raise InvalidInputError(f"{path}.kind", "all-reduces and pushes in one plan")
        if one.part is not UNSET:
            raise InvalidInputError(
                f"{path}.part",
                "an executor of shards sends whole parameters: plan with --mode replicated, or "
                "by method ibatch",
            )
        found[one.kind].append(Batch(tuple(map(Piece, one.parameters)), one.bytes))
    return ShardProgram(tuple(found["pull"]), tuple(found["push"]))


def _slices(answer: BigdlAnswer) -> SliceProgram:
    order = answer.pulls()
    if answer.slices is UNSET or order is UNSET:
        raise InvalidInputError(
            "method", f"{answer.method} goes through a driver: expected slices and pulls"
        )
    return SliceProgram(answer.slices, order)
