"""Plans of thousands of transfers: nothing is priced more often than it has to be."""

import sys
from typing import Any

import pytest

import planner
from planner.families.iteration.transfers import MAX_TRANSFERS
from tests.large import tiny_iteration

Request = dict[str, Any]

BESIDE = {"startup_ns": 20_000, "ns_per_byte": 0.1, "slowdown": 1.3, "delay_ns": 5000}


def request(**fields: Any) -> Request:
    """Return a request whose parameters, 4,800 bytes in all, are sent by 16 bytes."""
    asked = {**tiny_iteration(4), "max_transfer_bytes": 16, **fields}
    asked["cluster"]["interference"] = BESIDE
    return asked


@pytest.mark.parametrize(
    ("mode", "more"), [("replicated", {}), ("sharded", {}), ("sharded", {"epoch_samples": 1000})]
)
def test_without_time_a_plan_is_priced_three_times(
    monkeypatch: pytest.MonkeyPatch, mode: str, more: Request
) -> None:
    """To compare it, to judge it, and without start-ups, to say why it won."""
    priced = []
    module = sys.modules["planner.families.iteration.evaluation"]
    scheduled = module.scheduled

    def counted(*args: Any, **options: Any) -> Any:
        priced.append(len(args[2]))
        return scheduled(*args, **options)

    monkeypatch.setattr(module, "scheduled", counted)
    answer = planner.solve(request(modes=[mode], time_limit_s=1e-9, **more))
    assert len(answer["transfers"]) >= 150
    assert priced == [len(answer["transfers"])] * 3


@pytest.mark.parametrize("limit", [{}, {"time_limit_s": 1e-9}])
def test_the_plan_of_the_chosen_size_is_made_once(
    monkeypatch: pytest.MonkeyPatch, limit: Request
) -> None:
    asked = request(epoch_samples=1000, **limit)
    before = planner.solve(asked)
    chosen = {**request(), "cluster": {**asked["cluster"], "machines": before["machines"]}}
    if not limit:
        assert before["transfers"] == planner.solve(chosen)["transfers"]
        assert before["why"] == planner.solve(chosen)["why"]

    def again(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(sys.modules["planner.families.iteration"], "solve_all", again)
    answer = planner.solve(asked)
    assert len(answer["alternatives"]) == len(before["alternatives"])
    assert answer["transfers"] == before["transfers"]


def test_more_transfers_than_anybody_wants_are_not_planned() -> None:
    assert MAX_TRANSFERS == 4_000
    asked = tiny_iteration(4)
    sizes = [layer["parameter_bytes"] for layer in asked["profile"]["layers"]]
    asked["profile"]["layers"][0]["parameter_bytes"] += 4_000 - sum(sizes)
    asked |= {"max_transfer_bytes": 1, "modes": ["replicated"], "time_limit_s": 1e-9}
    assert len(planner.solve(asked)["transfers"]) == 4_000
    asked["profile"]["layers"][0]["parameter_bytes"] += 1
    answer = planner.solve(asked)
    assert answer["binding"] == ["max_transfer_bytes"]
    assert "at most 4000 transfers are planned" in answer["reason"]


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather"])
def test_tables_of_times_that_cannot_be_added_up_are_refused(collective: str) -> None:
    asked = tiny_iteration(4)
    ranks = asked["cluster"]["machines"]
    asked["cluster"]["network"] = {
        "collectives": {
            name: [
                {
                    "ranks": ranks,
                    "ranks_per_host": 1,
                    "table": [[1, 1000], [10**6, 4 * 10**18 if name == collective else 10**6]],
                }
            ]
            for name in ("all_reduce", "reduce_scatter", "all_gather")
        }
    }
    error = planner.solve(asked)["error"]
    assert error["path"] == "cluster"
    assert "four times as many transfers" in error["message"]
