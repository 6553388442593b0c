"""The JSON interface of gradient synchronisation on a BCube (BML)."""

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from planner.families.bml.evaluation import Evaluation, listed
from planner.families.bml.family import BML, METHODS
from planner.families.bml.methods import ideal_ns
from planner.families.bml.problem import Problem, Stage
from planner.families.bml.reroute import GRACE_S
from planner.families.bml.trees import Plan
from planner.families.collectives import Collective, compare
from planner.jsonio.answer_base import WITH_PLAN, base_fields, check_base
from planner.jsonio.control import method_names
from planner.jsonio.interfaces import Interface
from planner.jsonio.links import (
    Digits,
    FailedDocument,
    Number,
    failed_document,
    failures_of,
    links_of,
    nics_of,
)
from planner.jsonio.network import Described, NetworkDocument
from planner.jsonio.types import (
    Moment,
    PositiveRate,
    PositiveSize,
    Rate,
    Size,
    Sizes,
    Time,
    as_dataclass,
    as_document,
    says,
)
from planner.jsonio.what_if import WhatIfAnswer, WhatIfRequest
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube, Failures
from planner.model.units import counted, format_ns
from planner.model.validation import MAX_TOTAL, MAX_VALUE, check_same, shown
from planner.solving.compare import Case
from planner.solving.deadline import NEVER, Deadline, TimeUpError
from planner.solving.family import OUT_OF_TIME
from planner.solving.result import Result
from planner.solving.views import Compared

MethodName = Annotated[str, Meta(extra_json_schema={"enum": method_names(METHODS)})]


class ServerDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server whose transfers are wanted."""

    server: Digits


class BmlRequest(WhatIfRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks which server aggregates which piece, over which link, in which step.

    Give gradient_bytes or layer_bytes. With layer_bytes each layer is cut into pieces of its own.
    """

    problem: Literal["bml"]
    n: Annotated[int, Meta(ge=2, le=MAX_VALUE, description="ports of a switch")]
    k: Annotated[int, Meta(ge=1, le=MAX_VALUE, description="levels, and NICs of a server")]
    gradient_bytes: Size | UnsetType = UNSET
    layer_bytes: Sizes | UnsetType = UNSET
    element_bytes: PositiveSize = 1
    link_bytes_per_s: PositiveRate | UnsetType = UNSET
    latency_ns: Annotated[Time, says("start-up cost of a step")] | UnsetType = UNSET
    network: NetworkDocument | UnsetType = UNSET
    reduce_ns_per_byte: Annotated[Rate | UnsetType, says("a server's time to add a byte")] = UNSET
    schedule: Literal["none", "all"] | ServerDocument = "none"
    failed: FailedDocument | UnsetType = UNSET
    method: MethodName = "auto"
    note: Annotated[str, says("where the numbers come from")] | UnsetType = UNSET

    def to_problem(self) -> Problem:
        """Return the typed problem; raise an error if the wanted transfers are too many to list."""
        problem = problem_of(self)
        self.wanted(problem)
        return problem

    def wanted(self, problem: Problem) -> range | None:
        """Return the servers whose transfers the answer lists, or None for no listing.

        Raises InvalidInputError if the server does not exist or has failed, or if too many
        transfers would have to be looked at, those without bytes included.
        """
        if self.schedule == "none":
            return None
        wanted = range(problem.bcube.servers)
        if isinstance(self.schedule, ServerDocument):
            server = problem.bcube.server(self.schedule.server, "schedule.server")
            if server in problem.failed.servers:
                raise InvalidInputError("schedule.server", "expected one that has not failed")
            wanted = range(server, server + 1)
        each = 2 * self.k**2 * (self.n - 1) * sum(map(bool, problem.chunks))
        if not problem.failed and len(wanted) * each > MAX_LOOKED_AT:
            raise _too_many(wanted)
        return wanted

    def resolved_network(self) -> Described | None:
        """Return the network, its tables resolved to links; None without."""
        return nics_of(self.network, self.n**self.k)


def problem_of(request: BmlRequest) -> Problem:
    """Return the typed problem; errors carry a path into the request."""
    bcube = BCube(request.n, request.k)
    failed = Failures() if request.failed is UNSET else failures_of(bcube, request.failed)
    network = links_of(request, request.k)
    return as_dataclass(Problem, request, bcube=bcube, network=network, failed=failed)


MAX_TRANSFERS = 10**6
"""Largest number of transfers that an answer lists."""

MAX_LOOKED_AT = 2 * MAX_TRANSFERS
"""Largest number of transfers to search for transfers that carry bytes."""

Amount = Annotated[int, Meta(ge=0, le=MAX_TOTAL)]


class ComparisonRow(Struct, frozen=True, kw_only=True):
    """An algorithm on a topology of as many servers, without failures, with one whole gradient."""

    times_full_transfer: Annotated[float, Meta(ge=0, description="its time × T_F, start-up apart")]
    time_ns: Annotated[Moment | None, says("null: beyond 63 bits")]
    steps: Amount
    nics: Annotated[int, Meta(ge=1, le=MAX_VALUE, description="of a server")]
    switches: Annotated[int, Meta(ge=1, description="with n ports, as the BML paper counts")]


class StepRow(Struct, frozen=True, kw_only=True):
    """The pieces that the busiest link carries in one step."""

    stage: Stage
    step: Number
    pieces: Number


class TransferRow(Struct, frozen=True, kw_only=True):
    """The data that one server sends to a neighbour in one step."""

    server: Digits
    thread: Number
    stage: Stage
    step: Number
    level: Number
    peer: Digits
    offset: Number
    length: Number
    offset_bytes: Number
    length_bytes: Number
    layer: Number | UnsetType = UNSET
    part: Number | UnsetType = UNSET


class BmlAnswer(WhatIfAnswer, frozen=True, kw_only=True):
    """The schedule of the gradient, its cost and a lower bound; or why there is no schedule."""

    problem: Literal["bml"] = "bml"
    n: Annotated[int, Meta(ge=2, le=MAX_VALUE)]
    k: Annotated[int, Meta(ge=1, le=MAX_VALUE)]
    servers: Annotated[int, Meta(ge=2, le=MAX_VALUE)]
    failed: FailedDocument | UnsetType = UNSET
    switches: Annotated[int, Meta(ge=1, le=MAX_VALUE)]
    full_transfer_ns: Annotated[Moment, says("T_F: the gradient over one link")]
    ideal_ns: Annotated[
        Moment | None,
        says("Algorithm 1, nothing failed, pieces of one size; null: beyond 63 bits"),
    ]
    pieces: Number | UnsetType = UNSET
    pieces_left_out: Number | UnsetType = UNSET
    rounds: (
        Annotated[int, Meta(ge=1, description="parts of each piece, each a step behind the last")]
        | UnsetType
    ) = UNSET
    times_full_transfer: (
        Annotated[float, Meta(ge=0, description="what the busiest link carries, × the gradient")]
        | UnsetType
    ) = UNSET
    steps: tuple[StepRow, ...] | UnsetType = UNSET
    comparison: dict[str, ComparisonRow] = WITH_PLAN
    transfers: tuple[TransferRow, ...] | UnsetType = UNSET

    def sentence(self) -> str:
        """Return one line about the plan."""
        assert self.objective_ns is not None
        failed = ""
        if self.failed is not UNSET:
            names = {"servers": "servers", "nics": "NICs", "switches": "switches"}
            counts = {text: len(getattr(self.failed, name)) for name, text in names.items()}
            words = [f"{text}: {count}" for text, count in counts.items() if count]
            failed = f" (failed {', '.join(words)})"
        return (
            f"A synchronisation of {counted(self.servers, 'server')} on BCube({self.n}, {self.k})"
            f"{failed} takes {format_ns(self.objective_ns)}"
        )


def answer(
    problem: Problem,
    result: Result[Plan, Evaluation],
    wanted: range | None = None,
    deadline: Deadline = NEVER,
) -> BmlAnswer:
    """Return the JSON form of a result, with the transfers of the wanted servers.

    Raises TimeUpError if the deadline passes while transfers are listed.
    """
    base, bcube = _base(problem, result), problem.bcube
    plan, evaluation = result.plan, result.evaluation
    if plan is None or evaluation is None:
        return base
    tensors = problem.layer_bytes if problem.size_bytes else ()
    compared = compare(bcube, tensors=tensors or None)
    return structs.replace(
        base,
        pieces=plan.threads * plan.pieces,
        pieces_left_out=len(plan.left_out),
        rounds=plan.rounds,
        times_full_transfer=float(evaluation.load),
        steps=tuple(as_document(StepRow, step) for step in evaluation.steps),
        comparison={known.name: _compared(problem, known) for known in compared},
        transfers=UNSET if wanted is None else tuple(_transfers(problem, plan, wanted, deadline)),
    )


def algorithm_answer(problem: Problem, result: Result[Collective, None]) -> BmlAnswer:
    """Return the JSON form of one algorithm's time: its row of the comparison, without a plan."""
    algorithm = result.plan
    assert algorithm is not None
    return structs.replace(
        _base(problem, result),
        times_full_transfer=float(algorithm.volume),
        comparison={result.method: _compared(problem, algorithm)},
    )


def _base(problem: Problem, result: Result[Any, Any]) -> BmlAnswer:
    """Return an answer with the fields that do not depend on the plan."""
    bcube, ideal = problem.bcube, ideal_ns(problem)
    return as_document(
        BmlAnswer,
        bcube,
        **base_fields(BmlAnswer, result),
        failed=failed_document(bcube, problem.failed) if problem.failed else UNSET,
        full_transfer_ns=problem.network.full_transfer_ns(problem.size_bytes),
        ideal_ns=ideal if ideal <= MAX_TOTAL else None,
    )


def _compared(problem: Problem, algorithm: Collective) -> ComparisonRow:
    try:
        time: int | None = algorithm.time_ns(problem.network, problem.size_bytes)
    except InvalidInputError:
        time = None
    return as_document(
        ComparisonRow, algorithm, times_full_transfer=float(algorithm.volume), time_ns=time
    )


def _too_many(wanted: range) -> InvalidInputError:
    hint = "; ask for one server" if len(wanted) > 1 else ""
    return InvalidInputError(
        "schedule", f"expected at most {MAX_TRANSFERS} transfers, got more{hint}"
    )


def _transfers(
    problem: Problem, plan: Plan, wanted: range, deadline: Deadline
) -> Iterator[TransferRow]:
    if not problem.size_bytes:
        return  # there may be 2^62 servers
    digits = cache(problem.bcube.digits)  # rows share the tuples
    listing = (entry for server in wanted for entry in listed(problem, plan, server, deadline))
    for number, entry in enumerate(listing):
        if number == MAX_TRANSFERS:
            raise _too_many(wanted)
        moved = entry.transfer
        yield TransferRow(
            server=digits(moved.server),
            thread=moved.thread,
            stage=moved.stage,
            step=moved.step,
            level=moved.level,
            peer=digits(moved.peer),
            offset=moved.offset,
            length=moved.length,
            offset_bytes=entry.offset_bytes,
            length_bytes=entry.length_bytes,
            layer=entry.layer if problem.layer_bytes else UNSET,
            part=entry.part if plan.rounds > 1 else UNSET,
        )


def to_answer(
    case: Case[Problem], result: Result[Any, Any], deadline: Deadline | None
) -> BmlAnswer:
    """Return the answer to a case, with the transfers that a request asks for unless time is up."""
    if isinstance(result.plan, Collective):
        return algorithm_answer(case.problem, result)
    if case.request is None or deadline is None:
        return answer(case.problem, result)
    listing = deadline.later(GRACE_S).share(2)  # encoding takes as long as listing
    try:
        return answer(case.problem, result, case.request.wanted(case.problem), listing)
    except TimeUpError:
        runtime = result.runtime_s
        late: Result[Any, Any] = Result(result.method, None, None, None, runtime, True, OUT_OF_TIME)
        return answer(case.problem, late)


MAX_SWITCHES = 2**70
"""Upper limit on the number of switches in any valid answer; JSON Schema cannot state it."""


def times(answer: BmlAnswer) -> tuple[Compared, ...]:
    """Check an answer; return the time of the plan and of the algorithms it is compared with.

    Raises InvalidInputError if there is no plan, or the parts contradict each other.
    """
    check_base(answer, "steps")
    assert answer.objective_ns is not None
    bcube = BCube(answer.n, answer.k)
    for path, number in (("servers", bcube.servers), ("switches", bcube.switches)):
        check_same(getattr(answer, path), number, path)
    if "bml_bcube" not in answer.comparison:
        raise InvalidInputError("comparison.bml_bcube", "missing")
    # With failures, other algorithms would be slower, too: compare only with BML without failures.
    names = answer.comparison if answer.failed is UNSET else ("bml_bcube",)
    after = "" if answer.failed is UNSET else ", nothing failed"
    rows = [Compared("this plan", "bcube", answer.objective_ns, bcube.switches)]
    for name in names:
        row = answer.comparison[name]
        if row.switches > MAX_SWITCHES:
            raise InvalidInputError(
                f"comparison.{name}.switches",
                f"expected an integer <= {MAX_SWITCHES}, got {shown(row.switches)}",
            )
        if row.time_ns is not None:
            topology = name.rpartition("_")[2]
            rows.append(Compared(f"{name}{after}", topology, row.time_ns, row.switches))
    return tuple(rows)


INTERFACE = Interface(
    family=BML,
    request=BmlRequest,
    answer=BmlAnswer,
    to_answer=to_answer,
    view=times,
)
