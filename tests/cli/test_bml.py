"""Synchronisation on the command line: compared, written, drawn."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.families import bml
from planner.families.collectives import COLLECTIVES, collective, lower_bound
from planner.model.network import Network
from planner.model.topologies import BCube
from tests.cli.test_cli import LAYERS
from tests.cli.test_yan import blocks, rows_of, written

DATA = Path(__file__).parents[2] / "data"
BIGDL = str(DATA / "bigdl" / "vgg19-16.json")
DRIZZLE = str(DATA / "drizzle" / "inception64.json")
NETWORK = ["--problem", "bml", "--startup", "5us", "--bandwidth", "40Gb/s"]
COLUMNS = ["algorithm", "NICs", "switches", "steps", "× T_F", "time", "above bound", "status"]
REQUEST: dict[str, Any] = {
    "problem": "bml",
    "n": 3,
    "k": 2,
    "gradient_bytes": 3600,
    "link_bytes_per_s": 5e9,
    "latency_ns": 1000,
}
DAMAGED = {**REQUEST, "failed": {"nics": [[[0, 1], 0]], "servers": [[2, 2]]}}
CUT = {**REQUEST, "failed": {"nics": [[[0, 1], 0], [[0, 1], 1]]}}


def compared(out: str) -> tuple[str, list[dict[str, str]], set[str]]:
    """Return what the comparison is about, its rows, and what is left out."""
    head, table, *_ = blocks(out)
    return head, rows_of(table), set(re.findall(r"left out: (\w+)", table))


def solved(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    answer = folder / "solved.json"
    assert main(["solve", written(folder, request), "-o", str(answer)]) == 0
    return without_runtime(json.loads(answer.read_text()))


def without_runtime(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key != "runtime_s"}


def test_a_profile_is_compared_on_every_topology(
    profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", profile, *NETWORK, "--bcube", "3,2"]) == 0
    out = capsys.readouterr().out
    head, rows, left_out = compared(out)
    assert head.startswith("tiny: 9 servers of BCube(3, 2): 58.59 KiB of gradients, T_F 12 µs")
    assert "network: start-up 5us a step, 40Gb/s a NIC" in head
    assert list(rows[0]) == COLUMNS
    assert {row["algorithm"] for row in rows} | left_out == set(COLLECTIVES)
    assert left_out == {"halving_doubling_bcube"}
    tensors = [layer["parameter_bytes"] for layer in LAYERS]
    network = Network(5 * 10**9, 5000)  # type: ignore[arg-type]
    times = []
    for row in rows:
        one = collective(row["algorithm"], BCube(3, 2), tensors=tensors)
        assert row["NICs"] == str(one.nics)
        assert row["switches"] == str(one.switches)
        assert row["steps"] == str(one.steps)
        assert row["× T_F"] == f"{float(one.volume):.4f}"
        times.append(one.time_ns(network, 60000))
    assert times == sorted(times)
    assert blocks(out)[2].startswith("tiny: a synchronisation of 9 servers on BCube(3, 2) ")


def test_as_json_the_plan_comes_first_and_then_the_algorithms_by_time(
    profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = "ring_fattree,ps_bcube,bml_bcube"
    command = ["compare", profile, *NETWORK, "--bcube", "3,2", "--methods", names, "--json"]
    assert main(command) == 0
    plan, *rows = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in rows] == ["bml_bcube", "ps_bcube", "ring_fattree"]
    assert [row["objective_ns"] for row in rows] == sorted(row["objective_ns"] for row in rows)
    request = {**REQUEST, "gradient_bytes": 60000, "latency_ns": 5000}
    assert without_runtime(plan) == solved(request, tmp_path)
    network = Network(5 * 10**9, 5000)  # type: ignore[arg-type]
    for row in rows:
        one = collective(row["method"], BCube(3, 2))
        hops = 2 if one.topology == "bcube" else 1
        shared = ("n", "k", "servers", "switches", "full_transfer_ns", "ideal_ns")
        assert without_runtime(row) == {
            "problem": "bml",
            "method": one.name,
            "status": "optimal" if row["objective_ns"] == row["lower_bound_ns"] else "feasible",
            "objective_ns": plan["comparison"][one.name]["time_ns"],
            "lower_bound_ns": lower_bound(9, one.nics, hops).time_ns(network, 60000),
            **{name: plan[name] for name in shared},
            "times_full_transfer": float(one.volume),
            "comparison": {one.name: plan["comparison"][one.name]},
        }
        assert row["lower_bound_ns"] <= row["objective_ns"]


def test_an_intact_request_is_compared_and_its_plan_solved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {**REQUEST, "method": "trees", "time_limit_s": 60}
    path, plan = written(tmp_path, request), tmp_path / "plan.json"
    assert main(["compare", path, "-o", str(plan)]) == 0
    head, rows, left_out = compared(capsys.readouterr().out)
    assert head == "request: 9 servers of BCube(3, 2): 3.516 KiB of gradients, T_F 720 ns"
    placed = {"ps_tensors_fattree"}
    assert left_out == {"halving_doubling_bcube", *placed}
    assert {row["algorithm"] for row in rows} | left_out == set(COLLECTIVES)
    assert without_runtime(json.loads(plan.read_text())) == solved(request, tmp_path)
    layers = {**REQUEST, "layer_bytes": [3000, 600]}
    assert main(["compare", written(tmp_path, layers)]) == 0
    assert placed <= {row["algorithm"] for row in compared(capsys.readouterr().out)[1]}


def test_the_time_limit_of_a_request_holds_for_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(problem: bml.Problem, *, method: str, time_limit: float | None) -> Any:
        seen.append((method, time_limit))
        return solve(problem, method=method)

    solve = bml.solve
    monkeypatch.setattr(bml.BML, "solve", spy)
    request = {**REQUEST, "method": "trees", "time_limit_s": 2.5}
    assert main(["compare", written(tmp_path, request)]) == 0
    assert seen == [("trees", 2.5)]


def test_layers_without_a_byte_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, {**REQUEST, "gradient_bytes": 0, "layer_bytes": [0, 0]})
    assert main(["compare", path]) == 0
    _, rows, _ = compared(capsys.readouterr().out)
    assert {(row["time"], row["status"]) for row in rows} == {("0 ns", "optimal")}


def test_times_that_do_not_fit_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, {**REQUEST, "gradient_bytes": 2**62, "link_bytes_per_s": 6e8})
    assert main(["compare", path]) == 0
    out = capsys.readouterr().out
    assert "left out: halving_doubling_fattree (the time of a synchronisation must fit" in out
    assert "bml_bcube" in {row["algorithm"] for row in compared(out)[1]}


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        ({"nics": [[[0, 1], 0]]}, "1 NIC"),
        ({"servers": [[0, 1]], "nics": [[[2, 1], 0], [[2, 0], 0]]}, "1 server and 2 NICs"),
        ({"servers": [[0, 0], [0, 1]], "switches": [[0, [2]]]}, "2 servers and 1 switch"),
        ({"switches": [[0, [0]], [0, [1]]]}, "2 switches"),
    ],
)
def test_failures_are_counted_in_words(
    failed: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, {**REQUEST, "failed": failed})
    assert main(["compare", path, "--methods", "detour"]) == 0
    assert f"BCube(3, 2), without {words}: 3.516 KiB" in capsys.readouterr().out


def test_around_failures_plans_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, DAMAGED)
    assert main(["compare", path]) == 0
    out = capsys.readouterr().out
    _, rows, left_out = compared(out)
    assert {row["algorithm"] for row in rows} == {"detour", "trees"}
    assert not left_out
    assert {(row["NICs"], row["switches"]) for row in rows} == {("2", "6")}
    assert main(["compare", path, "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert [answer["method"] for answer in answers] == [row["algorithm"] for row in rows]
    for one, row in zip(answers, rows, strict=True):
        steps = len(one["steps"]) + one["rounds"] - 1
        assert row["steps"] == f"{steps:,}"
        assert row["× T_F"] == f"{one['times_full_transfer']:.4f}"
    assert "(failed servers: 1, NICs: 1) takes " in out
    assert main(["compare", path, "--methods", "bml,detour"]) == 0
    out = capsys.readouterr().out
    assert "left out: bml (bml is Algorithm 1, which knows no failures)" in out


def test_an_infeasible_answer_is_not_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", written(tmp_path, CUT), "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert [answer["method"] for answer in answers] == ["detour", "trees"]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(answers[0]))
    assert main(["draw", str(plan)]) == 2
    reason = "the failures cut off server [0, 1] from the other 8 that work"
    message = f"{plan}: steps: the answer (infeasible) holds no plan: {reason}"
    assert message in capsys.readouterr().err


REQUESTS = {
    "bml": REQUEST,
    "bml around failures": DAMAGED,
    "bigdl": json.loads(Path(BIGDL).read_text()),
    "drizzle": json.loads(Path(DRIZZLE).read_text()),
}
