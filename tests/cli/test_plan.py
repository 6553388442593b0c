"""``planner plan`` and ``planner report``: what they print, write and warn of."""

import copy
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli.compare_tables import warning_lines
from planner.model.units import format_ns
from planner.solving.targets import TARGETS, to_apply
from planner.view.wording import about_ns
from tests.cli.documents import FILES, PROFILE
from tests.cli.line import Line, read, without_runtime, write
from tests.cli.printed import check_answer, check_printed
from tests.jsonio.test_iteration import CLUSTER, REQUEST
from tests.report.reading import Node
from tests.report.reading import read as read_page

PLAN = "plan model.json --cluster cluster.json"
FILE = "'my model.json' --cluster cluster.json"


def test_it_says_what_was_chosen_and_why(line: Line) -> None:
    out = line(PLAN).out
    answer = planner.solve({**REQUEST, "element_bytes": 4})
    chosen = answer["synchronisation"]
    assert f"plan (joint): {chosen['algorithm']}, {chosen['mode']}: " in out
    assert "four: 4 workers, one switch, 1 × 8 Gb/s a machine, start-up 100 ns" in out
    assert "waiting for bytes" in out
    assert "next: " in out
    assert "left out: bml" in out
    rows = re.findall(r"^(\w+) +(replicated|sharded) +\d+", out, re.MULTILINE)
    assert sorted(rows) == sorted((a["algorithm"], a["mode"]) for a in answer["alternatives"])


def test_it_writes_what_solve_answers(line: Line) -> None:
    command = f"{PLAN} --computation 1/2 --optimiser-ratio 1 --mode sharded"
    request = {**REQUEST, "computation_scale": 0.5, "optimiser_ratio": 1, "modes": ["sharded"]}
    expected = without_runtime(planner.solve({**request, "element_bytes": 4}))
    assert without_runtime(line(command, "-o plan.json --json").json) == expected
    assert without_runtime(read("plan.json")) == expected
    assert "push 1" in line("draw plan.json").out


def test_regret_is_a_table_below_the_advice(line: Line) -> None:
    out, answer = line(PLAN, "--regret").out, line(PLAN, "--regret --json").json
    assert len(answer["regret"]) == 7
    advice = answer["advice"]
    said = "keep DDP: " if advice["keep_ddp"] else f"worth trying: {advice['gain']:.2f} times as"
    assert f"\n{said}" in out
    assert format_ns(advice["ddp_ns"]) in out
    _, _, table = out.partition("best plan found")
    for row in answer["regret"]:
        assert f"{format_ns(row['plan_ns'])}  " in table
    assert "a rank falls behind by 0.1 of the backward pass" in table
    assert "best plan found" not in line(PLAN).out


def test_a_cluster_may_be_too_small_or_have_a_driver(line: Line) -> None:
    write("cluster.json", {**CLUSTER, "memory_bytes": 5})
    write("old.svg", "of yesterday")
    out, err = line(PLAN, "--picture old.svg")
    assert "infeasible: memory: a worker needs" in out
    assert "no plan, so old.svg is not written" in err
    assert Path("old.svg").read_text() == "of yesterday"
    assert "report.html: infeasible: memory: a worker needs" in line("report", FILE).out
    write("cluster.json", {**CLUSTER, "scheduling": {"task_ns": 100, "tasks_per_machine": 2}})
    out = line(PLAN, "--epoch-samples 60 --max-overhead 1/10 --max-group 1ms").out
    assert "of 4 machines make the shortest epoch of 60 samples" in out
    assert "scheduling: groups of " in out
    line("report", FILE)
    assert "Scheduling: groups of " in page().text


@pytest.fixture(autouse=True)
def _model(line: Line) -> None:
    write("my model.json", FILES["model.json"])


def page() -> Node:
    return read_page(Path("report.html").read_text(encoding="utf-8"))


def verdict() -> Node:
    return page().section("verdict")


def steps() -> list[str]:
    """Return the lines that the page says to type."""
    return [row for code in verdict().all("code") for row in code.text.splitlines()]


def take_steps(line: Line) -> list[str]:
    """Run the commands among them, and return the names of these."""
    taken = [step.removeprefix("planner ") for step in steps() if step.startswith("planner ")]
    for step in taken:
        line(step)
    return [step.split(maxsplit=1)[0] for step in taken]


def command() -> str:
    """Return the command that makes the page again."""
    return page().section("origin").one("code").text.removeprefix("planner ")


@pytest.mark.parametrize("spread_ns", [0, 4000])
def test_the_page_says_what_plan_says(spread_ns: int, line: Line) -> None:
    model: Any = copy.deepcopy(FILES["model.json"])
    for layer in model["layers"] if spread_ns else ():
        layer["backward_spread_ns"] = spread_ns
    write("my model.json", model)
    plan = line("plan", FILE, "--json").json
    out, err = line("report", FILE)
    assert out.startswith(f"report.html: iteration {format_ns(plan['iteration_ns'])} by ")
    assert err == ""
    assert f"about {about_ns(plan['iteration_ns'])} if " in verdict().text
    assert plan["synchronisation"]["algorithm"] in verdict().text
    assert ("in the scenarios" in verdict().text.lower()) == (spread_ns > 0)
    line("report 'my model.json' --cluster caramel-8")
    assert "Start-ups are assumed, not measured" in verdict().text


def test_the_command_on_the_page_makes_it_again(line: Line) -> None:
    options = "--computation 1/2 --optimiser-ratio 2 --mode sharded --algorithms ring,ps"
    line("report", FILE, options, "--max-transfer 9kB")
    first, again = Path("report.html").read_bytes(), command()
    write("report.html", "")
    line(again)
    assert Path("report.html").read_bytes() == first == line(again, "-o -").out.encode()


def test_the_steps_on_the_page_can_be_taken(line: Line) -> None:
    line("report", FILE, "--mode sharded --time-limit 30")
    assert take_steps(line)[0] == "plan"
    assert read("plan.json")["synchronisation"]["mode"] == "sharded"
    (run,) = [step for step in steps() if step.startswith("torchrun ")]
    assert "--against-ddp" in run
    assert f"--nnodes {CLUSTER['machines']} " in run


@pytest.mark.parametrize("target", TARGETS)
def test_a_report_for_a_target_is_about_the_plan_for_it(target: str, line: Line) -> None:
    plan = line("plan", FILE, f"--for {target} --json").json
    out = line("report", FILE, f"--for {target}").out
    assert out.startswith(f"report.html: iteration {format_ns(plan['iteration_ns'])} by ")
    default = plan["targets"][target]["default_ns"]
    text = verdict().text
    assert f"The plan keeps to the rules of {plan['target']['version']}. " in text
    assert f"as fast as the default of {TARGETS[target].title}" in text
    assert f"({format_ns(default)})" in text
    rows = {row[0]: row for row in page().one("table", class_="peers").rows()}
    assert rows.keys() == {"buckets", target, "joint"}
    assert rows["buckets"][3] == format_ns(plan["iteration_ns"])
    assert rows[target][3] == format_ns(default)
    for lines in to_apply(TARGETS[target], "plan.json", f"{target}.json").values():
        assert set(lines) <= {*steps()}
    assert take_steps(line) == ["plan", "export"]
    assert shlex.split(command())[-2:] == ["--for", target]


SAID = "4 threads on 2 processors"
DOUBT = f"profile m, measured on 2026-11-20 (an abacus), may be off: {SAID}; it rained"
LINK = "--startup 100us --bandwidth 1Gb/s"


@pytest.fixture
def profile(line: Line) -> dict[str, Any]:
    origin: dict[str, Any] = {"kind": "measured", "source": "here", "warnings": [SAID, "it rained"]}
    origin |= {"date": "2026-11-20", "processor": "an abacus", "threads": 2}
    made = {**PROFILE, "name": "m", "provenance": origin}
    check_printed("profile", made)
    write("m.json", made)
    return made


@pytest.mark.parametrize(
    "command",
    [
        f"compare m.json --problem caramel --workers 2 {LINK}",
        f"compare m.json --problem ibatch {LINK}",
        "plan m.json --cluster office-4",
    ],
)
def test_plans_repeat_it(command: str, profile: object, line: Line) -> None:
    out = line(command, "-o plan.json").out
    assert f"warning: {DOUBT}" in out
    assert out.count(SAID) == 1
    answer = read("plan.json")
    check_answer(answer)
    assert DOUBT in answer["warnings"]
    assert answer["profile_threads"] == 2
    if command.startswith("compare"):
        assert all(answer["warnings"] == [DOUBT] for answer in line(command, "--json").json)
    if "ibatch" in command:
        write("pull.json", {**answer, "layer_parameters": [[f"l{i}.weight"] for i in range(5)]})
        assert f"planner: warning: {DOUBT}" in line("export fsdp2 pull.json -o out").err
    assert line("draw plan.json").err.startswith(f"planner: warning: {DOUBT}\n")


@pytest.mark.parametrize("memory", ["memory_bytes", "accelerator_memory_bytes"])
def test_what_a_cluster_s_memory_is_understood_as(memory: str, profile: object, line: Line) -> None:
    topology = {"kind": "rails", "accelerators": 8, "link_bytes_per_s": 1e11}
    nic = {**CLUSTER["nic"], "per_machine": 8}
    cluster = {**CLUSTER, "machines": 2, "topology": topology, "nic": nic}
    write("c.json", {**cluster, memory: 80 * 10**9})
    for mode in ("", "--mode fsdp"):
        out = line("plan m.json --cluster c.json -o plan.json", mode).out
        said = "warning: memory_bytes is that of a machine: 74.51 GiB, 9.313 GiB for each of its 8"
        warned = any("accelerator_memory_bytes" in text for text in read("plan.json")["warnings"])
        assert (said in out) == warned == (memory == "memory_bytes")


def test_requests_repeat_it(profile: dict[str, Any]) -> None:
    request = {"problem": "iteration", "profile": profile, "cluster": CLUSTER}
    assert planner.solve(request)["warnings"] == [DOUBT]
    del profile["provenance"]["warnings"], profile["provenance"]["threads"]
    assert not {"warnings", "profile_threads"} & planner.solve(request).keys()


def test_of_a_long_warning_the_first_reason_is_printed_and_how_many_more_there_are() -> None:
    long = "; ".join(f"{what} kept processors busy meanwhile, for {'long ' * 8}" for what in "abc")
    assert warning_lines([DOUBT, long]) == [
        f"warning: {DOUBT}",
        f"warning: {long.split('; ')[0]}; 2 more reasons: see `warnings` in the file",
    ]
