"""Gradient plans on the command line: compared, solved, drawn."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.families import caramel
from tests.cli.test_cli import NETWORK, PROFILE
from tests.cli.test_yan import blocks, rows_of
from tests.jsonio.test_caramel import CHAIN, CONTRACT

LAYERS: list[dict[str, Any]] = PROFILE["layers"]  # type: ignore[assignment]


def written(folder: Path, layers: list[dict[str, Any]]) -> str:
    path = folder / "model.json"
    path.write_text(json.dumps({**PROFILE, "layers": layers}))
    return str(path)


@pytest.fixture
def profile(tmp_path: Path) -> str:
    return written(tmp_path, LAYERS)


def compare(profile: str, *more: str) -> int:
    return main(["compare", profile, "--problem", "caramel", *NETWORK, *more])


def test_compare_shows_every_method(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(profile) == 0
    out = capsys.readouterr().out
    head = out.splitlines()
    assert head[0] == "tiny: 5 parameters, 58.59 KiB of gradients, 10 ops, 25 µs to compute"
    assert head[2] == (
        "network: all-reduce among 8 workers, start-up 1us, 1.75 bytes moved per byte over 10Gb/s"
    )
    rows = rows_of(blocks(out)[1])
    assert {row["method"] for row in rows} == set(caramel.METHODS) - {"auto"}
    assert list(rows[0]) == [
        "method",
        "groups",
        "iteration",
        "stalls",
        "overlap",
        "utilisation",
        "above bound",
        "status",
        "run time",
    ]
    best = next(row for row in rows if row["method"] == "search")
    assert best["iteration"] == rows[0]["iteration"]
    assert (best["above bound"], best["status"]) == ("0.00%", "optimal")
    assert "b backward · f forward" in out


def test_the_best_plan_stands_beside_ddp_and_in_other_scenarios(
    profile: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(tmp_path / "plan.json")
    assert compare(profile, "--regret", "-o", path) == 0
    out = capsys.readouterr().out
    assert re.search(r"\n\n(keep DDP|worth trying): .+\n\nif +this plan +best plan found", out)
    plan = json.loads(Path(path).read_text())
    assert len(plan["regret"]) == 7
    assert compare(profile, "--methods", "auto,ddp", "--regret", "--json") == 0
    best, other = json.loads(capsys.readouterr().out)
    assert best["regret"] == plan["regret"]
    assert not {"advice", "regret"} & other.keys()
    request = tmp_path / "request.json"
    request.write_text(json.dumps({**CHAIN, "regret": True}))
    assert main(["compare", str(request)]) == 0
    assert "best plan found" in capsys.readouterr().out
    request.write_text(json.dumps({**CHAIN, "scenarios": [{"startup": 3}]}))
    assert main(["compare", str(request)]) == 0
    assert "\nin the scenarios " in capsys.readouterr().out
    assert main(["compare", profile, *NETWORK, "--regret"]) == 0
    assert "best plan found" in capsys.readouterr().out


def test_gaps_refer_to_the_bound_of_auto(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(profile, "--methods", "auto,ddp", "--json") == 0
    answers = {answer["method"]: answer for answer in json.loads(capsys.readouterr().out)}
    assert compare(profile, "--methods", "auto,ddp") == 0
    rows = {row["method"]: row for row in rows_of(blocks(capsys.readouterr().out)[1])}
    bound = answers["search"]["lower_bound_ns"]
    assert rows["ddp"]["above bound"] == f"{answers['ddp']['objective_ns'] / bound - 1:.2%}"
    assert compare(profile, "--methods", "ddp") == 0
    (row,) = rows_of(blocks(capsys.readouterr().out)[1])
    own = answers["ddp"]["objective_ns"] / answers["ddp"]["lower_bound_ns"] - 1
    assert row["above bound"] == f"{own:.2%}"


def test_methods_that_do_not_apply_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = [{**LAYERS[0], "name": f"l{i}"} for i in range(40)]
    assert compare(written(tmp_path, layers), "--methods", "exact,caramel") == 0
    out = capsys.readouterr().out
    assert [row["method"] for row in rows_of(blocks(out)[1])] == ["caramel"]
    assert "left out: exact (exact takes up to" in out


def test_the_network_is_that_of_an_all_reduce(
    profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for workers, moved in (("2", 1.0), ("4", 1.5)):
        command = ["--methods", "layer_by_layer", "--json", "--workers", workers]
        assert compare(profile, *command) == 0
        (answer,) = json.loads(capsys.readouterr().out)
        assert answer["workers"] == int(workers)
        for group in answer["groups"]:  # 10 Gb/s: 0.8 ns a byte
            duration = group["end_ns"] - group["start_ns"]
            assert duration == 1000 + -(-group["bytes"] * moved * 8 // 10)
            assert group["startup_end_ns"] - group["start_ns"] == 1000


def test_fewer_servers_take_longer(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for servers in ([], ["--servers", "8"], ["--servers", "1"]):
        assert compare(profile, "--methods", "ps", "--json", *servers) == 0
        found.append(json.loads(capsys.readouterr().out)[0]["objective_ns"])
    assert found[0] == found[1] < found[2]


@pytest.mark.parametrize(("size", "cut"), [(9_000_000, 4_000_000), (8_999_999, 4_000_000)])
def test_parameters_are_cut_between_numbers(
    tmp_path: Path, size: int, cut: int, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = [{**LAYERS[0], "parameter_bytes": size}]
    assert compare(written(tmp_path, layers), "--methods", "bytescheduler", "--json") == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["groups"][0]["part"] == {"l1": [0, cut]}


def test_solve_and_draw(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    request, plan = tmp_path / "request.json", tmp_path / "plan.json"
    request.write_text(json.dumps(CONTRACT))
    assert main(["solve", str(request)]) == 0
    plan.write_bytes(capfdbinary.readouterr().out)
    assert main(["draw", str(plan)]) == 0
    out = capfdbinary.readouterr().out.decode()
    assert "end of the backward pass (20 ns)" in out
    assert "all-reduce 1: w1" in out
    request.write_text(json.dumps({**CHAIN, "ops": []}))
    assert main(["solve", str(request)]) == 2
    assert json.loads(capfdbinary.readouterr().out)["error"]["path"] == "ops"
