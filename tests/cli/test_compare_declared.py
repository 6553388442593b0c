"""What ``planner compare`` shows follows from what a family declares, and is said once."""

import re
import shlex
from typing import Any

import pytest

from planner.cli.compare_options import OPTIONS, PROFILED
from planner.cli.compare_tables import reasons, table
from planner.jsonio.interfaces import families
from planner.solving.compare import compare
from planner.solving.deadline import Deadline
from planner.solving.family import Family
from planner.solving.methods import Outcome, named
from planner.solving.result import Infeasibility
from tests.cli.documents import LINK, ROOT
from tests.cli.line import Line, read
from tests.cli.printed import check_answer
from tests.jsonio.requests import CHAIN
from tests.words import Words

FAMILIES = families()
LENET = "compare data/profiles/lenet5.json --cluster office-4"


def larger(problem: str, _: Deadline) -> Outcome[str]:
    return Outcome("larger")


def largest(problem: str, _: Deadline) -> Outcome[str]:
    return Outcome(None, infeasibility=Infeasibility(f"nothing is above {problem}", ("problem",)))


def test_a_family_that_declares_nothing_shows_objective_gap_status_and_run_time() -> None:
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


def _names(family: Family[Any, Any, Any]) -> list[str]:
    return [option.name for option in family.options]


def test_families_with_scenarios_have_regret() -> None:
    asked = {name for name, family in FAMILIES.items() if "--regret" in _names(family)}
    assert asked == {*FAMILIES}  # those of planner's own all have
    assert "--regret" not in _names(Words({"a": 1}, {}))


@pytest.mark.parametrize("problem", ["ibatch", "iteration"])
def test_regret_is_shown_of_a_profile(problem: str, line: Line) -> None:
    command = f"{LENET} --problem {problem} --regret --methods layer_by_layer"
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


# ---
# A profile of one's own goes into every problem with one option: the cluster.

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
