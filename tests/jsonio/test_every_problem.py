"""What holds of the requests and answers of every problem: schemas, reading again, bad values."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

import planner
from planner.jsonio import PROBLEMS, decode_answer, decode_profile, decode_request, schema
from planner.jsonio.answer_base import base_fields
from planner.jsonio.clusters import decode_cluster
from planner.model.errors import InvalidInputError
from planner.programs import Answer
from planner.solving.methods import REPLAN
from planner.solving.result import Result
from planner.solving.targets import FSDP2, TARGETS
from tests import schemas
from tests.cli.line import Line, write
from tests.cli.printed import check_answer
from tests.jsonio.requests import BASES, ask_both, patched, places, put, text_of
from tests.jsonio.test_plan_files import METHODS, TOOLS, answer_of

BAD: Any = (None, True, -1, 0, 0.5, 2.0, "x", "1", [], {}, [-1], {"x": 1}, 2**63, 10**30, ...)
"""Values that schemas refuse at some places, and the lack of one."""

EXTRA = {
    "ibatch": (FSDP2.name,),
    "caramel": ("buckets", *list(TARGETS)[2:]),
    "iteration": ("buckets", *list(TARGETS)[2:]),
}
"""Methods that only requests with a target know."""


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_schema_lists_every_method(problem: str) -> None:
    found = schema(problem)
    request = found["request"]["$defs"][found["request"]["$ref"].rpartition("/")[2]]
    methods = PROBLEMS[problem].family.methods
    listed = [*methods, *(one for one in EXTRA.get(problem, ()) if one not in methods), REPLAN]
    assert request["properties"]["method"]["enum"] == listed
    if problem in EXTRA:
        targets = (FSDP2.name,) if problem == "ibatch" else tuple(TARGETS)
        assert request["properties"]["target"]["enum"] == [*targets, "planner"]


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_requests_and_answers_of_every_method_fit_their_schemas(problem: str) -> None:
    base, variants = METHODS[problem]
    for fields in (*variants, *({"method": one} for one in PROBLEMS[problem].family.methods)):
        request = {**base, **fields, "time_limit_s": 60}
        schemas.validate(request, problem, "request")
        answer = ask_both(request)
        check_answer(answer)
        if "error" in answer:
            continue
        if answer["objective_ns"] is not None:
            decode_answer(json.dumps(answer).encode())
        made = decode_request(json.dumps(request)).to_problem()
        typed = PROBLEMS[problem].family.solve(
            getattr(made, "problem", made), method=request.get("method", "auto"), time_limit=60
        )
        assert (answer["method"], answer["status"]) == (typed.method, typed.status)
        assert answer["objective_ns"] == typed.objective_ns
        assert answer["lower_bound_ns"] == typed.lower_bound_ns


def solved(text: str) -> Any:
    return planner.solve_or_raise(json.loads(text))


Case = tuple[str, str | None, Any, Any, Callable[[str], Any]]
DOCUMENTS: list[Case] = [
    *(
        (name, "request", {**asked, "time_limit_s": 9.5, "method": "auto"}, BAD, solved)
        for name, (asked, _) in METHODS.items()
    ),
    *((name, "answer", name, (None, -1, "x", {}, 2**63), decode_answer) for name in METHODS),
    *(
        ("cluster", None, BASES[one], BAD, decode_cluster)
        for one in ("full", "bcube", "fattree", "rails")
    ),
    *(("profile", None, BASES[one], BAD, decode_profile) for one in ("layers", "graph")),
]
"""What has a schema: its name and part, a document, values to put into it, and what reads it."""


@pytest.mark.parametrize(
    ("name", "part", "document", "bad", "read"),
    DOCUMENTS,
    ids=[f"{name} {part} {number}" for number, (name, part, *_) in enumerate(DOCUMENTS)],
)
def test_what_a_schema_refuses_is_refused_with_its_place(
    name: str, part: str | None, document: Any, bad: Any, read: Callable[[str], Any]
) -> None:
    """Of lists the first row is changed."""
    refused, text = 0, answer_of(name) if part == "answer" else json.dumps(document)
    for steps in places(json.loads(text), most=1):
        for value in bad:
            if steps[0] in ("problem", "plan") or (value is ... and isinstance(steps[-1], int)):
                continue
            changed = json.loads(text)
            put(changed, steps, value)
            if not schemas.fits(changed, name, part):
                with pytest.raises(InvalidInputError) as caught:
                    read(json.dumps(changed))
                assert caught.value.path.startswith(text_of(steps)), (caught.value, steps, value)
                refused += 1
    assert refused > (50 if part == "request" else 15)


# ---
# The head of answers: what contradicts itself is refused by every reader of every family.

OUT_OF_STEP: dict[str, dict[str, Any]] = {
    "optimal, with a lower bound": {"status": "optimal", "lower_bound_ns": 1},
    "optimal, without a bound": {"status": "optimal", "lower_bound_ns": None},
    "a bound above the objective": {"lower_bound_ns": "objective + 1"},
    "feasible at its bound": {"status": "feasible", "lower_bound_ns": "objective"},
    "infeasible, with a plan": {"status": "infeasible"},
    "no objective": {"objective_ns": None},
    "an objective that is missing": {"objective_ns": ...},
    "a plan with a reason": {"reason": "too slow"},
    "a plan that something binds": {"binding": ["nic"]},
    "a plan that layers do not fit": {"layers": [0]},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "change"),
    [
        (problem, change)
        for problem, interface in PROBLEMS.items()
        for change, fields in OUT_OF_STEP.items()
        if fields.keys() <= {*interface.answer.__struct_fields__}
    ],
)
def test_every_reader_refuses_a_head_that_contradicts_itself(
    problem: str, change: str, line: Line
) -> None:
    answer = json.loads(answer_of(problem))
    objective = answer["objective_ns"]
    numbers = {"objective": objective, "objective + 1": objective + 1}
    new = {name: numbers.get(str(value), value) for name, value in OUT_OF_STEP[change].items()}
    write("plan.json", patched(answer, new))
    with pytest.raises(InvalidInputError) as caught:
        decode_answer(Path("plan.json").read_bytes())
    assert caught.value.path in OUT_OF_STEP[change] or caught.value.path == "status"
    assert ... not in OUT_OF_STEP[change].values() or caught.value.message.startswith("missing")
    exported = issubclass(PROBLEMS[problem].answer, Answer)
    for command in ("draw", *(f"export {tool}" for tool in TOOLS if exported)):
        assert line.error(command, "plan.json") == f"planner: error: plan.json: {caught.value}\n"


SLOW: dict[str, dict[str, Any]] = {
    "ibatch": {"startup_ns": 10**14},
    "caramel": {"network": {"startup_ns": 10**14, "ns_per_byte": 1}},
    "bml": {"link_bytes_per_s": 10, "gradient_bytes": 10**6},
    "bigdl": {"link_bytes_per_s": 10, "elements": 10**6},
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_plan_of_days_is_likely_a_slip_of_units(problem: str) -> None:
    hour = 3600 * 10**9
    within, beyond = (
        base_fields(PROBLEMS[problem].answer, Result("m", object(), ns, None, 0.0))["warnings"]
        for ns in ((366 * 24 if problem == "yan" else 1) * hour, 49 * 366 * hour)
    )
    assert within is UNSET
    assert "takes 747.2 days, so a number is likely in another unit" in beyond[0]
    if problem in SLOW:
        (text,) = planner.solve({**METHODS[problem][0], **SLOW[problem]})["warnings"]
        assert "bytes per second" in text
