"""The JSON face of whole iterations: what is asked."""

import time
from typing import Annotated, Any, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from planner import iteration
from planner.deadline import Deadline
from planner.errors import InvalidInputError
from planner.iteration import Problem
from planner.jsonio.clusters import ClusterDocument, cluster_of
from planner.jsonio.iteration_answer import IterationAnswer, answer
from planner.jsonio.profiles import ProfileDocument, profile_of
from planner.jsonio.types import PositiveRate, PositiveSize, Rate, Seconds
from planner.methods import deadline_in, known_method
from planner.profiles import Profile
from planner.validation import MAX_VALUE

__all__ = ["REQUEST_RULES", "IterationRequest", "run"]

T = TypeVar("T")

MethodName = Annotated[str, Meta(extra_json_schema={"enum": list(iteration.METHODS)})]
Algorithm = Annotated[str, Meta(extra_json_schema={"enum": list(iteration.ALGORITHMS)})]


class IterationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one training iteration of a model should communicate on a cluster."""

    problem: Literal["iteration"]
    profile: ProfileDocument
    cluster: ClusterDocument
    method: MethodName = "auto"
    time_limit_s: Seconds | UnsetType = UNSET
    computation_scale: (
        Annotated[PositiveRate, Meta(description="what all times of computation are multiplied by")]
        | UnsetType
    ) = UNSET
    optimiser_ratio: (
        Annotated[Rate, Meta(description="bytes of optimiser state for each of parameters")]
        | UnsetType
    ) = UNSET
    max_transfer_bytes: PositiveSize | UnsetType = UNSET
    algorithms: Annotated[tuple[Algorithm, ...], Meta(min_length=1)] | UnsetType = UNSET
    modes: (
        Annotated[tuple[Literal["replicated", "sharded"], ...], Meta(min_length=1)] | UnsetType
    ) = UNSET
    op_order: tuple[str, ...] | UnsetType = UNSET
    element_bytes: PositiveSize = 1
    seed: Annotated[int, Meta(ge=0, le=MAX_VALUE)] = 0

    def to_problem(self) -> Problem:
        """Return the typed problem."""
        return Problem.from_profile(
            self.to_profile(),
            cluster_of(self.cluster, "cluster"),
            computation=1 if self.computation_scale is UNSET else self.computation_scale,
            optimiser=0 if self.optimiser_ratio is UNSET else self.optimiser_ratio,
            max_transfer_bytes=_given(self.max_transfer_bytes),
            algorithms=iteration.ALGORITHMS if self.algorithms is UNSET else self.algorithms,
            modes=iteration.MODES if self.modes is UNSET else self.modes,
            op_order=_given(self.op_order),
            element_bytes=self.element_bytes,
            seed=self.seed,
        )

    def to_profile(self) -> Profile:
        """Return the typed profile.

        Raises
        ------
        InvalidInputError
            With a path into ``profile``.
        """
        try:
            profile = profile_of(self.profile)
            profile.dataflow()  # refuses a model without gradients
        except InvalidInputError as error:
            raise InvalidInputError(f"profile.{error.path}".rstrip("."), error.message) from None
        return profile


REQUEST_RULES: dict[str, Any] = {}
"""What the schema says of a request beside the fields' own types: nothing."""


def _given(value: T | UnsetType) -> T | None:
    return None if value is UNSET else value


def run(request: IterationRequest) -> IterationAnswer:
    """Answer one request."""
    problem = request.to_problem()
    limit = _given(request.time_limit_s)
    known_method(request.method, iteration.METHODS)
    if request.method != "auto":
        result = iteration.solve(problem, method=request.method, time_limit=limit)
        return answer(problem, result, model=request.profile.name)
    deadline: Deadline = deadline_in(limit)
    begin = time.perf_counter()
    found = iteration.alternatives(problem, deadline)
    result = iteration.best_of(problem, found, time.perf_counter() - begin)
    return answer(problem, result, found, model=request.profile.name)
