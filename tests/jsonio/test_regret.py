"""Regret and advice in answers: there if asked for, as the schema says, the same every time."""

from typing import Any

import msgspec
import pytest

import planner
from planner.jsonio import decode_answer
from tests.cli.printed import check_answer
from tests.jsonio.test_caramel import CHAIN
from tests.jsonio.test_iteration import CLUSTER, REQUEST
from tests.jsonio.test_service import EXAMPLE, ask

FAMILIES: dict[str, dict[str, Any]] = {"caramel": CHAIN, "iteration": REQUEST}
TIMES = ("plan_ns", "best_ns", "lower_bound_ns", "ddp_ns", "layers_ns")


def solved(family: str, **more: Any) -> dict[str, Any]:
    answer = planner.solve({**FAMILIES[family], **more})
    assert "error" not in answer, answer
    check_answer(answer)
    return answer


def without(answer: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in names}


@pytest.mark.parametrize("family", FAMILIES)
def test_regret_is_there_if_it_is_asked_for(family: str) -> None:
    plain, asked = solved(family), solved(family, regret=True)
    assert "regret" not in plain
    assert without(asked, "runtime_s", "regret") == without(plain, "runtime_s")
    assert len(asked["regret"]) == 7
    for row in asked["regret"]:
        for name in TIMES:
            assert isinstance(row[name], int)
        assert 1 <= row["at_least"] <= row["at_most"]
        assert row["at_least"] == row["plan_ns"] / row["best_ns"]
        assert row["at_most"] == row["plan_ns"] / row["lower_bound_ns"]
    again = solved(family, regret=True)
    assert without(again, "runtime_s") == without(asked, "runtime_s")


@pytest.mark.parametrize("family", FAMILIES)
def test_computation_that_takes_longer_is_computation_that_takes_longer(family: str) -> None:
    """A row is what a request with these numbers says of the same methods."""
    row = solved(family, regret=True)["regret"][1]
    assert (row["computation"], row["startup"], row["bandwidth"], row["late"]) == (1.2, 1, 1, 0)
    if family == "caramel":
        longer = [{**op, "ns": op["ns"] * 12 // 10} for op in CHAIN["ops"]]
        other: dict[str, Any] = {"ops": longer}
    else:
        other = {"computation_scale": 1.2}
    for name, method in (("ddp_ns", "ddp"), ("layers_ns", "layer_by_layer")):
        assert row[name] == solved(family, **other, method=method)["objective_ns"]
    best = solved(family, **other)
    assert row["best_ns"] <= best["objective_ns"]
    assert row["lower_bound_ns"] <= best["lower_bound_ns"]


@pytest.mark.parametrize("family", FAMILIES)
def test_only_what_plans_by_itself_gives_advice(family: str) -> None:
    answer = solved(family)
    advice = answer["advice"]
    assert advice["gain"] == advice["ddp_ns"] / answer["objective_ns"]
    assert advice["keep_ddp"] == (advice["gain"] < 1.03)
    assert advice["ddp_ns"] <= solved(family, method="ddp")["objective_ns"]
    assert advice["gain"] <= advice["at_most"]
    assert "advice" not in solved(family, method="layer_by_layer")
    assert len(solved(family, method="layer_by_layer", regret=True)["regret"]) == 7


@pytest.mark.parametrize("family", FAMILIES)
def test_they_are_read_again(family: str) -> None:
    data = msgspec.json.encode(ask({**FAMILIES[family], "regret": True}))
    answer, _ = decode_answer(data)
    assert len(answer.regret) == 7
    assert answer.advice.gain > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_a_yes_or_a_no(family: str) -> None:
    error = planner.solve({**FAMILIES[family], "regret": 1})["error"]
    assert error["path"] == "regret"


def test_without_a_plan_there_is_neither() -> None:
    cluster = {**CLUSTER, "memory_bytes": 5}
    answer = planner.solve({**REQUEST, "cluster": cluster, "regret": True})
    assert answer["status"] == "infeasible"
    assert not {"advice", "regret"} & answer.keys()


def test_batches_have_a_regret_too() -> None:
    plain, asked = (planner.solve({**EXAMPLE, **more}) for more in ({}, {"regret": True}))
    check_answer(asked)
    assert without(asked, "runtime_s", "regret") == without(plain, "runtime_s")
    assert len(asked["regret"]) == 7
    assert all(row["at_least"] == row["at_most"] for row in asked["regret"])  # it is exact
    assert "regret" not in plain


LIKELY: list[dict[str, Any]] = [
    {},
    {"computation": 1.2, "weight": 2},
    {"startup": 3, "bandwidth": 0.5},
    {"late": 0.1},
]


@pytest.mark.parametrize("percentile", [None, 90, 12.5])
def test_one_plan_for_several_scenarios(percentile: float | None) -> None:
    more = {} if percentile is None else {"percentile": percentile}
    usual, answer = solved("caramel"), solved("caramel", scenarios=LIKELY, **more)
    prospect = answer["prospect"]
    assert prospect["usual_ns"] == usual["objective_ns"]
    assert prospect["lower_bound_ns"] <= prospect["value_ns"] <= prospect["usual_value_ns"]
    assert prospect["gain"] == prospect["usual_value_ns"] / prospect["value_ns"] >= 1
    assert prospect["loss"] == answer["objective_ns"] / usual["objective_ns"] <= 1.005
    assert answer["lower_bound_ns"] == usual["lower_bound_ns"]
    decode_answer(msgspec.json.encode(answer))
    assert "prospect" not in usual


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"scenarios": []}, "scenarios"),
        ({"scenarios": [{"bandwidth": 0}]}, "scenarios[0].bandwidth"),
        ({"scenarios": [{}, {"weight": 0}]}, "scenarios[1].weight"),
        ({"scenarios": [{"late": -1}]}, "scenarios[0].late"),
        ({"scenarios": [{"speed": 1}]}, "scenarios[0].speed"),
        ({"scenarios": [{}], "percentile": 101}, "percentile"),
        ({"scenarios": [{}], "percentile": 0}, "percentile"),
        ({"percentile": 50}, "percentile"),
        ({"scenarios": [{}], "method": "ddp"}, "scenarios"),
    ],
)
def test_scenarios_that_cannot_be_are_refused(more: dict[str, Any], path: str) -> None:
    assert planner.solve({**CHAIN, **more})["error"]["path"] == path
