"""``planner compare --network`` with a measured network, as a person meets it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.networks import LINK, PROFILE, TABLE, compare, measured, written


@pytest.fixture
def profile(tmp_path: Path) -> str:
    return written(tmp_path / "tiny.json", PROFILE)


def test_batches_count_interference(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = {"interference": {"ns_per_byte": 2, "slowdown": 1.5}}
    for direction, collective in (("pull", "all_gather"), ("push", "reduce_scatter")):
        network = measured(tmp_path, collective=collective, **beside)
        asked = ["--problem", "ibatch", "--direction", direction, "--network", network, "--json"]
        assert compare(profile, *asked) == 0
        rows = json.loads(capsys.readouterr().out)
        best = next(row for row in rows if row["method"] == "exact")
        for row in rows:
            assert row["objective_ns"] == row["makespan_ns"] >= best["objective_ns"]
            computed = sum(
                one["compute_end_ns"] - one["compute_start_ns"] for one in row["schedule"]
            )
            assert computed == row["slowed_ns"] + (3 if direction == "pull" else 6) * 10**6
    asked += ["--objective", "eq4"]
    assert compare(profile, *asked) == 2
    assert "Eq. 4 knows no interference" in capsys.readouterr().err


def times(capsys: pytest.CaptureFixture[str]) -> list[tuple[int, int]]:
    """Return the sizes of the groups of the one answer that was printed, with their times."""
    (answer,) = json.loads(capsys.readouterr().out)
    return [(group["bytes"], group["end_ns"] - group["start_ns"]) for group in answer["groups"]]


def test_measured_times_are_those_of_the_plan(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--problem", "caramel", "--methods", "layer_by_layer", "--json"]
    path = measured(tmp_path)
    assert compare(profile, *options, "--network", path) == 0
    table = {4000: 257_576, 40_000: 348_485, 400_000: 1_000_000}  # between the points, rounded up
    assert dict(times(capsys)) == table
    depths = {"1": {"table": TABLE}, "2": {"startup_ns": 100_000, "ns_per_byte": 1}}
    path = measured(tmp_path, network={"depths": depths})
    options[3] = "auto"
    assert compare(profile, *options, "--network", path) == 0
    assert all(time == 100_000 + size for size, time in times(capsys))  # always the cheaper one


def test_measured_times_are_those_of_batches(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for direction, collective in (("pull", "all_gather"), ("push", "reduce_scatter")):
        path = measured(tmp_path, collective=collective)
        options = ["--direction", direction, "--methods", "layer_by_layer", "--json"]
        assert compare(profile, "--network", path, *options) == 0
        (answer,) = json.loads(capsys.readouterr().out)
        spans = sorted(
            one["transfer_end_ns"] - one["transfer_start_ns"] for one in answer["schedule"]
        )
        assert spans == [257_576, 348_485, 1_000_000]


def test_as_many_workers_as_were_measured(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--problem", "caramel", "--network", measured(tmp_path), "--methods", "caramel"]
    assert compare(profile, *options) == 0
    assert compare(profile, *options, "--workers", "3", "--servers", "3") == 0
    assert compare(profile, *options, "--servers", "4") == 2
    assert "--servers: expected an integer <= 3" in capsys.readouterr().err
    assert compare(profile, *options, "--workers", "8") == 2
    assert "--workers: expected 3, among whom --network was measured" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            [],
            "--startup: missing: it comes with a profile, or --network or --cluster",
        ),
        (["--startup", "1us"], "--bandwidth: missing"),
        (["--network", "NETWORK", "--startup", "1us"], "--startup: not together with --network"),
        (["--network", "NETWORK", *LINK[2:]], "--bandwidth: not together with --network"),
        (["--network", "nowhere.json"], "nowhere.json"),
    ],
)
def test_the_network_is_given_once(
    tmp_path: Path,
    profile: str,
    options: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = measured(tmp_path)
    given = [path if option == "NETWORK" else option for option in options]
    problem = [] if "--problem" in given else ["--problem", "caramel"]
    assert compare(profile, *problem, *given, "--methods", "auto") == 2
    assert expected in capsys.readouterr().err


def test_models_of_messages_take_the_nics_of_its_ring(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--problem", "bml", "--bcube", "2,2", "--network"]
    assert compare(profile, *options, measured(tmp_path)) == 0
    assert "those on which a ring's all_reduce among 4 ranks costs" in capsys.readouterr().out
    assert compare(profile, *options, measured(tmp_path, algorithm="bml(2,2)")) == 2
    assert "expected NICs or links, got a measured collective" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"collective": "all_gather"}, "collective: expected all_reduce, which is what these"),
        ({"network": {"table": [[1, 2], [3, "4"]]}}, "network.table[1][1]: expected an integer"),
        ({"network": {"table": [[5, 2], [3, 4]]}}, "network.table[1][0]: expected an integer > 5"),
        ({"network": {}}, "network.startup_ns: missing; or give a table"),
        ({"ranks": 0}, "ranks: expected an integer >= 2, got 0"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(
    tmp_path: Path,
    profile: str,
    changes: dict[str, Any],
    expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = measured(tmp_path, **changes)
    assert compare(profile, "--problem", "caramel", "--network", path) == 2
    assert f"planner: error: {path}: {expected}" in capsys.readouterr().err


def test_batches_are_not_cut(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    depths = {"1": {"table": TABLE}, "2": {"table": TABLE}}
    path = measured(tmp_path, collective="all_gather", network={"depths": depths})
    assert compare(profile, "--network", path) == 2
    assert f"{path}: network.depths: only transfers of an all-reduce" in capsys.readouterr().err


def test_times_that_do_not_fit(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = measured(tmp_path, network={"startup_ns": 2**62, "ns_per_byte": 1})
    assert compare(profile, "--problem", "caramel", "--network", path) == 2
    assert f"{path}: network: " in capsys.readouterr().err


def test_a_request_has_its_own_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = {"problem": "ibatch", "startup_ns": 4, "transfer_ns": [3, 1], "compute_ns": [2, 6]}
    path = written(tmp_path / "request.json", request)
    assert compare(path, "--network", measured(tmp_path)) == 2
    assert "--network: does not apply to a request" in capsys.readouterr().err
