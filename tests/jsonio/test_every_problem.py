"""What holds of the requests and answers of every problem: schemas, reading again, bad values."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

import planner
from planner.jsonio import (
    PROBLEMS,
    decode_answer,
    decode_profile,
    decode_request,
    reply,
    schema,
)
from planner.jsonio.clusters import decode_cluster
from planner.model.errors import InvalidInputError
from planner.solving.methods import REPLAN
from planner.solving.targets import FSDP2, TARGETS
from tests import schemas
from tests.fuzzing.valid import MAKERS
from tests.jsonio.patches import Steps, places, put, text_of
from tests.jsonio.test_clusters import BCUBE, FULL, RAILS, TREE
from tests.jsonio.test_plan_files import METHODS, answers
from tests.jsonio.test_profiles import MINIMAL, WITH_GRAPH
from tests.jsonio.test_service import ask

BAD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    0.5,
    2.0,
    "x",
    "1",
    [],
    {},
    [-1],
    {"x": 1},
    2**63,
    10**30,
    ...,
)
"""Values that schemas refuse at some places, and the lack of one."""

DATA = Path(__file__).parents[2] / "data"
EXTRA = {
    "ibatch": (FSDP2.name,),
    "caramel": ("buckets", *list(TARGETS)[2:]),
    "iteration": ("buckets", *list(TARGETS)[2:]),
}
"""Methods that only requests with a target know."""


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_schema_lists_every_method(problem: str) -> None:
    found = schema(problem)
    for one in found.values():
        schemas.check_schema(one)
    request = found["request"]["$defs"][found["request"]["$ref"].rpartition("/")[2]]
    methods = PROBLEMS[problem].family.methods
    listed = [*methods, *(one for one in EXTRA.get(problem, ()) if one not in methods), REPLAN]
    assert request["properties"]["method"]["enum"] == listed


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_requests_and_answers_of_every_method_fit_their_schemas(problem: str) -> None:
    base, variants = METHODS[problem]
    alike = [{"method": method} for method in PROBLEMS[problem].family.methods]
    for fields in (*variants, *alike):
        request = {**base, **fields, "time_limit_s": 60}
        schemas.validate(request, problem, "request")
        answer = ask(request)
        if "error" in answer:
            schemas.validate(answer, problem, "error")
            continue
        schemas.validate(answer, problem, "answer")
        if answer["objective_ns"] is not None:
            decode_answer(json.dumps(answer).encode())
        made = decode_request(json.dumps(request)).to_problem()
        typed = PROBLEMS[problem].family.solve(
            getattr(made, "problem", made), method=request.get("method", "auto"), time_limit=60
        )
        assert (answer["method"], answer["status"]) == (typed.method, typed.status)
        assert answer["objective_ns"] == typed.objective_ns
        assert answer["lower_bound_ns"] == typed.lower_bound_ns


NO_PLAN: dict[str, dict[str, Any]] = {
    "ibatch": {"max_batch_bytes": 1},
    "yan": {"memory_bytes": 1, "pareto": True},
    "bml": {"failed": {"nics": [[[0, 0], 0], [[0, 0], 1]]}, "schedule": "all"},
    "drizzle": {"max_group_ns": 1},
    "fsdp": {"memory_bytes": 1},
    "overlap": {"memory_limit_bytes": 1},
    "iteration": {"cluster": {**METHODS["iteration"][0]["cluster"], "memory_bytes": 1}},
}


@pytest.mark.parametrize("problem", NO_PLAN)
def test_what_is_infeasible_has_a_reason_and_no_plan(problem: str) -> None:
    answer = ask({**METHODS[problem][0], **NO_PLAN[problem]})
    schemas.validate(answer, problem, "answer")
    assert (answer["status"], answer["objective_ns"]) == ("infeasible", None)
    assert answer["reason"]
    assert answer["binding"]
    with pytest.raises(InvalidInputError, match=r"the answer \(infeasible\) holds no plan"):
        decode_answer(json.dumps(answer).encode())


def changes(document: Any, bad: tuple[Any, ...]) -> Iterator[tuple[Steps, Any]]:
    """Yield a document with one thing changed, and its place; of lists the first row only."""
    for steps in places(document, most=1):
        for value in bad:
            if value is ... and isinstance(steps[-1], int):
                continue
            new = deepcopy(document)
            put(new, steps, value)
            yield steps, new


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_the_schema_of_requests_refuses_is_refused_with_its_place(problem: str) -> None:
    asked = deepcopy(METHODS[problem][0])
    asked |= {"time_limit_s": 9.5, "method": "auto"}
    refused = 0
    for steps, request in changes(asked, BAD):
        if steps == ("problem",) or schemas.fits(request, problem, "request"):
            continue
        found = json.loads(reply(json.dumps(request).encode()).data)
        assert "error" in found, request
        schemas.validate(found, problem, "error")
        assert found["error"]["path"].startswith(text_of(steps)), (found, request)
        refused += 1
    assert refused > 50


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_the_schema_of_answers_refuses_is_refused_with_its_place(problem: str) -> None:
    for steps, answer in changes(json.loads(answers(problem)[0]), (None, -1, "x", {}, 2**63)):
        if steps[0] in ("problem", "plan") or schemas.fits(answer, problem, "answer"):
            continue
        with pytest.raises(InvalidInputError) as caught:
            decode_answer(json.dumps(answer).encode())
        assert caught.value.path.startswith(text_of(steps)), (caught.value, steps)


@pytest.mark.parametrize("problem", [method for method in METHODS if method != "bml"])
def test_every_answer_can_be_read_again(problem: str) -> None:
    read = 0
    for number in range(4 if problem == "iteration" else 25):  # which plans for longer
        answer = planner.solve(
            {**MAKERS[problem](Random(f"read again {problem} {number}")), "time_limit_s": 0.2}
        )
        if answer.get("objective_ns") is not None:
            decode_answer(json.dumps(answer).encode())
            read += 1
    assert read


@pytest.mark.parametrize(
    "path", sorted((DATA / "bigdl").glob("*.json")), ids=lambda path: path.stem
)
def test_shipped_requests_are_answered(path: Path) -> None:
    request = decode_request(path.read_bytes())
    assert planner.bigdl.solve(request.to_problem()).plan is not None


@pytest.mark.parametrize(
    ("name", "document", "read"),
    [
        *(("cluster", one, decode_cluster) for one in (FULL, BCUBE, TREE, RAILS)),
        *(("profile", one, decode_profile) for one in (MINIMAL, WITH_GRAPH)),
    ],
)
def test_what_the_schema_of_a_file_refuses_is_refused_with_its_place(
    name: str, document: dict[str, Any], read: Callable[[str], Any]
) -> None:
    for steps, changed in changes(document, BAD):
        if not schemas.fits(changed, name):
            with pytest.raises(InvalidInputError) as caught:
                read(json.dumps(changed))
            assert caught.value.path.startswith(text_of(steps)), (caught.value, changed)
