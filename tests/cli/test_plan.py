"""``planner plan``: what it prints and writes."""

import re
from pathlib import Path

import planner
from planner.model.units import format_ns
from tests.cli.documents import FILES
from tests.cli.line import Line, read, without_runtime, write
from tests.jsonio.test_iteration import REQUEST

PLAN = "plan model.json --cluster cluster.json"


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
    without = line(PLAN).out
    assert "best plan found" not in without
    assert f"\n{said}" in without


def test_other_methods_are_priced_alike(line: Line) -> None:
    answer = line(PLAN, "--method ddp --algorithms ring --json").json
    assert (answer["method"], answer["synchronisation"]["algorithm"]) == ("ddp", "ring")
    assert "of which computation waits" in line(PLAN, "--method ddp").out


def test_machines_and_groups_are_chosen(line: Line) -> None:
    scheduling = {"task_ns": 100, "tasks_per_machine": 2}
    write("cluster.json", {**FILES["cluster.json"], "scheduling": scheduling})
    out = line(PLAN, "--epoch-samples 60 --max-overhead 1/10 --max-group 1ms").out
    assert "of 4 machines make the shortest epoch of 60 samples" in out
    assert "scheduling: groups of " in out


def test_infeasible_is_an_answer_without_a_picture(line: Line) -> None:
    write("cluster.json", {**FILES["cluster.json"], "memory_bytes": 5})
    write("old.svg", "of yesterday")
    out, err = line(PLAN, "--picture old.svg")
    assert "infeasible: memory: a worker needs" in out
    assert "no plan, so old.svg is not written" in err
    assert Path("old.svg").read_text() == "of yesterday"
