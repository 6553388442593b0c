"""Scripts of answers around failures: followed, or refused."""

from typing import Any

import pytest

from planner.families import bml
from planner.families.collectives.exchange import bml_program
from planner.families.collectives.script import talking
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
    for elements in (0, 5, 333):
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


def test_a_plan_that_does_not_go_around_what_has_failed_is_refused() -> None:
    plan = answer(2, 2, failed=FAILED["failed"])
    other = {"servers": [], "nics": [[[0, 1], 1]], "links": [], "switches": []}
    with pytest.raises(InvalidPlanError):
        bcube_program(BCube(2, 2), {**plan, "failed": other})


def test_a_changed_plan_is_refused() -> None:
    plan = answer(2, 2, method="trees", failed=FAILED["failed"])
    tree, *others = plan["plan"]["plan"]["trees"]
    kind = plan["plan"]["kind"]
    for trees in ([[tree[0], tree[1][1:]], *others], others):
        inner = {**plan["plan"]["plan"], "trees": trees}
        with pytest.raises(InvalidInputError):
            bcube_program(BCube(2, 2), {**plan, "plan": {"kind": kind, "plan": inner}})
    with pytest.raises(InvalidInputError) as refused:
        bcube_program(BCube(2, 2), {**plan, "plan": {"kind": "drizzle.Plan", "plan": {}}})
    assert refused.value.path.startswith("plan.")


@pytest.mark.parametrize(
    ("plan", "path"),
    [
        (lambda: answer(3, 2), "n"),
        (lambda: answer(2, 1), "k"),
        (lambda: solve({**_request(), **FAILED, "schedule": "all"}), "plan"),
        (lambda: solve({**_request(), **FAILED}), "plan"),
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
