"""Schedules in answers of bml: what is listed can be executed by who knows nothing else."""

from itertools import product
from typing import Any

import pytest

from planner.jsonio.bml import MAX_TRANSFERS
from tests.jsonio.bml_execution import execute
from tests.jsonio.bml_requests import NIC, changed
from tests.jsonio.test_bml import answered
from tests.jsonio.test_service import ask, error, without


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "detour", "trees"])
@pytest.mark.parametrize(
    "failed",
    [
        without,
        NIC,
        {"servers": [[1, 1]]},
        {"switches": [[0, [1]]]},
        {"servers": [[0, 0]], "links": [[[2, 1], 1]]},
    ],
)
@pytest.mark.parametrize("sizes", [{"gradient_bytes": 97}, {"layer_bytes": [40, 0, 12]}])
def test_a_third_party_can_execute_what_is_listed(
    method: str, failed: Any, sizes: dict[str, Any]
) -> None:
    request = {"gradient_bytes": without, "schedule": "all", "failed": failed, "method": method}
    found = answered(**{**request, **sizes})
    rows = found["transfers"]
    execute(changed(**{**request, **sizes}), rows)
    for row in rows:
        assert ("layer" in row) == ("layer_bytes" in sizes)
        assert ("part" in row) == (found["rounds"] > 1)
        assert row.get("part", 0) < found["rounds"]
        assert row["offset"] + row["length"] <= found["pieces"]
    steps = {(row["stage"], row["step"]) for row in rows}
    assert steps <= {(row["stage"], row["step"]) for row in found["steps"]}


def test_schedules_of_one_of_all_and_of_nobody() -> None:
    request = changed(gradient_bytes=97, failed={"servers": [[1, 1]]}, method="detour")
    assert "transfers" not in ask(request)
    whole = ask({**request, "schedule": "all"})["transfers"]
    parts = []
    for server in product(range(3), repeat=2):
        if server != (1, 1):
            rows = ask({**request, "schedule": {"server": list(server)}})["transfers"]
            assert {tuple(row["server"]) for row in rows} == {server}
            parts += rows
    assert parts == whole


def test_the_fields_of_a_transfer() -> None:
    """Step 0 of thread 0 of the server [2, 1]: to digit 0 = 2 and 0 what they own."""
    found = answered(gradient_bytes=180, schedule={"server": [2, 1]})
    rows = [
        row
        for row in found["transfers"]
        if (row["thread"], row["stage"], row["step"]) == (0, "aggregate", 0)
    ]
    common = {"server": [2, 1], "thread": 0, "stage": "aggregate", "step": 0, "level": 0}
    common |= {"length": 3, "length_bytes": 30}
    assert rows == [
        {**common, "peer": [2, 2], "offset": 6, "offset_bytes": 60},
        {**common, "peer": [2, 0], "offset": 0, "offset_bytes": 0},
    ]
    assert len(found["transfers"]) == 2 * 2 * 2 * (3 - 1)


def test_a_million_transfers_are_listed() -> None:
    assert MAX_TRANSFERS == 10**6


@pytest.mark.parametrize("method", ["bml", "trees"])
def test_more_transfers_than_are_listed(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = without if method == "bml" else NIC
    request = changed(gradient_bytes=97, failed=failed, method=method, schedule="all")
    one = {**request, "schedule": {"server": [2, 2]}}
    everything, own = (len(ask(asked)["transfers"]) for asked in (request, one))
    assert everything > own > 1
    for most, all_, some in (
        (everything, True, True),
        (everything - 1, False, True),
        (own, False, True),
        (own - 1, False, False),
    ):
        monkeypatch.setattr("planner.jsonio.bml.MAX_TRANSFERS", most)
        for asked, fits, hint in ((request, all_, "; ask for one server"), (one, some, "")):
            if fits:
                assert len(ask(asked)["transfers"]) <= most
            else:
                message = f"expected at most {most} transfers, got more{hint}"
                assert error(asked) == ("schedule", message)
