"""Scripts of answers around failures: followed, or refused."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from planner.families import bml
from planner.families.collectives.exchange import bml_program
from planner.families.collectives.script import scripts, talking
from planner.jsonio import solve
from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.programs.collectives import bcube_program
from tests.collectives.test_script import NIC, SERVER, SWITCH, answer, play_all


@pytest.mark.slow
@pytest.mark.parametrize("method", ["detour", "trees"])
@pytest.mark.parametrize("failed", [NIC, SWITCH, SERVER])
@pytest.mark.parametrize(("n", "k"), [(2, 2), (3, 2)])
def test_answers_around_failures(n: int, k: int, failed: dict[str, Any], method: str) -> None:
    plan = answer(n, k, failed=failed, method=method)
    routes = bcube_program(BCube(n, k), plan)
    assert routes[0].ranks == n**k - len(failed.get("servers", []))
    play_all(routes, 1000)
    play_all(routes, 2000, 2)


@pytest.mark.slow
def test_rounds_are_followed() -> None:
    plan = answer(3, 2, failed=NIC, latency_ns=1000)
    assert plan["rounds"] > 1
    play_all(bcube_program(BCube(3, 2), msgspec.json.encode(plan)), 1000)


def test_layers_are_followed() -> None:
    play_all(bcube_program(BCube(2, 2), answer(2, 2, layer_bytes=[400, 0, 36, 4])), 110)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["detour", "trees"])
def test_typed_plans_fit_every_size(method: str) -> None:
    bcube = BCube(3, 2)
    problem = bml.Problem(
        bcube,
        Network(10**6, startup_ns=1000),  # type: ignore[arg-type]
        40_000,
        failed=bml.Failures(nics=frozenset({(0, 1)}), servers=frozenset({5})),
    )
    plan = bml.solve(problem, method=method).plan
    assert plan is not None
    assert plan.rounds > 1
    routes = bcube_program(bcube, plan)
    assert routes[:2] == (routes[0], plan.rounds)
    assert routes[0].ranks == 8
    for elements in (0, 1, 5, 333):
        play_all(routes, elements)


@pytest.mark.parametrize("method", ["detour", "trees"])
def test_groups_are_without_what_failed(method: str) -> None:
    program, _, _ = bcube_program(BCube(3, 2), answer(3, 2, failed=NIC, method=method))
    groups = list(talking(list(program.messages())))
    assert (0, [1, 2]) in groups  # server 0 has lost its NIC at level 0
    assert len(groups) == 6
    all_groups = list(talking(list(bml_program(BCube(3, 2)).messages())))
    assert (0, [0, 1, 2]) in all_groups
    assert (1, [2, 5, 8]) in all_groups
    assert len(all_groups) == 6


FAILED = {"failed": {"nics": [[[0, 0], 0]]}}


def replaced(plan: Mapping[str, Any], number: int, **fields: Any) -> dict[str, Any]:
    rows = [dict(row) for row in plan["transfers"]]
    rows[number].update(fields)
    return {**plan, "transfers": rows}


@pytest.mark.parametrize("method", ["bml", "trees"])
def test_a_plan_without_one_of_its_transfers_is_refused(method: str) -> None:
    plan = answer(2, 2, method=method)
    for number in range(len(plan["transfers"])):
        rows = [row for place, row in enumerate(plan["transfers"]) if place != number]
        with pytest.raises(InvalidPlanError):
            bcube_program(BCube(2, 2), {**plan, "transfers": rows})


def test_a_plan_with_one_transfer_too_many_is_refused() -> None:
    plan = answer(2, 2)
    for row in plan["transfers"]:
        with pytest.raises(InvalidPlanError):
            bcube_program(BCube(2, 2), {**plan, "transfers": [*plan["transfers"], row]})


def test_a_plan_whose_steps_are_exchanged_is_refused() -> None:
    plan = answer(2, 2)
    rows = [{**row, "step": 1 - row["step"]} for row in plan["transfers"]]
    with pytest.raises(InvalidPlanError):
        bcube_program(BCube(2, 2), {**plan, "transfers": rows})


def test_a_range_of_two_threads_is_refused() -> None:
    plan = answer(2, 2)
    for number, row in enumerate(plan["transfers"]):
        with pytest.raises(InvalidPlanError):
            bcube_program(BCube(2, 2), replaced(plan, number, thread=1 - row["thread"]))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"peer": [1, 1]}, "transfers[0]"),
        ({"level": 2}, "transfers[0]"),
        ({"server": [0, 2]}, "transfers[0].server[1]"),
        ({"peer": [0]}, "transfers[0].peer"),
    ],
)
def test_a_transfer_without_a_link_is_refused(change: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        bcube_program(BCube(2, 2), replaced(answer(2, 2), 0, **change))
    assert refused.value.path == path


@pytest.mark.parametrize(
    ("plan", "path"),
    [
        (lambda: answer(3, 2), "n"),
        (lambda: answer(2, 1), "k"),
        (lambda: solve({**_request(), **FAILED, "schedule": {"server": [0, 1]}}), "transfers"),
        (lambda: solve({**_request(), **FAILED}), "transfers"),
        (lambda: answer(2, 2, failed={"nics": [[[0, 0], 0], [[0, 0], 1]]}), "steps"),
        (lambda: bml.Schedule(BCube(2, 1)), "plan"),
        (lambda: {"problem": "caramel"}, None),
    ],
)
def test_other_plans_are_refused(plan: Any, path: str | None) -> None:
    with pytest.raises(InvalidInputError) as refused:
        bcube_program(BCube(2, 2), plan())
    assert path is None or refused.value.path == path


def test_a_plan_that_names_its_program_needs_no_list() -> None:
    for schedule in ("none", {"server": [0, 0]}):
        named = bcube_program(BCube(2, 2), solve({**_request(), "schedule": schedule}))
        assert (named.program.name, named.depth, named.size_bytes) == ("bml(2, 2)", 1, None)
        assert list(named.program.messages()) == list(bml_program(BCube(2, 2)).messages())


def _request() -> dict[str, Any]:
    return {
        "problem": "bml",
        "n": 2,
        "k": 2,
        "gradient_bytes": 400,
        "link_bytes_per_s": 10**6,
        "latency_ns": 1000,
    }


def test_tensors_of_another_size_are_refused() -> None:
    program, _, _ = bcube_program(BCube(2, 2), answer(2, 2, gradient_bytes=404))
    with pytest.raises(InvalidInputError, match="a plan for 404 bytes, got a tensor of 400"):
        scripts(program, 0, 100, 4)
    program, _, _ = bcube_program(BCube(2, 2), answer(2, 2, gradient_bytes=408))
    with pytest.raises(InvalidInputError, match="cut inside an element of 8 bytes"):
        scripts(program, 0, 51, 8)


def test_what_is_wrong_is_said_of_the_answer() -> None:
    plan = answer(2, 2)
    rows = plan["transfers"][1:]
    with pytest.raises(InvalidPlanError) as refused:
        bcube_program(BCube(2, 2), {**plan, "transfers": rows})
    assert str(refused.value) == (
        "transfers: after the last step, server [0, 0], bytes 1000…1499: has the contribution of "
        "server [0, 0] 0 times, expected once"
    )
