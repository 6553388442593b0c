"""The head of answers: what contradicts itself is refused by every reader of every family."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

import planner
from planner.cli import main
from planner.jsonio import PROBLEMS, decode_answer
from planner.jsonio.heads import Head, head
from planner.model.errors import InvalidInputError
from planner.programs import Answer
from planner.solving.result import Result
from tests.jsonio.test_plan_files import METHODS

ROUGH: dict[str, dict[str, Any]] = {
    "ibatch": {"method": "layer_by_layer"},
    "caramel": {"method": "layer_by_layer"},
    "yan": {"method": "greedy", "machines": 7},
    "bml": {"gradient_bytes": 7, "latency_ns": 3},
    "bigdl": {"method": "tree_aggregate"},
    "drizzle": {},
    "fsdp": {"method": "fsdp2"},
    "iteration": {"method": "layer_by_layer"},
    "overlap": {"method": "own_order"},
}
"""What makes a plan of each family that is not, or need not be, the best."""

OUT_OF_STEP: dict[str, dict[str, Any]] = {
    "optimal, with a lower bound": {"status": "optimal", "lower_bound_ns": 1},
    "optimal, without a bound": {"status": "optimal", "lower_bound_ns": None},
    "a bound above the objective": {"lower_bound_ns": "objective + 1"},
    "feasible at its bound": {"status": "feasible", "lower_bound_ns": "objective"},
    "infeasible, with a plan": {"status": "infeasible"},
    "no objective": {"objective_ns": None},
}


@cache
def text_of(problem: str) -> str:
    answer = planner.solve({**METHODS[problem][0], **ROUGH[problem]})
    decode_answer(json.dumps(answer).encode())
    return json.dumps(answer)


def changed(problem: str, change: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(text_of(problem))
    objective = answer["objective_ns"]
    numbers = {"objective": objective, "objective + 1": objective + 1}
    return answer | {name: numbers.get(value, value) for name, value in OUT_OF_STEP[change].items()}


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("change", OUT_OF_STEP)
def test_every_reader_refuses_a_head_that_contradicts_itself(
    problem: str, change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(changed(problem, change)))
    with pytest.raises(InvalidInputError) as caught:
        decode_answer(path.read_bytes())
    assert caught.value.path in OUT_OF_STEP[change] or caught.value.path == "status"
    commands = [["draw", str(path)]]
    if issubclass(PROBLEMS[problem].answer, Answer):
        commands.append(["export", "horovod", str(path)])
    for command in commands:
        assert main(command) == 2
        assert capsys.readouterr() == ("", f"planner: error: {path}: {caught.value}\n")


SLOW: dict[str, dict[str, Any]] = {
    "ibatch": {"startup_ns": 10**14},
    "caramel": {"network": {"startup_ns": 10**14, "ns_per_byte": 1}},
    "bml": {"link_bytes_per_s": 10, "gradient_bytes": 10**6},
    "bigdl": {"link_bytes_per_s": 10, "elements": 10**6},
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_plan_of_days_is_likely_a_slip_of_units(problem: str) -> None:
    kind = PROBLEMS[problem].answer
    hour = 3600 * 10**9
    longest = (366 * 24 if problem == "yan" else 1) * hour
    for objective, warned in ((longest, False), (49 * 366 * hour, True)):
        result: Result[Any, Any] = Result("m", object(), objective, None, 0.0)
        said = head(kind, result)["warnings"]
        assert (said is not UNSET) == warned
        assert not warned or "takes 747.2 days, so a number is likely in another unit" in said[0]
    assert "warnings" not in json.loads(text_of(problem))
    if problem in SLOW:
        (text,) = planner.solve({**METHODS[problem][0], **SLOW[problem]})["warnings"]
        assert "bytes per second" in text


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_plan_needs_no_reason(problem: str) -> None:
    kind = PROBLEMS[problem].answer
    answer = json.loads(text_of(problem))
    for field, value in (("reason", "too slow"), ("binding", ["nic"]), ("layers", [0])):
        text = json.dumps({**answer, field: value}).encode()
        if field in kind.__struct_fields__:
            with pytest.raises(InvalidInputError, match=f"^{field}: "):
                decode_answer(text)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_plan_without_its_objective_is_refused(problem: str) -> None:
    answer = json.loads(text_of(problem))
    del answer["objective_ns"]
    with pytest.raises(InvalidInputError, match=r"^objective_ns: missing"):
        decode_answer(json.dumps(answer).encode())


def test_every_answer_has_the_head() -> None:
    """And no family types its fields again, but for a narrower type."""
    for interface in PROBLEMS.values():
        kind = interface.answer
        assert issubclass(kind, Head)
        assert kind.__struct_fields__[: len(Head.__struct_fields__)] == Head.__struct_fields__
        again = set(kind.__annotations__) & set(Head.__struct_fields__)
        assert again <= {"problem", "status", "objective_ns", "lower_bound_ns"}
