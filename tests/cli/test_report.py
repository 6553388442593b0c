"""``planner report``: the page is written, again and again the same."""

import json
import shlex
from pathlib import Path

import pytest

from planner.cli import main
from planner.model.units import format_ns
from planner.solving.targets import TARGETS, to_apply
from planner.view.wording import about_ns
from tests.jsonio.test_iteration import CLUSTER, PROFILE
from tests.report.reading import read


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    Path("my model.json").write_text(json.dumps(PROFILE))
    Path("four.json").write_text(json.dumps(CLUSTER))
    return ["my model.json", "--cluster", "four.json"]


def test_the_page_says_what_plan_says(
    files: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["plan", *files, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert main(["report", *files]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"report.html: iteration {format_ns(plan['iteration_ns'])} by ")
    assert err == ""
    text = read(Path("report.html").read_text(encoding="utf-8")).one("section", id="verdict").text
    assert f"about {about_ns(plan['iteration_ns'])} if " in text
    assert plan["synchronisation"]["algorithm"] in text


def test_the_page_says_what_is_assumed(files: list[str]) -> None:
    assert main(["report", files[0], "--cluster", "caramel-8"]) == 0
    text = read(Path("report.html").read_text(encoding="utf-8")).one("section", id="verdict").text
    assert "Start-ups are assumed, not measured" in text


def test_the_command_on_the_page_makes_it_again(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--computation", "1/2", "--optimiser-ratio", "2", "--mode", "sharded"]
    options += ["--algorithms", "ring,ps", "--max-transfer", "9kB", "-o", "page.html"]
    assert main(["report", *files, *options]) == 0
    first = Path("page.html").read_bytes()
    origin = read(first.decode()).one("section", id="origin")
    command = shlex.split(origin.one("code").text)
    assert command[0] == "planner"
    assert main(command[1:]) == 0
    assert Path("report.html").read_bytes() == first
    capsys.readouterr()
    assert main([*command[1:], "-o", "-"]) == 0
    assert capsys.readouterr().out.encode() == first


@pytest.mark.parametrize("mode", ["replicated", "sharded"])
def test_the_steps_on_the_page_can_be_taken(
    mode: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *files, "--mode", mode, "--time-limit", "30"]) == 0
    text = read(Path("report.html").read_text(encoding="utf-8")).one("section", id="verdict")
    steps = [line for one in text.all("code") for line in one.text.splitlines()]
    taken = [shlex.split(step)[1:] for step in steps if step.startswith("planner ")]
    assert taken[0][0] == "plan"
    for step in taken:
        assert main(step) == 0, capsys.readouterr().err
    assert json.loads(Path("plan.json").read_text())["synchronisation"]["mode"] == mode
    (run,) = [step for step in steps if step.startswith("torchrun ")]
    assert "--against-ddp" in run
    assert f"--nnodes {CLUSTER['machines']} " in run


def test_infeasible_is_a_page(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("four.json").write_text(json.dumps({**CLUSTER, "memory_bytes": 5}))
    assert main(["report", *files]) == 0
    assert "report.html: infeasible: memory: a worker needs" in capsys.readouterr().out
    assert "There is no plan" in Path("report.html").read_text()


def test_a_driver_that_schedules_is_mentioned(files: list[str]) -> None:
    scheduling = {"task_ns": 100, "tasks_per_machine": 2}
    Path("four.json").write_text(json.dumps({**CLUSTER, "scheduling": scheduling}))
    assert main(["report", *files]) == 0
    assert "Scheduling: groups of " in Path("report.html").read_text()


@pytest.mark.parametrize("target", TARGETS)
def test_a_report_for_a_target_is_about_the_plan_for_it(
    target: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *files, "--for", target, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert main(["report", *files, "--for", target]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"report.html: iteration {format_ns(plan['iteration_ns'])} by ")
    page = read(Path("report.html").read_text(encoding="utf-8"))
    default = plan["targets"][target]["default_ns"]
    verdict = page.one("section", id="verdict")
    assert f"The plan keeps to the rules of {plan['target']['version']}. " in verdict.text
    assert f"as fast as the default of {TARGETS[target].title}" in verdict.text
    assert f"({format_ns(default)})" in verdict.text
    rows = {row[0]: row for row in page.one("table", class_="peers").rows()}
    assert rows.keys() == {"buckets", target, "joint"}
    assert rows["buckets"][3] == format_ns(plan["iteration_ns"])
    assert rows[target][3] == format_ns(default)
    steps = [line for one in verdict.all("code") for line in one.text.splitlines()]
    taken = [shlex.split(step)[1:] for step in steps if step.startswith("planner ")]
    assert [step[0] for step in taken] == ["plan", "export"]
    for lines in to_apply(TARGETS[target], "plan.json", f"{target}.json").values():
        assert set(lines) <= {*steps}
    for step in taken:
        assert main(step) == 0, capsys.readouterr().err
    command = shlex.split(page.one("section", id="origin").one("code").text)
    assert command[-2:] == ["--for", target]
