"""``planner compare``: rows of methods, and what follows from what a family declares."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from planner.cli.compare_options import OPTIONS, PROFILED
from planner.cli.compare_tables import reasons, table
from planner.families import bml
from planner.families.collectives import COLLECTIVES
from planner.jsonio import PROBLEMS
from planner.jsonio.interfaces import families
from planner.solving.compare import compare
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome, named
from planner.solving.result import Infeasibility
from tests.cli.documents import BML, CUT, DAMAGED, LAYERS, LINK, PROFILE, REQUESTS, ROOT
from tests.cli.line import Line, read, without_runtime, write
from tests.cli.printed import check_answer
from tests.jsonio.requests import BASES, CHAIN, told
from tests.words import Words

HEADS = {
    "ibatch": "request, pull: 3 layers, 9 ns to compute",
    "caramel": "request: 1 parameter, 4 KiB of gradients, 2 ops",
    "yan": "request: 2 layers, 20 connections, 22 weights, 60,000 samples",
    "bml": "request: 9 servers of BCube(3, 2): 3.516 KiB of gradients, T_F 720 ns",
    "bml around failures": "request: 9 servers of BCube(3, 2), without 1 server and 1 NIC: 3.516",
    "bigdl": "request: 16 nodes with 4 partitions each, 548 MiB of gradients, T_F ",
    "drizzle": "request: 320 tasks, 900 ms to compute, overhead of at most 0.02, a decision every ",
    "overlap": "request: 6 nodes, 12 ns of computation, 2 collectives on 1 channel",
}
ROWS = {
    "ibatch": "one_batch 1 22 ns 13 ns 0 ns 22.22% feasible",
    "caramel": "ps 1 53.78 µs 53.75 µs 0.0% 0.1% 0.88% feasible",
    "yan": "model_parallel 1 1 2 3 122.9 ms 1.17% feasible",
    "bml": "ps_bcube 2 6 4 1.3333 4.96 µs 87.88% feasible",
    "bml around failures": "trees 2 6 8 1.0000 12.32 µs 352.94% feasible",
    "bigdl": "tree_aggregate_torrent 7.786 s 16.94 4.816 GiB 803.33% feasible",
    "drizzle": "exact 7 1.94% 917.8 ms 6.425 s 1.117 optimal",
    "overlap": "own_order 42 ns 30 ns 2 8 B 31.25% feasible",
}
"""A row of each table, without its run time."""
ON_BCUBE = "compare tiny.json --problem bml --startup 5us --bandwidth 40Gb/s --bcube 3,2"


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


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_compared_as_it_is_solved_and_drawn(name: str, line: Line) -> None:
    """The rows of an intact BCube are algorithms, which are compared below."""
    problem = name.split(maxsplit=1)[0]
    write("asked.json", REQUESTS[name])
    out = line("compare asked.json -o plan.json --picture compared.svg").out
    assert out.startswith(HEADS[name])
    assert any(" ".join(row.split()).startswith(ROWS[name]) for row in out.splitlines())
    methods = {*PROBLEMS[problem].family.names()} - {"auto"}
    methods = {"bml": {*COLLECTIVES}, "bml around failures": {"detour", "trees"}}.get(name, methods)
    listed = column("algorithm" if problem == "bml" else "method", out)
    assert {*listed} | left_out(out) == methods

    answers = line("compare asked.json --json").json
    times = [answer["objective_ns"] for answer in answers]
    assert times[1:] == sorted(times[1:])
    assert times == sorted(times) or name == "bml"
    assert {*listed} == {answer["method"] for answer in answers} or name == "bml"
    for place, answer in enumerate(answers):
        check_answer(answer)
        if place and name == "bml":
            continue
        write("one.json", {**REQUESTS[name], "method": answer["method"]})
        expected = without_runtime(line("solve one.json").json)
        if place:
            expected.pop("targets", None)  # prices under other rules: of the best plan only
        # Only a plan chosen among the methods has prospects.
        assert told(answer, "prospect") == expected
        assert place or told(read("plan.json"), "prospect") == expected

    drawn = line("draw plan.json").out
    assert drawn.startswith(("A ", "An ", "The "))
    assert f"({problem}" in drawn.splitlines()[0]
    assert drawn in out
    line("draw plan.json -o drawn.svg")
    assert "<svg" in Path("drawn.svg").read_text()
    assert Path("compared.svg").read_bytes() == Path("drawn.svg").read_bytes()


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({**BASES["small"], "memory_bytes": 1}, ": memory"),
        (CUT, "detour, trees: the failures cut off server [0, 1] from the other 8 that work"),
        ({**REQUESTS["drizzle"], "max_group_ns": 10**8}, "exact: "),
    ],
)
def test_infeasible_requests_say_why_and_are_not_drawn(
    request_: dict[str, Any], said: str, line: Line
) -> None:
    write("asked.json", request_)
    write("plan.json", "kept")
    shown = line("compare asked.json -o plan.json")
    assert said in shown.out
    assert {*column("status", shown.out)} <= {"infeasible"}
    assert "no method found a plan" in shown.err
    assert Path("plan.json").read_text() == "kept"
    answers = line("compare asked.json --json").json
    for answer in answers:
        check_answer(answer)
    write("plan.json", answers[0])
    refused = line.error("draw plan.json")
    assert "the answer (infeasible) holds no plan: " in refused


@pytest.mark.parametrize("direction", ["pull", "push"])
def test_batches_of_a_profile_are_compared(direction: str, line: Line) -> None:
    methods = "exact,greedy_forward,greedy_backward,one_batch,layer_by_layer,mg_wfbp,ddp"
    command = f"compare tiny.json {LINK} --methods {methods} --direction {direction}"
    out = line(command).out
    assert re.match(r"exact .* 0\.00% optimal ", " ".join(rows_of(out)[0].values()))
    assert (re.search("left out: (mg_wfbp, )?ddp", out) is not None) == (direction == "pull")
    answers = line(command, "--json").json
    assert len({answer["lower_bound_ns"] for answer in answers}) == 1
    assert answers[0]["layer_names"] == [f"l{i}" for i in range(1, 6)]


def test_methods_without_a_plan_say_why(line: Line) -> None:
    command = f"compare tiny.json {LINK} --methods exact,one_batch --max-batch"
    assert "one_batch: the batches of method one_batch break" in line(command, "30kB").out
    assert "layer 0 has 4000 bytes" in line(command, "1kB").out
    many = {**PROFILE, "layers": [{**LAYERS[0], "name": f"l{i}"} for i in range(40)]}
    out = line(f"compare - --problem caramel {LINK} --methods exact,caramel", given=many).out
    assert column("method", out) == ["caramel"]
    assert "left out: exact (exact takes up to" in out
    out = line("compare - --methods bml,detour", given=DAMAGED).out
    assert "left out: bml (bml is Algorithm 1, which knows no failures)" in out


def test_gaps_refer_to_the_bound_of_auto(line: Line) -> None:
    write("asked.json", BASES["untargeted"])
    command = "compare asked.json --methods"
    answers = {answer["method"]: answer for answer in line(command, "auto,ddp --json").json}
    bound, own = (answers[name]["lower_bound_ns"] for name in ("search", "ddp"))
    assert bound > own
    for methods, least in (("auto,ddp", bound), ("ddp", own)):
        row = rows_of(line(command, methods).out)[-1]
        gap = answers["ddp"]["objective_ns"] / least - 1
        assert (row["method"], row["above bound"]) == ("ddp", f"{gap:.2%}")


def test_epochs_are_ranked_by_their_triples(line: Line) -> None:
    def ranking(out: str) -> list[list[str]]:
        head = "workers × replicas + servers"
        (part,) = (part for part in blocks(out) if part.startswith(head))
        return [bar.split() for bar in part.splitlines()[1:]]

    out = line("compare yan.json").out
    assert "3 machines of 2 cores" in blocks(out)[0]
    assert [*rows_of(out)[0].values()][:5] == ["exact", "1", "2", "1", "3"]
    best, *others = ranking(out)
    assert (best[0], best[-2:]) == ("1×2+1", ["121.5", "ms"])
    assert all("%)" in " ".join(bar) or "×)" in " ".join(bar) for bar in others)
    out = line("compare - --methods exact", given=BASES["fixed"]).out
    assert "above bound and status: of the given ones only" in blocks(out)[0]
    assert len(ranking(out)) == 2


def test_a_profile_is_compared_on_every_topology(line: Line) -> None:
    out = line(ON_BCUBE, "--picture p.svg").out
    head, rows = blocks(out)[0], rows_of(out)
    assert head.startswith("tiny: 9 servers of BCube(3, 2): 58.59 KiB of gradients, T_F 12 µs")
    assert "network: start-up 5us, bandwidth 40Gb/s" in head
    assert {row["algorithm"] for row in rows} | left_out(out) == {*COLLECTIVES}
    assert left_out(out) == {"halving_doubling_bcube"}
    assert {"algorithm": "ps_tensors_fattree", "× T_F": "5.3333"}.items() <= rows[8].items()
    title = "tiny: a synchronisation of 9 servers on BCube(3, 2)"
    assert blocks(out)[2].startswith(title)
    assert title in Path("p.svg").read_text(encoding="utf-8")

    plan, *answers = line(ON_BCUBE, "--methods ring_fattree,ps_bcube --json").json
    request = {**BML, "gradient_bytes": 60000, "latency_ns": 5000}
    assert without_runtime(plan) == without_runtime(line("solve", given=request).json)
    shared = ("problem", "n", "k", "servers", "switches", "full_transfer_ns", "ideal_ns")
    for answer, name, time, bound, cells in zip(
        answers,
        ("ps_bcube", "ring_fattree"),
        (36_000, 101_334),
        (20_667, 26_334),
        ("2 6 4 1.3333 36 µs 74.19%", "1 15 16 1.7778 101.3 µs 284.80%"),
        strict=True,
    ):
        compared = plan["comparison"][name]
        expected = {one: plan[one] for one in shared}
        expected |= {"method": name, "status": "feasible", "comparison": {name: compared}}
        expected |= {"objective_ns": time, "lower_bound_ns": bound}
        expected["times_full_transfer"] = compared["times_full_transfer"]
        assert without_runtime(answer) == expected
        (row,) = (row for row in rows if row["algorithm"] == name)
        assert " ".join(row.values()) == f"{name} {cells} feasible"


def test_algorithms_that_place_tensors_need_them(line: Line) -> None:
    placed = {"ps_tensors_fattree"}
    assert left_out(line("compare -", given=BML).out) == {"halving_doubling_bcube", *placed}
    empty = {**BML, "gradient_bytes": 0, "layer_bytes": [0, 0]}
    rows = rows_of(line("compare -", given=empty).out)
    layers = {**BML, "layer_bytes": [3000, 600]}
    assert placed <= {*column("algorithm", line("compare -", given=layers).out)}
    assert {(row["time"], row["status"]) for row in rows} == {("0 ns", "optimal")}
    huge = {**BML, "gradient_bytes": 2**62, "link_bytes_per_s": 6e8}
    out = line("compare -", given=huge).out
    assert "left out: halving_doubling_fattree (the time of a synchronisation must fit" in out
    assert "bml_bcube" in column("algorithm", out)


def test_the_method_and_the_time_limit_of_a_request_hold_for_its_plan(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = {**BML, "method": "trees", "time_limit_s": 2.5}
    answer, asked, solve = line("solve", given=request).json, [], bml.BML.solve

    def spy(problem: bml.Problem, **options: Any) -> Any:
        asked.append(options)
        return solve(problem, **options)

    monkeypatch.setattr(bml.BML, "solve", spy)
    line("compare - -o plan.json", given=request)
    assert asked == [{"method": "trees", "time_limit": 2.5}]
    assert without_runtime(read("plan.json")) == without_runtime(answer)


FAMILIES = families()


def test_a_family_that_declares_nothing_shows_objective_gap_status_and_run_time() -> None:
    def larger(problem: str, _: Deadline) -> Outcome[str]:
        return Outcome("larger")

    def largest(problem: str, _: Deadline) -> Outcome[str]:
        why = Infeasibility(f"nothing is above {problem}", ("problem",))
        return Outcome(None, infeasibility=why)

    methods = {"auto": named("larger", larger), "larger": larger, "largest": largest}
    family = Words({"larger": 1001}, methods, bound_ns=1000)
    assert list(family.names()) == ["larger", "largest"]
    found = compare("all", family.names(), solve=family.solve)
    header, rows = table(family, "all", found)
    assert header == ("method", "objective", "above bound", "status", "run time")
    assert [row[:4] for row in rows] == [
        ("larger", "1.001 µs", "0.10%", "feasible"),
        ("largest", "–", "–", "infeasible"),
    ]
    assert list(reasons(found.rows)) == ["largest: nothing is above all"]
    assert not family.options


def test_families_with_scenarios_have_regret() -> None:
    families = {**FAMILIES, "words": Words({"a": 1}, {})}
    options = {name: [one.name for one in family.options] for name, family in families.items()}
    asked = {name for name, own in options.items() if "--regret" in own}
    assert asked == {*FAMILIES}  # those of planner's own all have


@pytest.mark.parametrize("problem", ["ibatch", "iteration"])
def test_regret_is_shown_of_a_profile(problem: str, line: Line) -> None:
    command = f"compare data/profiles/lenet5.json --cluster office-4 --problem {problem} --regret"
    command = f"{command} --methods layer_by_layer"
    assert "\nbandwidth × 0.7" in line(command).out
    assert len(line(command, "--json").json[0]["regret"]) == 7


def test_the_best_plan_stands_beside_ddp_and_in_other_scenarios(line: Line) -> None:
    command = f"compare tiny.json --problem caramel {LINK} --regret"
    out = line(command, "-o plan.json").out
    assert re.search(r"\n\n(keep DDP|worth trying): .+\n\nif +this plan +best plan found", out)
    best, other = line(command, "--methods auto,ddp --json").json
    assert best["regret"] == read("plan.json")["regret"]
    assert not {"advice", "regret"} & other.keys()
    assert "best plan found" in line("compare -", given={**CHAIN, "regret": True}).out
    scenarios = {**CHAIN, "scenarios": [{"startup": 3}]}
    assert "\nin the scenarios " in line("compare -", given=scenarios).out


def test_warnings_are_said_once(line: Line) -> None:
    request = {
        "problem": "ibatch",
        "compute_ns": [5, 5],
        "layer_bytes": [10, 20],
        "network": read("data/clusters/h100ib-10.json")["network"],
        "scenarios": [{"computation": 2}],
    }
    for answer in line("compare - --methods exact --json", given=request).json:
        assert [text for text in answer["warnings"] if "beyond the table" in text]
        assert len(answer["warnings"]) == len(set(answer["warnings"]))


def test_slow_witnesses_run_if_they_are_asked_for(line: Line) -> None:
    long = {"problem": "ibatch", "startup_ns": 4, "transfer_ns": [3] * 33, "compute_ns": [2] * 33}
    out = line("compare -", given=long).out
    asked = line("compare - --methods milp,cpsat --time-limit 0.5", given=long).out
    for witness in ("milp", "cpsat"):
        assert f"left out: {witness} (33 units; --methods {witness} runs it)" in out
        assert (f"\n{witness} " in out, f"\n{witness} " in asked) == (False, True)


def test_the_help_names_every_problem_its_options_and_its_methods(line: Line) -> None:
    text = line("compare --help").out
    listed = re.findall(r"^  (?:-\w(?: \S+)?, )?(--[\w-]+)", text, flags=re.MULTILINE)
    own = {option.name for family in PROFILED.values() for option in family.options}
    assert {*own, *OPTIONS} <= {*listed}
    assert "--ignore-memory       yan, fsdp, iteration: " in text
    for name, family in FAMILIES.items():
        about = text.partition(f"\n  {name}: {family.asks}\n")[2].partition("\n  planner")[0]
        methods = about.partition(f"    {family.example}\n")[0]
        assert re.split(r",\s+", methods.strip()) == list(family.names())


QUICK = {
    "ibatch": "--methods greedy,one_batch",
    "caramel": "--methods caramel,ddp",
    "fsdp": "--methods fsdp2",
    "iteration": "--methods ddp",
    "overlap": "--methods greedy",
    "yan": "--methods data_parallel",
}
"""Those of which others take long; searches are tested with their families."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_the_examples_of_the_help_run(name: str, line: Line) -> None:
    planner, *words = shlex.split(FAMILIES[name].example)
    assert planner == "planner"
    assert "\n-----" in line(*words, "--time-limit 0.5", QUICK.get(name, "")).out


PROFILES = sorted(path.stem for path in (ROOT / "data" / "profiles").glob("*.json"))
CLUSTERS = {"bml": "bml-bcube", "drizzle": "drizzle-32"}
"""Those that a problem needs; others take any."""

VARIED = ("lenet5", "resnet50", "gpt2_small")
"""A chain, branches, and tied parameters; all go where most is asked of a profile."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        (profile, problem)
        for profile in PROFILES
        for problem in (PROFILED if profile in VARIED else ("iteration", "yan"))
    ],
)
def test_shipped_profiles_go_into_all_problems(profile: str, problem: str, line: Line) -> None:
    words = f"compare data/profiles/{profile}.json --problem {problem} --json --computation 0.1"
    cluster = f"--cluster {CLUSTERS.get(problem, 'office-4')} --time-limit 60"
    best, *others = line(words, cluster, QUICK.get(problem, "")).json
    assert best["problem"] == problem
    assert best["status"] in ("optimal", "feasible")
    assert best["objective_ns"] > 0
    for answer in (best, *others):
        check_answer(answer)


def test_what_a_profile_lacks_is_named_with_the_way_to_record_it(line: Line) -> None:
    profile = read("data/profiles/lenet5.json")
    del profile["layers"][3]["connections"]
    said = line("compare - --problem yan --cluster office-4", given=profile, status=2).err
    assert "standard input: layers[3].connections: missing of layer 'features.conv2.conv'" in said
    assert "planner profile records it" in said
