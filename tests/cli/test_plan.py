"""``planner plan``: what it prints, writes and refuses."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli import main
from planner.model.units import format_ns
from tests.cli.test_bml import without_runtime
from tests.jsonio.test_iteration import CLUSTER, PROFILE, REQUEST


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "tiny.json").write_text(json.dumps(PROFILE))
    (tmp_path / "four.json").write_text(json.dumps(CLUSTER))
    return [str(tmp_path / "tiny.json"), "--cluster", str(tmp_path / "four.json")]


def test_it_says_what_was_chosen_and_why(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *files]) == 0
    out = capsys.readouterr().out
    answer = planner.solve({**REQUEST, "element_bytes": 4})
    chosen = answer["synchronisation"]
    assert f"plan (joint): {chosen['algorithm']}, {chosen['mode']}: " in out
    assert "four: 4 workers, one switch, 1 × 8 Gb/s a machine, start-up 100 ns" in out
    assert "waiting for bytes" in out
    assert "next: " in out
    assert "left out: bml" in out
    rows = re.findall(r"^(\w+) +(replicated|sharded) +\d+", out, re.MULTILINE)
    assert sorted(rows) == sorted(
        (alternative["algorithm"], alternative["mode"]) for alternative in answer["alternatives"]
    )


@pytest.mark.slow
def test_measured_interference_is_counted(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if the cluster said it."""
    beside = {"startup_ns": 30, "ns_per_byte": 0.5, "slowdown": 1.25, "delay_ns": 7}
    network: dict[str, Any] = {"collective": "all_reduce", "ranks": 4, "interference": beside}
    network["network"] = {"startup_ns": 7, "ns_per_byte": 1}
    path = tmp_path / "network.json"
    path.write_text(json.dumps(network))
    assert main(["plan", *files, "--interference", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    cluster = {**CLUSTER, "interference": beside}
    expected = planner.solve({**REQUEST, "element_bytes": 4, "cluster": cluster})
    assert without_runtime(answer) == without_runtime(json.loads(json.dumps(expected)))
    assert main(["plan", *files, "--interference", str(path)]) == 0
    assert "transfers slow the computation down by " in capsys.readouterr().out
    for change, expected_error in (
        ({"interference": {}}, "interference: missing: planner calibrate network measures it"),
        ({"collective": "all_gather"}, "collective: expected all_reduce"),
    ):
        path.write_text(json.dumps({**network, **change}))
        assert main(["plan", *files, "--interference", str(path)]) == 2
        assert f"network.json: {expected_error}" in capsys.readouterr().err


def test_it_writes_what_solve_answers(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    options = ["--computation", "1/2", "--optimiser-ratio", "1", "--mode", "sharded"]
    assert main(["plan", *files, *options, "-o", str(path)]) == 0
    capsys.readouterr()
    assert main(["plan", *files, *options, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    request = {**REQUEST, "computation_scale": 0.5, "optimiser_ratio": 1, "modes": ["sharded"]}
    expected = without_runtime(planner.solve({**request, "element_bytes": 4}))
    assert without_runtime(printed) == expected
    assert without_runtime(json.loads(path.read_text())) == expected
    assert main(["draw", str(path)]) == 0
    assert "push 1" in capsys.readouterr().out


def test_regret_is_a_table_below_the_advice(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *files, "--regret"]) == 0
    out = capsys.readouterr().out
    assert main(["plan", *files, "--regret", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["regret"]) == 7
    advice = answer["advice"]
    said = "keep DDP: " if advice["keep_ddp"] else f"worth trying: {advice['gain']:.2f} times as"
    assert f"\n{said}" in out
    assert format_ns(advice["ddp_ns"]) in out
    _, _, table = out.partition("best plan found")
    for row in answer["regret"]:
        assert f"{format_ns(row['plan_ns'])}  " in table
    assert "a rank falls behind by 0.1 of the backward pass" in table
    assert main(["plan", *files]) == 0
    without = capsys.readouterr().out
    assert "best plan found" not in without
    assert f"\n{said}" in without


def test_other_methods_are_priced_alike(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *files, "--method", "ddp", "--algorithms", "ring", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["method"] == "ddp"
    assert answer["synchronisation"]["algorithm"] == "ring"
    assert main(["plan", *files, "--method", "ddp"]) == 0
    assert "of which computation waits" in capsys.readouterr().out


def test_machines_and_groups_are_chosen(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    scheduling = {"task_ns": 100, "tasks_per_machine": 2}
    Path(files[2]).write_text(json.dumps({**CLUSTER, "scheduling": scheduling}))
    options = ["--epoch-samples", "60", "--max-overhead", "1/10", "--max-group", "1ms"]
    assert main(["plan", *files, *options]) == 0
    out = capsys.readouterr().out
    assert "of 4 machines make the shortest epoch of 60 samples" in out
    assert "scheduling: groups of " in out


def test_infeasible_is_an_answer(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files[2]).write_text(json.dumps({**CLUSTER, "memory_bytes": 5}))
    assert main(["plan", *files]) == 0
    assert "infeasible: memory: a worker needs" in capsys.readouterr().out


def test_without_a_plan_it_says_that_there_is_no_picture(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[2]).write_text(json.dumps({**CLUSTER, "memory_bytes": 5}))
    picture = tmp_path / "old.svg"
    picture.write_text("of yesterday")
    assert main(["plan", *files, "--picture", str(picture)]) == 0
    assert f"no plan, so {picture} is not written" in capsys.readouterr().err
    assert picture.read_text() == "of yesterday"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "{profile}"], "--output: would replace {profile}, which is read"),
        (["-o", "{cluster}"], "--output: would replace {cluster}, which is read"),
        (["--picture", "{link}"], "--picture: would replace {link}, which is read"),
        (["--picture", "a.svg", "-o", "./a.svg"], "which --picture writes"),
    ],
)
def test_no_file_is_written_twice_or_over_what_is_read(
    files: list[str],
    options: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("linked.svg").hardlink_to(files[0])
    names = {"profile": files[0], "cluster": files[2], "link": "linked.svg"}
    before = Path(files[0]).read_bytes()
    assert main(["plan", *files, *(option.format(**names) for option in options)]) == 2
    assert said.format(**names) in capsys.readouterr().err
    assert Path(files[0]).read_bytes() == before
    assert not Path("a.svg").exists()
