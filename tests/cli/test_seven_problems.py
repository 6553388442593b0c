"""A profile of one's own goes into every problem with one option: the cluster."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.cli.compare_options import PROFILED

DATA = Path(__file__).parents[2] / "data"
PROFILES = sorted((DATA / "profiles").glob("*.json"))
CLUSTERS = {"bml": "bml-bcube", "drizzle": "drizzle-32"}
"""Those that a problem needs; others take any."""

QUICK = {
    "ibatch": "greedy,one_batch",
    "caramel": "caramel,ddp",
    "fsdp": "fsdp2,no_reshard",
    "iteration": "ddp",
    "yan": "data_parallel,exact",
}


def compared(
    path: Path, problem: str, capsys: pytest.CaptureFixture[str], *options: str
) -> list[dict[str, Any]]:
    cluster = CLUSTERS.get(problem, "office-4")
    methods = ["--methods", QUICK[problem]] if problem in QUICK else []
    words = ["compare", str(path), "--problem", problem, "--cluster", cluster]
    assert main([*words, *methods, "--json", *options]) == 0
    answers: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROFILED)
@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_shipped_profiles_go_into_all_problems(
    path: Path, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Searching for so many layers is a matter of `tests/yan`, and every plan is bounded by itself.
    methods = {"yan": "data_parallel", "fsdp": "fsdp2"}
    rule = ["--methods", methods[problem]] if problem in methods else []
    options = ["--computation", "0.1", "--time-limit", "60"]
    best = compared(path, problem, capsys, *options, *rule)[0]
    assert best["problem"] == problem
    assert best["status"] in ("optimal", "feasible")
    assert best["objective_ns"] > 0


@pytest.mark.parametrize("problem", PROFILED)
def test_a_small_profile_goes_into_all_problems(
    problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    best = compared(DATA / "profiles/lenet5.json", problem, capsys)[0]
    assert best["status"] in ("optimal", "feasible")


def test_a_profile_is_no_compiled_graph(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(DATA / "profiles/lenet5.json")
    assert main(["compare", path, "--problem", "overlap", "--cluster", "office-4"]) == 2
    assert "overlap needs a request" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--problem yan --cluster office-4 --machines 3", "--machines: not together with"),
        ("--problem yan --cluster office-4 --startup 1us", "--startup: not together with"),
        ("--problem bml --cluster office-4", "--cluster: expected a bcube such as bml-bcube"),
        ("--problem drizzle --cluster office-4", "--cluster: office-4 does not say"),
        ("--problem iteration --startup 1us --bandwidth 1Gb/s", "--cluster: missing"),
        ("--problem yan --cluster office-4 --activations 1GB", "--activations: does not apply"),
        ("--problem bigdl --startup 1us --bandwidth 1Gb/s", "--machines: missing, or --cluster"),
        ("--problem yan --cluster office-4 --samples 0", "--samples: expected an integer >= 1"),
    ],
)
def test_options_that_contradict_each_other(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(DATA / "profiles/lenet5.json")
    assert main(["compare", path, *arguments.split()]) == 2
    assert message in capsys.readouterr().err


def test_what_a_profile_lacks_is_named_with_the_way_to_record_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = json.loads((DATA / "profiles/lenet5.json").read_bytes())
    del profile["layers"][3]["connections"]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profile))
    words = ["compare", str(path), "--problem", "yan", "--cluster", "office-4"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "profile.json: layers[3].connections: missing of layer 'features.conv2.conv'" in said
    assert "planner profile records it" in said
