"""``planner compare``: requests and profiles, each method with a row or left out with a reason."""

import re
from pathlib import Path
from typing import Any

import pytest

from planner.families import bml, caramel
from planner.families.collectives import COLLECTIVES, collective, lower_bound
from planner.jsonio import PROBLEMS
from planner.model.network import Network
from planner.model.topologies import BCube
from tests.cli.documents import (
    BML,
    CUT,
    DAMAGED,
    IBATCH,
    LAYERS,
    LINK,
    PROFILE,
    REQUESTS,
)
from tests.cli.line import Line, read, without_runtime, write
from tests.jsonio.test_yan import SMALL, fixed

HEADS = {
    "ibatch": "request, pull: 3 layers, 9 ns to compute",
    "caramel": "request: 1 parameter, 4 KiB of gradients, 2 ops",
    "yan": "request: 2 layers, 20 connections, 22 weights, 60,000 samples",
    "bml": "request: 9 servers of BCube(3, 2): 3.516 KiB of gradients, T_F 720 ns",
    "bml around failures": "request: 9 servers of BCube(3, 2), without 1 server and 1 NIC: 3.516",
    "bigdl": "request: 16 nodes with 4 partitions each, 548 MiB of gradients, T_F ",
    "drizzle": "request: 320 tasks, 900 ms to compute, overhead of at most 0.02, a decision every ",
}
STARTS = {"ibatch": "A pull in ", "caramel": "An iteration takes ", "yan": "An epoch takes "}
COLUMNS = {
    "caramel": "method groups iteration stalls overlap utilisation 'above bound' status 'run time'",
    "yan": "method workers replicas servers machines epoch 'above bound' status 'run time'",
    "bml": "algorithm NICs switches steps '× T_F' time 'above bound' status",
}
FAST = "--methods exact,greedy,greedy_forward,greedy_backward,one_batch,layer_by_layer,mg_wfbp,ddp"
ON_BCUBE = "compare tiny.json --problem bml --startup 5us --bandwidth 40Gb/s --bcube 3,2"
NETWORK = Network(5 * 10**9, 5000)  # type: ignore[arg-type]
ON_LINK = f"compare tiny.json --problem caramel {LINK}"


def blocks(out: str) -> list[str]:
    return [block.strip("\n") for block in out.split("\n\n")]


def rows_of(out: str) -> list[dict[str, str]]:
    """Read the table, the second block; what is said below it is left out."""
    header, _, *lines = blocks(out)[1].splitlines()
    names = re.split(r"\s{2,}", header.strip())
    cells = [re.split(r"\s{2,}", line.strip()) for line in lines]
    return [dict(zip(names, row, strict=True)) for row in cells if len(row) == len(names)]


def left_out(out: str) -> set[str]:
    """Return the methods that did not run."""
    listed = re.findall(r"left out: ([\w, ]+) \(", out)
    return {name for names in listed for name in names.split(", ")}


def column(name: str, out: str) -> list[str]:
    return [row[name] for row in rows_of(out)]


def titles(problem: str) -> list[str]:
    return re.findall(r"'[^']+'|\S+", COLUMNS[problem])


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_compared_as_it_is_solved_and_drawn(name: str, line: Line) -> None:
    """The rows of an intact BCube are algorithms, which are compared below."""
    problem = name.split(maxsplit=1)[0]
    write("asked.json", REQUESTS[name])
    out = line("compare asked.json -o plan.json --picture compared.svg").out
    assert out.startswith(HEADS[name])
    if problem in COLUMNS:
        assert list(rows_of(out)[0]) == [title.strip("'") for title in titles(problem)]
    methods = {*PROBLEMS[problem].family.names()} - {"auto"}
    methods = {"bml": {*COLLECTIVES}, "bml around failures": {"detour", "trees"}}.get(name, methods)
    first = "algorithm" if problem == "bml" else "method"
    assert {*column(first, out)} | left_out(out) == methods

    answers = line("compare asked.json --json").json
    times = [answer["objective_ns"] for answer in answers]
    assert times[1:] == sorted(times[1:])
    assert times == sorted(times) or name == "bml"
    for place, answer in enumerate(answers[: 1 if name == "bml" else None]):
        write("one.json", {**REQUESTS[name], "method": answer["method"]})
        expected = without_runtime(line("solve one.json").json)
        if place:
            expected.pop("targets", None)  # prices under other rules: of the best plan only
        assert without_runtime(answer) == expected
        assert place or without_runtime(read("plan.json")) == expected

    drawn = line("draw plan.json").out
    assert drawn.startswith(STARTS.get(problem, "A "))
    assert f"({problem}" in drawn.splitlines()[0]
    if problem == "caramel":
        assert "end of the backward pass (20 ns)" in drawn
        assert "all-reduce 1: w1" in drawn
    assert drawn in out
    line("draw plan.json -o drawn.svg")
    assert "<svg" in Path("drawn.svg").read_text()
    assert Path("compared.svg").read_bytes() == Path("drawn.svg").read_bytes()
    assert "expected a name ending in .svg" in line.error("draw plan.json -o p.bmp")
    for trace in ("p.json", "p.json.gz"):
        if problem in ("ibatch", "caramel"):  # whose plans are timelines
            line(f"draw plan.json -o {trace}")
            assert Path(trace).exists()
        else:
            refused = line.error(f"draw plan.json -o {trace}")
            assert "expected a name ending in .svg (a chart)" in refused


def test_columns_are_fields_of_the_answers(line: Line) -> None:
    found = {}
    for name in ("bigdl", "drizzle"):
        write("asked.json", REQUESTS[name])
        rows = rows_of(line("compare asked.json").out)
        answers = line("compare asked.json --json").json
        assert [answer["method"] for answer in answers] == [row["method"] for row in rows]
        found[name] = list(zip(answers, rows, strict=True))
    best = found["bigdl"][0][1]
    assert (best["method"], best["above bound"], best["status"]) == ("rotated", "0.00%", "optimal")
    for answer, row in found["bigdl"]:
        assert row["× T_F"] == f"{answer['times_full_transfer']:.4g}"
        through = answer["comparison"][answer["method"]]["driver_bytes"]
        assert (row["through the driver"].split()[0] == "0") == (through == 0)
    ((answer, row),) = found["drizzle"]
    assert row["group size"] == str(answer["group_size"])
    assert row["overhead"] == f"{answer['overhead']:.2%}"
    assert row["speed-up"] == f"{answer['speedup']:.4g}"
    assert row["status"] == "optimal"


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({**SMALL, "memory_bytes": 1}, ": memory"),
        (CUT, "detour, trees: the failures cut off server [0, 1] from the other 8 that work"),
        ({**REQUESTS["drizzle"], "max_group_ns": 10**8}, "exact: "),
    ],
)
def test_infeasible_requests_say_why(request_: dict[str, Any], said: str, line: Line) -> None:
    write("asked.json", request_)
    write("plan.json", "kept")
    shown = line("compare asked.json -o plan.json")
    assert said in shown.out
    assert {*column("status", shown.out)} <= {"infeasible"}
    assert "no method found a plan" in shown.err
    assert Path("plan.json").read_text() == "kept"


def test_an_infeasible_answer_is_not_drawn(line: Line) -> None:
    answers = line("compare -", "--json", given=CUT).json
    assert [answer["method"] for answer in answers] == ["detour", "trees"]
    write("plan.json", answers[0])
    reason = "the failures cut off server [0, 1] from the other 8 that work"
    assert line.error("draw plan.json") == (
        f"planner: error: plan.json: steps: the answer (infeasible) holds no plan: {reason}\n"
    )


@pytest.mark.parametrize("direction", ["pull", "push"])
def test_batches_of_a_profile_are_compared(direction: str, line: Line) -> None:
    command = f"compare tiny.json {LINK} {FAST} --direction {direction}"
    out = line(command).out
    best = rows_of(out)[0]
    assert (best["method"], best["above bound"], best["status"]) == ("exact", "0.00%", "optimal")
    assert (re.search("left out: (mg_wfbp, )?ddp", out) is not None) == (direction == "pull")
    assert "communication" in out
    answers = line(command, "--json").json
    costs = [answer["objective_ns"] for answer in answers]
    assert costs == sorted(costs)
    assert len({answer["lower_bound_ns"] for answer in answers}) == 1
    assert answers[0]["layer_names"] == [f"l{i}" for i in range(1, 6)]


def test_methods_without_a_plan_say_why(line: Line) -> None:
    command = f"compare tiny.json {LINK} --methods exact,one_batch --max-batch"
    assert "one_batch: the batches of method one_batch break" in line(command, "30kB").out
    none = line(command, "1kB")
    assert "layer 0 has 4000 bytes" in none.out
    assert "no method found a plan" in none.err
    many = {**PROFILE, "layers": [{**LAYERS[0], "name": f"l{i}"} for i in range(40)]}
    out = line(f"compare - --problem caramel {LINK} --methods exact,caramel", given=many).out
    assert column("method", out) == ["caramel"]
    assert "left out: exact (exact takes up to" in out


def test_gradients_of_a_profile_are_compared(line: Line) -> None:
    out = line(ON_LINK).out
    head = out.splitlines()
    assert head[0] == "tiny: 5 parameters, 58.59 KiB of gradients, 10 ops, 25 µs to compute"
    assert head[2:4] == [
        "network: start-up 1us, bandwidth 10Gb/s",
        "all-reduces among 8 workers",
    ]
    rows = rows_of(out)
    assert {row["method"] for row in rows} == {*caramel.METHODS} - {"auto"}
    best = next(row for row in rows if row["method"] == "search")
    assert best["iteration"] == rows[0]["iteration"]
    assert (best["above bound"], best["status"]) == ("0.00%", "optimal")
    assert "b backward · f forward" in out


def test_gaps_refer_to_the_bound_of_auto(line: Line) -> None:
    both = f"{ON_LINK} --methods auto,ddp"
    answers = {answer["method"]: answer for answer in line(both, "--json").json}
    ddp = answers["ddp"]
    rows = {row["method"]: row for row in rows_of(line(both).out)}
    bound = answers["search"]["lower_bound_ns"]
    assert rows["ddp"]["above bound"] == f"{ddp['objective_ns'] / bound - 1:.2%}"
    own = f"{ddp['objective_ns'] / ddp['lower_bound_ns'] - 1:.2%}"
    assert column("above bound", line(f"{ON_LINK} --methods ddp").out) == [own]


def test_fewer_servers_take_longer(line: Line) -> None:
    command = f"{ON_LINK} --methods ps --json"
    times = [
        line(command, servers).json[0]["objective_ns"]
        for servers in ("", "--servers 8", "--servers 1")
    ]
    assert times[0] == times[1] < times[2]


@pytest.mark.parametrize("size", [9_000_000, 8_999_999])
def test_parameters_are_cut_between_numbers(size: int, line: Line) -> None:
    profile = {**PROFILE, "layers": [{**LAYERS[0], "parameter_bytes": size}]}
    command = f"compare - --problem caramel {LINK} --methods bytescheduler --json"
    assert line(command, given=profile).json[0]["groups"][0]["part"] == {"l1": [0, 4_000_000]}


def test_epochs_are_ranked_by_their_triples(line: Line) -> None:
    out = line("compare yan.json --problem yan").out
    parts, rows = blocks(out), rows_of(out)
    assert "3 machines of 2 cores" in parts[0]
    exact = next(row for row in rows if row["method"] == "exact")
    assert (exact["above bound"], exact["status"]) == ("0.00%", "optimal")
    assert parts[2].startswith("An epoch takes ")
    ranking = bars_of(out)
    assert ranking[0].split()[0] == "{workers}×{replicas}+{servers}".format(**rows[0])
    assert ranking[0].endswith(rows[0]["epoch"])
    assert all("%)" in row or "×)" in row for row in ranking[1:])
    out = line("compare - --methods exact", given=fixed()).out
    assert "2 given configurations" in blocks(out)[0]
    assert blocks(out)[0].endswith("above bound and status: of the given ones only")
    assert len(bars_of(out)) == 2


def bars_of(out: str) -> list[str]:
    """Return the rows of the ranking of triples."""
    ranking = next(part for part in blocks(out) if part.startswith("workers × replicas + servers"))
    return ranking.splitlines()[1:]


def test_one_of_a_thing_is_no_plural(line: Line) -> None:
    request = {**SMALL, "cores": 1, "samples": 1, "read_every": 1, "layers": SMALL["layers"][:1]}
    request["fixed"] = [{"parameter_servers": 1, "replicas": 1, "workers_per_replica": 1}]
    head = blocks(line("compare -", given=request).out)[0]
    assert "request: 1 layer, 12 connections, 12 weights, 1 sample an epoch" in head
    assert "1 given configuration on 3 machines of 1 core, up to 1 thread, weights" in head
    assert "every 1 sample (mean)" in head


def test_parts_of_requests_are_answered(line: Line) -> None:
    command = "compare - --json --methods"
    best, worst = line(f"{command} exact,model_parallel", given={**SMALL, "pareto": True}).json
    assert "pareto" in best
    assert "pareto" not in worst
    named = {**IBATCH, "layer_names": ["a", "b", "c"]}
    assert line(f"{command} exact", given=named).json[0]["layer_names"] == ["a", "b", "c"]
    free = {name: value for name, value in REQUESTS["drizzle"].items() if name != "max_group_ns"}
    assert "decision" not in blocks(line("compare -", given=free).out)[0]


def test_a_profile_is_compared_on_every_topology(line: Line) -> None:
    out = line(ON_BCUBE, "--picture p.svg").out
    head, rows = blocks(out)[0], rows_of(out)
    assert head.startswith("tiny: 9 servers of BCube(3, 2): 58.59 KiB of gradients, T_F 12 µs")
    assert "network: start-up 5us, bandwidth 40Gb/s" in head
    assert {row["algorithm"] for row in rows} | left_out(out) == {*COLLECTIVES}
    assert left_out(out) == {"halving_doubling_bcube"}
    tensors = [layer["parameter_bytes"] for layer in LAYERS]
    times = []
    for row in rows:
        found = collective(row["algorithm"], BCube(3, 2), tensors=tensors)
        assert row["NICs"] == str(found.nics)
        assert row["switches"] == str(found.switches)
        assert row["steps"] == str(found.steps)
        assert row["× T_F"] == f"{float(found.volume):.4f}"
        times.append(found.time_ns(NETWORK, 60000))
    assert times == sorted(times)
    assert blocks(out)[2].startswith("tiny: a synchronisation of 9 servers on BCube(3, 2) ")
    picture = Path("p.svg").read_text(encoding="utf-8")
    assert "tiny: a synchronisation of 9 servers on BCube(3, 2)" in picture
    assert "this plan" in picture


def test_as_json_the_plan_comes_first_and_then_the_algorithms_by_time(line: Line) -> None:
    plan, *rows = line(ON_BCUBE, "--methods ring_fattree,ps_bcube,bml_bcube --json").json
    assert [row["method"] for row in rows] == ["bml_bcube", "ps_bcube", "ring_fattree"]
    assert [row["objective_ns"] for row in rows] == sorted(row["objective_ns"] for row in rows)
    request = {**BML, "gradient_bytes": 60000, "latency_ns": 5000}
    assert without_runtime(plan) == without_runtime(line("solve", given=request).json)
    for row in rows:
        found = collective(row["method"], BCube(3, 2))
        hops = 2 if found.topology == "bcube" else 1
        shared = ("n", "k", "servers", "switches", "full_transfer_ns", "ideal_ns")
        assert without_runtime(row) == {
            "problem": "bml",
            "method": found.name,
            "status": "optimal" if row["objective_ns"] == row["lower_bound_ns"] else "feasible",
            "objective_ns": plan["comparison"][found.name]["time_ns"],
            "lower_bound_ns": lower_bound(9, found.nics, hops).time_ns(NETWORK, 60000),
            **{name: plan[name] for name in shared},
            "times_full_transfer": float(found.volume),
            "comparison": {found.name: plan["comparison"][found.name]},
        }
        assert row["lower_bound_ns"] <= row["objective_ns"]


def test_algorithms_that_place_tensors_need_them(line: Line) -> None:
    placed = {"ps_tensors_fattree"}
    assert left_out(line("compare -", given=BML).out) == {"halving_doubling_bcube", *placed}
    layers = {**BML, "layer_bytes": [3000, 600]}
    assert placed <= {*column("algorithm", line("compare -", given=layers).out)}
    empty = {**BML, "gradient_bytes": 0, "layer_bytes": [0, 0]}
    rows = rows_of(line("compare -", given=empty).out)
    assert {(row["time"], row["status"]) for row in rows} == {("0 ns", "optimal")}
    huge = {**BML, "gradient_bytes": 2**62, "link_bytes_per_s": 6e8}
    out = line("compare -", given=huge).out
    assert "left out: halving_doubling_fattree (the time of a synchronisation must fit" in out
    assert "bml_bcube" in column("algorithm", out)


def test_the_method_and_the_time_limit_of_a_request_hold_for_its_plan(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(problem: bml.Problem, *, method: str, time_limit: float | None) -> Any:
        seen.append((method, time_limit))
        return solve(problem, method=method)

    solve = bml.solve
    request = {**BML, "method": "trees", "time_limit_s": 2.5}
    with monkeypatch.context() as patch:
        patch.setattr(bml.BML, "solve", spy)
        line("compare - -o plan.json", given=request)
    assert seen == [("trees", 2.5)]
    answer = line("solve", given=request).json
    assert without_runtime(read("plan.json")) == without_runtime(answer)


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        ({"nics": [[[0, 1], 0]]}, "1 NIC"),
        ({"servers": [[0, 1]], "nics": [[[2, 1], 0], [[2, 0], 0]]}, "1 server and 2 NICs"),
        ({"servers": [[0, 0], [0, 1]], "switches": [[0, [2]]]}, "2 servers and 1 switch"),
        ({"switches": [[0, [0]], [0, [1]]]}, "2 switches"),
    ],
)
def test_failures_are_counted_in_words(failed: dict[str, Any], words: str, line: Line) -> None:
    out = line("compare - --methods detour", given={**BML, "failed": failed}).out
    assert f"BCube(3, 2), without {words}: 3.516 KiB" in out


def test_around_failures_plans_are_compared(line: Line) -> None:
    write("asked.json", DAMAGED)
    out = line("compare asked.json").out
    rows, answers = rows_of(out), line("compare asked.json --json").json
    assert not left_out(out)
    assert {(row["NICs"], row["switches"]) for row in rows} == {("2", "6")}
    assert [answer["method"] for answer in answers] == [row["algorithm"] for row in rows]
    for answer, row in zip(answers, rows, strict=True):
        steps = len(answer["steps"]) + answer["rounds"] - 1
        assert row["steps"] == f"{steps:,}"
        assert row["× T_F"] == f"{answer['times_full_transfer']:.4f}"
    assert "(failed servers: 1, NICs: 1) takes " in out
    out = line("compare asked.json --methods bml,detour").out
    assert "left out: bml (bml is Algorithm 1, which knows no failures)" in out
