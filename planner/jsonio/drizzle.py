"""The JSON interface of group scheduling (Drizzle)."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.families import drizzle
from planner.families.drizzle.evaluation import curve, largest_group
from planner.families.drizzle.problem import check_triggers, checked_stages
from planner.jsonio.answer_base import WITH_PLAN, AnswerBase, base_fields, check_base
from planner.jsonio.control import Controlled, method_names
from planner.jsonio.interfaces import Interface, of_result
from planner.jsonio.types import (
    Count,
    Moment,
    PositiveTime,
    Rate,
    Time,
    as_dataclass,
    as_document,
    says,
    unset_to_none,
)
from planner.model.errors import InvalidInputError
from planner.model.units import counted, format_ns
from planner.model.validation import MAX_TOTAL, MAX_VALUE
from planner.solving.result import Result
from planner.solving.views import GroupPoint, Groups, share_text

MethodName = Annotated[str, Meta(extra_json_schema={"enum": method_names(drizzle.METHODS)})]
Share = Annotated[Rate, Meta(extra_json_schema={"exclusiveMinimum": 0, "exclusiveMaximum": 1})]
ShareAnswer = Annotated[float, Meta(ge=0, le=1)]  # numbers close to 0 or 1 round to them
GroupTime = Annotated[Rate, says("scheduling of a group, in ns; default: 0")]
TaskTime = Annotated[Rate, says("scheduling of a task, once a group, in ns")]
ConstantTime = Annotated[Rate, says("scheduling of a task, in every iteration, in ns; default: 0")]
TriggerCount = Annotated[int, Meta(ge=0, le=MAX_VALUE)]
GroupSize = Annotated[int, Meta(ge=1, le=MAX_TOTAL, description="iterations")]


class StageDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stage of an iteration, and the stages whose results it reads."""

    name: str
    tasks: Count
    after: tuple[str, ...] = ()


class DrizzleRequest(Controlled, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks how many iterations to schedule at once.

    Give tasks, or stages, or both if they agree.
    """

    problem: Literal["drizzle"]
    compute_ns: Time
    tasks: Count | UnsetType = UNSET
    group_ns: GroupTime | UnsetType = UNSET
    task_ns: TaskTime
    constant_task_ns: ConstantTime | UnsetType = UNSET
    max_overhead: Share
    max_group_ns: PositiveTime | UnsetType = UNSET
    stages: Annotated[tuple[StageDocument, ...], Meta(min_length=1)] | UnsetType = UNSET
    method: MethodName = "auto"

    def to_problem(self) -> drizzle.Problem:
        """Return the typed problem."""
        return as_dataclass(drizzle.Problem, self)


class TriggersAnswer(Struct, frozen=True, kw_only=True):
    """The tasks that each task of a stage waits for, in its own iteration and the previous one."""

    name: str
    tasks: Count
    after: tuple[str, ...]
    triggers: TriggerCount
    after_previous: tuple[str, ...]
    triggers_previous: TriggerCount


class CurvePoint(Struct, frozen=True, kw_only=True):
    """The overhead and the time of another group size."""

    group_size: GroupSize
    overhead: ShareAnswer
    group_time_ns: Moment


class DrizzleAnswer(AnswerBase, frozen=True, kw_only=True):
    """The group size, its cost and a lower bound; or why there is no plan."""

    problem: Literal["drizzle"] = "drizzle"
    max_overhead: ShareAnswer
    max_group_ns: Moment | UnsetType = UNSET
    group_size: GroupSize = WITH_PLAN
    overhead: ShareAnswer = WITH_PLAN
    overhead_of_compute: float | UnsetType | None = UNSET
    iteration_ns: Moment = WITH_PLAN
    speedup: float = WITH_PLAN
    largest_group_size: GroupSize | UnsetType = UNSET
    stages: tuple[TriggersAnswer, ...] | UnsetType = UNSET
    curve: tuple[CurvePoint, ...] | UnsetType = UNSET

    def sentence(self) -> str:
        """Return one line about the plan."""
        assert self.objective_ns is not None
        return (
            f"A group of {counted(self.group_size, 'iteration')} takes "
            f"{format_ns(self.objective_ns)}, {share_text(self.overhead)} of it to schedule"
        )


def answer(
    problem: drizzle.Problem, result: Result[drizzle.Plan, drizzle.Evaluation]
) -> DrizzleAnswer:
    """Return the JSON form of a result."""
    plan, known = result.plan, base_fields(DrizzleAnswer, result)
    if plan is None:
        return as_document(DrizzleAnswer, problem, **known, stages=UNSET)
    return as_document(
        DrizzleAnswer,
        result.evaluation,
        problem,
        **known,
        group_size=plan.group_size,
        largest_group_size=largest_group(problem) or UNSET,
        stages=tuple(as_document(TriggersAnswer, row) for row in plan.stages) or UNSET,
        curve=tuple(
            as_document(CurvePoint, group, group_size=size, group_time_ns=group.group_ns)
            for size, group in curve(problem, plan.group_size)
        ),
    )


def groups(answer: DrizzleAnswer) -> Groups:
    """Check an answer and return the data of its picture.

    Raises InvalidInputError, with a path, if there is no plan, or if group size, limits, bound or
    curve contradict each other.
    """
    size, time, share = answer.group_size, answer.objective_ns, answer.overhead
    check_base(answer, "group_size")
    assert time is not None
    if answer.status == "time_limit":
        raise InvalidInputError("status", "time_limit, but there is a plan")
    limit = answer.max_overhead
    chosen = GroupPoint(size, share, time)
    points = _points(() if answer.curve is UNSET else answer.curve)
    if chosen not in points:
        raise InvalidInputError("curve", f"without the plan's group_size ({size}) and its price")
    if share > limit:
        raise InvalidInputError("max_overhead", f"less than the plan's overhead ({share})")
    longest = unset_to_none(answer.max_group_ns)
    if longest is not None and time > longest:
        raise InvalidInputError("max_group_ns", f"less than objective_ns ({time})")
    _check_stages(() if answer.stages is UNSET else answer.stages)
    return Groups(points, chosen, limit, longest)


def _check_stages(rows: tuple[TriggersAnswer, ...]) -> None:
    """Check that the triggers follow from the stages."""
    stages = checked_stages(tuple(as_dataclass(drizzle.Stage, row) for row in rows))
    check_triggers(stages, tuple(as_dataclass(drizzle.Triggers, row) for row in rows))


def _points(rows: tuple[CurvePoint, ...]) -> tuple[GroupPoint, ...]:
    points: list[GroupPoint] = []
    for place, row in enumerate(rows):
        path = f"curve[{place}]"
        if points and row.group_size <= points[-1].group_size:
            raise InvalidInputError(f"{path}.group_size", "expected more than in the row before")
        if points and row.overhead > points[-1].overhead:
            raise InvalidInputError(f"{path}.overhead", "more than in the row before")
        if points and row.group_time_ns < points[-1].group_time_ns:
            raise InvalidInputError(f"{path}.group_time_ns", "less than in the row before")
        points.append(GroupPoint(row.group_size, row.overhead, row.group_time_ns))
    return tuple(points)


INTERFACE = Interface(
    family=drizzle.DRIZZLE,
    request=DrizzleRequest,
    answer=DrizzleAnswer,
    to_answer=of_result(answer),
    view=groups,
)
