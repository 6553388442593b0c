"""The JSON interface of a family that declares no other: its dataclasses are its documents.

A request has the fields of the problem. An answer has the fields of the plan and, if evaluations
have a `timeline`, its intervals. `register` adds a family to `planner.solve`, ``planner compare``,
``planner draw`` and ``planner schema`` of this process.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from planner.jsonio.answer_base import WITH_PLAN, base_fields, check_base
from planner.jsonio.control import method_names
from planner.jsonio.interfaces import PROBLEMS, Interface, types_of
from planner.jsonio.types import fields_of
from planner.jsonio.what_if import WhatIfAnswer, WhatIfRequest
from planner.model.errors import InvalidInputError
from planner.solving.compare import Case
from planner.solving.deadline import Deadline
from planner.solving.family import Family
from planner.solving.result import Result
from planner.solving.timeline import Interval, Timeline


def register(family: Family[Any, Any, Any]) -> None:
    """Add a family to this process: it is solved, compared, drawn and read like planner's own.

    Parameters
    ----------
    family : Family
        An instance of a subclass of ``Family[Problem, Plan, Evaluation]``, all of them dataclasses
        but for the evaluation.

    Raises
    ------
    InvalidInputError
        If the name is taken, or a field of the plan has the name of a field of every answer.
    """
    if family.name in PROBLEMS:
        raise InvalidInputError("name", f"there is a problem {family.name} already")
    PROBLEMS[family.name] = interface_of(family)


def interface_of(family: Family[Any, Any, Any]) -> Interface:
    """Return the JSON interface of a family, derived from the fields of its problems and plans."""
    problem_type, plan_type, _ = types_of(family)
    title = family.name.capitalize()
    names = Annotated[str, Meta(extra_json_schema={"enum": method_names(family.methods)})]

    def to_problem(asked: Any) -> Any:
        given, known = fields_of(asked), {field.name for field in fields(problem_type)}
        return problem_type(**{name: value for name, value in given.items() if name in known})

    request: Any = msgspec.defstruct(
        f"{title}Request",
        [
            ("problem", Literal[family.name]),
            *(
                (known.name, kind)
                if known.default is MISSING and known.default_factory is MISSING
                else (known.name, kind | UnsetType, UNSET)
                for known, kind in _fields(problem_type)
            ),
            ("method", names, "auto"),
        ],
        bases=(WhatIfRequest,),
        namespace={"__doc__": problem_type.__doc__, "to_problem": to_problem},
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    shown = [(known.name, kind, WITH_PLAN) for known, kind in _fields(plan_type)]
    for name, _, _ in shown:
        if name in WhatIfAnswer.__struct_fields__:
            raise InvalidInputError(name, "is a field of every answer: rename the plan's")
    answer: Any = msgspec.defstruct(
        f"{title}Answer",
        [
            ("problem", Literal[family.name], family.name),
            *shown,
            ("timeline", tuple[Interval, ...] | UnsetType, UNSET),
        ],
        bases=(WhatIfAnswer,),
        namespace={"__doc__": plan_type.__doc__},
        frozen=True,
        kw_only=True,
    )
    names_of_plan = [name for name, _, _ in shown]

    def to_answer(_: Case[Any], result: Result[Any, Any], __: Deadline | None) -> Any:
        told_of = base_fields(answer, result)
        if result.plan is not None:
            told_of |= {name: getattr(result.plan, name) for name in names_of_plan}
            timeline = getattr(result.evaluation, "timeline", None)
            if timeline is not None:
                told_of["timeline"] = timeline.intervals
        return answer(**told_of)

    return Interface(
        family=family,
        request=request,
        answer=answer,
        to_answer=to_answer,
        view=_view(names_of_plan[0]),
    )


def _view(plan: str) -> Callable[[Any], Timeline]:
    def view(answer: Any) -> Timeline:
        check_base(answer, plan)
        bars = () if answer.timeline is UNSET else answer.timeline
        if not bars:
            raise InvalidInputError("timeline", "missing: the evaluation has no `timeline` to draw")
        return Timeline(tuple(dict.fromkeys(bar.resource for bar in bars)), bars)

    return view


def _fields(kind: type[Any]) -> list[tuple[Any, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(known, hints[known.name]) for known in fields(kind) if known.init]
