"""The JSON requests of gradient synchronisation on a BCube (BML), and their typed problems."""

from typing import Annotated, Any, Literal, Unpack

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from planner.families.bml.family import BML, METHODS
from planner.families.bml.problem import Problem
from planner.families.bml.reroute import GRACE_S
from planner.families.collectives import Collective
from planner.jsonio.bml_answer import BmlAnswer, algorithm_answer, answer, check_listable
from planner.jsonio.bml_transfers import times
from planner.jsonio.control import method_names
from planner.jsonio.heads import warned
from planner.jsonio.interfaces import Interface
from planner.jsonio.links import (
    LINK_RULES,
    Digits,
    FailedDocument,
    failures_of,
    link_notes,
    links_of,
)
from planner.jsonio.network import Network
from planner.jsonio.types import (
    PositiveRate,
    PositiveSize,
    Rate,
    Size,
    Sizes,
    Time,
    made_of,
    or_none,
    says,
)
from planner.jsonio.what_if import WhatIfRequest, planned
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube, Failures
from planner.model.validation import MAX_VALUE
from planner.solving.compare import Case
from planner.solving.deadline import Control, Deadline, TimeUpError
from planner.solving.family import OUT_OF_TIME
from planner.solving.result import Result

MethodName = Annotated[str, Meta(extra_json_schema={"enum": method_names(METHODS)})]


class ServerDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose transfers are wanted."""

    server: Digits


class BmlRequest(WhatIfRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which server aggregates which piece, over which link, in which step.

    Give gradient_bytes, or layer_bytes: then each layer is cut into pieces of its own.
    """

    problem: Literal["bml"]
    n: Annotated[int, Meta(ge=2, le=MAX_VALUE, description="ports of a switch")]
    k: Annotated[int, Meta(ge=1, le=MAX_VALUE, description="levels, and NICs of a server")]
    gradient_bytes: Size | UnsetType = UNSET
    layer_bytes: Sizes | UnsetType = UNSET
    element_bytes: PositiveSize = 1
    link_bytes_per_s: PositiveRate | UnsetType = UNSET
    latency_ns: Annotated[Time, says("start-up cost of a step")] | UnsetType = UNSET
    network: Network | UnsetType = UNSET
    reduce_ns_per_byte: Annotated[Rate | UnsetType, says("a server's time to add a byte")] = UNSET
    schedule: Literal["none", "all"] | ServerDocument = "none"
    failed: FailedDocument | UnsetType = UNSET
    method: MethodName = "auto"
    note: Annotated[str, says("where the numbers come from")] | UnsetType = UNSET

    def to_problem(self) -> Problem:
        """Return the typed problem, if the transfers that are wanted can be listed."""
        problem = problem_of(self)
        wanted_of(self, problem)
        return problem


REQUEST_RULES: dict[str, Any] = {
    "anyOf": [{"required": ["gradient_bytes"]}, {"required": ["layer_bytes"]}],
    **LINK_RULES,
}
"""JSON Schema rules of a request that field types cannot express."""


def problem_of(request: BmlRequest) -> Problem:
    """Return the typed problem; errors carry a path into the request."""
    bcube = BCube(request.n, request.k)
    failed = Failures() if request.failed is UNSET else failures_of(bcube, request.failed)
    network = links_of(request, request.k, bcube.servers)
    return made_of(Problem, request, bcube=bcube, network=network, failed=failed)


def wanted_of(request: BmlRequest, problem: Problem) -> range | None:
    """Return the servers whose transfers the answer lists, or None for no listing.

    Raises InvalidInputError if the server does not exist or has failed, or if there would be too
    many transfers.
    """
    schedule, wanted = request.schedule, None
    if isinstance(schedule, ServerDocument):
        server = problem.bcube.server(schedule.server, "schedule.server")
        if server in problem.failed.servers:
            raise InvalidInputError("schedule.server", "expected one that has not failed")
        wanted = range(server, server + 1)
    elif schedule == "all":
        wanted = range(problem.bcube.servers)
    if wanted is not None:
        check_listable(problem, wanted)  # fail before building the plan
    return wanted


def run(request: BmlRequest, **control: Unpack[Control[Any]]) -> BmlAnswer:
    """Answer one request; `control` is that of the family's `solve`."""
    limit = or_none(request.time_limit_s)
    last = Deadline(limit, control.get("cancel")).later(GRACE_S)
    problem = problem_of(request)
    wanted = wanted_of(request, problem)
    foreseen = planned(BML, request, problem, control)
    result, fields = foreseen.result, foreseen.fields
    listing = last.share(2)  # encoding takes as long as listing
    try:
        made = answer(problem, result, wanted, listing)
        made = structs.replace(made, **fields)
        return warned(made, link_notes(request, problem.bcube.servers))
    except TimeUpError:
        runtime = result.runtime_s
        return answer(problem, Result(result.method, None, None, None, runtime, True, OUT_OF_TIME))


def told(case: Case[Problem], result: Result[Any, Any], _: object) -> BmlAnswer:
    """Return the answer to a case, without transfers."""
    if isinstance(result.plan, Collective):
        return algorithm_answer(case.problem, result)
    return answer(case.problem, result)


INTERFACE = Interface(
    family=BML,
    request=BmlRequest,
    answer=BmlAnswer,
    told=told,
    view=times,
    run=run,
    request_rules=REQUEST_RULES,
)
