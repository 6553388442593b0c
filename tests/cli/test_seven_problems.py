"""A profile of one's own goes into every problem with one option: the cluster."""

from pathlib import Path
from typing import Any

import pytest

from planner.cli.compare_options import PROFILED
from tests.cli.line import Line, read

DATA = Path(__file__).parents[2] / "data"
PROFILES = sorted(path.stem for path in (DATA / "profiles").glob("*.json"))
LENET = "compare data/profiles/lenet5.json"
CLUSTERS = {"bml": "bml-bcube", "drizzle": "drizzle-32"}
"""Those that a problem needs; others take any."""

QUICK = {
    "ibatch": "greedy,one_batch",
    "caramel": "caramel,ddp",
    "fsdp": "fsdp2,no_reshard",
    "iteration": "ddp",
    "yan": "data_parallel,exact",
}


def best(line: Line, profile: str, problem: str, *options: str) -> dict[str, Any]:
    cluster = CLUSTERS.get(problem, "office-4")
    methods = f"--methods {QUICK[problem]}" if problem in QUICK else ""
    words = f"compare data/profiles/{profile}.json --problem {problem} --cluster {cluster} --json"
    found: dict[str, Any] = line(words, methods, *options).json[0]
    assert found["problem"] == problem
    assert found["status"] in ("optimal", "feasible")
    assert found["objective_ns"] > 0
    return found


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROFILED)
@pytest.mark.parametrize("profile", PROFILES)
def test_shipped_profiles_go_into_all_problems(profile: str, problem: str, line: Line) -> None:
    # Searching for so many layers is a matter of `tests/yan`, and every plan is bounded by itself.
    methods = {"yan": "--methods data_parallel", "fsdp": "--methods fsdp2"}
    best(line, profile, problem, "--computation 0.1 --time-limit 60", methods.get(problem, ""))


@pytest.mark.parametrize("problem", PROFILED)
def test_a_small_profile_goes_into_all_problems(problem: str, line: Line) -> None:
    best(line, "lenet5", problem)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--problem yan --cluster office-4 --machines 3", "--machines: not together with"),
        ("--problem yan --cluster office-4 --startup 1us", "--startup: not together with"),
        ("--problem bml --cluster office-4", "--cluster: expected a bcube such as bml-bcube"),
        ("--problem drizzle --cluster office-4", "--cluster: office-4 does not say"),
        ("--problem drizzle", "--cluster: missing"),
        ("--problem fsdp", "--cluster: missing"),
        ("--problem iteration", "--cluster: missing"),
        ("--problem iteration --startup 1us --bandwidth 1Gb/s", "--cluster: missing"),
        ("--problem yan --cluster office-4 --activations 1GB", "--activations: does not apply"),
        ("--problem bigdl --startup 1us --bandwidth 1Gb/s", "--machines: missing, or --cluster"),
        ("--problem yan --startup 1us --bandwidth 1Gb/s", "--machines: missing, or --cluster"),
        ("--problem yan --cluster office-4 --samples 0", "--samples: expected an integer >= 1"),
        ("--problem overlap --cluster office-4", "overlap needs a request"),
    ],
)
def test_options_that_contradict_each_other(options: str, said: str, line: Line) -> None:
    assert said in line.error(LENET, options)


def test_what_a_profile_lacks_is_named_with_the_way_to_record_it(line: Line) -> None:
    profile = read("data/profiles/lenet5.json")
    del profile["layers"][3]["connections"]
    said = line("compare - --problem yan --cluster office-4", given=profile, status=2).err
    assert "standard input: layers[3].connections: missing of layer 'features.conv2.conv'" in said
    assert "planner profile records it" in said
