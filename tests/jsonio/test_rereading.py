"""Answers held against their requests: what only these can tell, and what is no such pair."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli import main
from planner.families import caramel
from planner.jsonio import decode_answer, decode_request, decode_result, encode_result
from planner.model.errors import InvalidInputError
from tests.jsonio.test_caramel_answers import broken
from tests.jsonio.test_damaged_clusters import BCUBE
from tests.jsonio.test_iteration import CLUSTER, LAYERS, PROFILE, REQUEST
from tests.jsonio.test_plan_files import BIGDL, BML, CARAMEL, DRIZZLE, IBATCH
from tests.jsonio.test_yan import SMALL

NIC = {"nics": [[[0, 0], 0]]}
ASKED: dict[str, dict[str, Any]] = {
    "ibatch": IBATCH,
    "caramel": {**CARAMEL, "method": "layer_by_layer"},
    "iteration": {**REQUEST, "algorithms": ["ring"]},
    "sharded": {**REQUEST, "modes": ["sharded"]},
    "slices": BIGDL,
    "driver": {**BIGDL, "method": "reduce"},
    "cube": BML,
    "around": {**BML, "failed": NIC},
    "drizzle": DRIZZLE,
    "yan": SMALL,
}


@cache
def asked(name: str) -> tuple[dict[str, Any], str]:
    request = {**ASKED[name], "with_plan": True}
    return request, json.dumps(planner.solve(request))


DIRECT = {"generator": "direct", "shape": [4]}


@pytest.mark.parametrize(
    ("name", "steps", "value"),
    [
        ("caramel", ("groups", 0, "ready_ns"), 0),
        ("caramel", ("groups", 0, "due_ns"), 0),
        ("caramel", ("groups", 0, "startup_end_ns"), 61),
        ("caramel", ("communication_ns",), 1),
        ("caramel", ("stall_ns",), 1),
        ("caramel", ("utilisation",), 0.25),
        ("caramel", ("control_edges",), [["b1", "b9"]]),
        ("caramel", ("traffic",), 1.5),
        ("iteration", ("computation_ns",), 1),
        ("iteration", ("startup_ns",), 1),
        ("iteration", ("synchronisation", "all_reduce", "startup_ns"), 1),
        ("iteration", ("synchronisation", "algorithm"), "ps"),
        ("iteration", ("synchronisation", "program"), DIRECT),
        ("iteration", ("network_bound_ns",), 0),
        ("slices", ("times_full_transfer",), 1),
        ("slices", ("full_transfer_ns",), 99),
        ("slices", ("phases", 1, "sent_bytes"), 1),
        ("slices", ("synchronisation", "algorithm"), "ps"),
        ("driver", ("comparison", "reduce", "driver_bytes"), 1),
        ("cube", ("steps", 0, "bytes"), 1),
        ("cube", ("comparison", "bml_bcube", "nics"), 1),
        ("cube", ("synchronisation", "algorithm"), "trees"),
        ("around", ("failed", "nics"), 2),
        ("drizzle", ("curve", 1, "group_time_ns"), 10),
        ("drizzle", ("iteration_ns",), 1),
        ("drizzle", ("speedup",), 1.0),
        ("drizzle", ("stages", 0, "triggers"), 9),
        ("yan", ("explored", "states"), 0),
        ("yan", ("configuration", "machines_used"), 1),
        ("yan", ("breakdown", "computation_ns"), 1),
        ("yan", ("breakdown", "communication_ns"), 1),
        ("yan", ("breakdown", "weight_reading_ns"), 1),
        ("yan", ("top", 0, "epoch_ns"), 1),
        ("yan", ("top", 1, "epoch_ns"), 1),
        ("yan", ("top", 1, "machines_used"), 1),
        ("yan", ("lower_bound_any_mapping_ns",), 1),
    ],
)
def test_what_only_the_request_can_tell(name: str, steps: tuple[Any, ...], value: Any) -> None:
    request, text = asked(name)
    answer = broken(json.loads(text), steps, value)
    assert answer != json.loads(text)
    with pytest.raises(InvalidInputError) as caught:
        decode_answer(json.dumps(answer), request)
    where = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in steps)
    assert caught.value.path.startswith(where[1:])


def test_the_answer_to_another_request_is_refused() -> None:
    request, text = asked("ibatch")
    for change, path in (
        ({"startup_ns": 101}, "objective_ns"),
        ({"layer_parameters": [["a"], ["b"], ["c"], []]}, "layer_parameters[0]"),
        ({"compute_ns": [1], "transfer_ns": [1], "layer_bytes": [1]}, "plan"),
        ({"objective": "eq5"}, "request.objective"),
    ):
        without_names = {key: value for key, value in request.items() if key != "layer_parameters"}
        other = (without_names if path == "plan" else request) | change
        with pytest.raises(InvalidInputError) as caught:
            decode_answer(text, other)
        assert caught.value.path.startswith(path), caught.value
    with pytest.raises(InvalidInputError, match=r"^problem: expected 'caramel', got 'ibatch'"):
        decode_answer(text, asked("caramel")[0])


def test_a_plan_of_another_family_is_refused() -> None:
    request, text = asked("ibatch")
    plan = json.loads(asked("caramel")[1])["plan"]
    with pytest.raises(InvalidInputError, match=r"^plan.kind: expected a plan of ibatch"):
        decode_answer(json.dumps({**json.loads(text), "plan": plan}), request)


def test_an_answer_without_its_plan_cannot_be_held_against_anything() -> None:
    request, text = asked("ibatch")
    answer = {key: value for key, value in json.loads(text).items() if key != "plan"}
    decode_answer(json.dumps(answer))
    with pytest.raises(InvalidInputError, match=r'^plan: missing: .*"with_plan": true'):
        decode_answer(json.dumps(answer), request)


def test_the_number_of_machines_that_was_chosen_is_that_of_the_answer() -> None:
    layers = [{**layer, "forward_ns": 10**6, "backward_ns": 10**6} for layer in LAYERS]
    request = {
        "problem": "iteration",
        "profile": {**PROFILE, "layers": layers},
        "cluster": {**CLUSTER, "machines": 4},
        "epoch_samples": 3,
        "with_plan": True,
    }
    answer = planner.solve(request)
    assert answer["machines"] < 4
    decode_answer(json.dumps(answer), request)


@pytest.mark.slow
def test_failures_of_a_cluster_follow_from_its_request() -> None:
    request = {**REQUEST, "cluster": {**BCUBE, "failed": NIC}, "with_plan": True}
    answer = planner.solve(request)
    decode_answer(json.dumps(answer), request)
    answer["ranks"][0] = answer["ranks"][1]
    with pytest.raises(InvalidInputError, match=r"^ranks\[0\]"):
        decode_answer(json.dumps(answer), request)


def test_commands_hold_a_plan_against_its_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request, text = asked("caramel")
    plan, asking = tmp_path / "plan.json", tmp_path / "request.json"
    plan.write_text(json.dumps({**json.loads(text), "stall_ns": 1}))
    asking.write_text(json.dumps(request))
    for command in (["draw", str(plan)], ["export", "ddp", str(plan), "--anyway"]):
        assert main(command) == 0
        capsys.readouterr()
        assert main([*command, "--request", str(asking)]) == 2
        assert f"{plan}: stall_ns: expected " in capsys.readouterr().err
    plan.write_text(text)
    assert main(["draw", str(plan), "--request", str(asking)]) == 0
    both = ["export", "ddp", str(plan), str(plan), "--request", str(asking)]
    assert main(both) == 2
    assert "--request: expected with one plan" in capsys.readouterr().err


def test_a_result_is_held_against_its_problem() -> None:
    problem = decode_request(json.dumps(CARAMEL)).to_problem()
    result = caramel.solve(problem)
    text = encode_result(result)
    assert decode_result(text, problem) == result
    document = json.loads(text)
    dearer = document["objective_ns"] + 1
    for change, path in (
        ({"objective_ns": dearer}, "objective_ns"),
        ({"evaluation": {**document["evaluation"], "computation_ns": 1}}, "evaluation.computation"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            decode_result(json.dumps({**document, **change}), problem)
        assert caught.value.path.startswith(path)
    with pytest.raises(InvalidInputError, match="expected one of caramel"):
        decode_result(text, decode_request(json.dumps(IBATCH)).to_problem())
