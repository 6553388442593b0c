"""The README's examples run, and the walks of CONTRIBUTING.md are ways that calls really take."""

import json
import re
import sys
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import planner
from planner.cli import main
from planner.families import caramel
from planner.jsonio import decode_profile, encode_profile
from planner.model.costs import AffineCost
from tests.test_programs import BML

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def test_the_examples(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    tuned, example = blocks("python")
    compile(tuned, "README.md", "exec")  # examples/with_tune.py runs these lines
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("status       optimal\n")
    (echo,) = [block for block in blocks("sh") if block.startswith("echo")]
    (request,) = re.findall(r"'(\{.*\})'", echo)
    assert planner.solve(json.loads(request))["status"] == "optimal"


def test_the_measured_sentence_is_that_of_the_results() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    (figures,) = re.findall(r"^\| executed, four emulated hosts.*", page, flags=re.MULTILINE)
    (said,) = re.findall(r"([\d.]+ to [\d.]+×) as fast as under DDP", README.replace("\n", " "))
    assert f"| {said}; " in figures


PROFILE = ROOT / "data" / "profiles" / "lenet5.json"


def walks() -> dict[str, list[str]]:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.partition("## Five walks")[2].partition("\n## ")[0]
    found = {}
    for block in re.split(r"^\*\*", section, flags=re.MULTILINE)[1:]:
        title, _, steps = block.partition("**")
        found[title] = re.findall(r"^\d+\. `([\w.]+)`", steps, flags=re.MULTILINE)
    return found


def calls_of(action: Callable[[], object]) -> list[str]:
    """Return the functions of planner that an action calls, in all threads, in order."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("planner"):
            calls.append(f"{module}.{frame.f_code.co_qualname}")

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def missing(hops: list[str], calls: list[str]) -> str:
    """Return the first hop that does not come behind those before it; empty if all do."""
    left = iter(calls)
    return next((hop for hop in hops if hop not in left), "")


LAYERS: dict[str, Any] = {"problem": "ibatch", "layer_bytes": [100, 200], "compute_ns": [2, 6]}
LAYERS["cost_table"] = [[0, 10], [1000, 500], [2000, 700]]
OPTIONS = "--startup 50us --bandwidth 1Gb/s --workers 4 --methods search"


def plan(folder: Path) -> None:
    words = f"compare {PROFILE} --problem caramel {OPTIONS} -o {folder}/plan.json"
    assert main(words.split()) == 0


ACTIONS: dict[str, Callable[[Path], object]] = {
    "A layer's size, from JSON to an iBatch answer": lambda _: planner.solve(LAYERS),
    "A start-up, from the command line to a Caramel plan": plan,
    "A BCube, from a request to the checker": lambda _: planner.solve(BML),
    "A plan file, to a picture": lambda folder: main(
        ["draw", f"{folder}/plan.json", "-o", f"{folder}/plan.svg"]
    ),
}

GRADIENT = "A gradient, from a profile to an all-reduce"


def test_there_are_five_walks_of_at_most_eight_hops() -> None:
    assert walks().keys() == {*ACTIONS, GRADIENT}
    assert all(1 < len(hops) <= 8 for hops in walks().values())


@pytest.mark.parametrize("title", ACTIONS)
def test_calls_take_this_way(title: str, tmp_path: Path) -> None:
    if title == "A plan file, to a picture":
        plan(tmp_path)
    calls = calls_of(lambda: ACTIONS[title](tmp_path))
    assert missing(walks()[title], calls) == ""
    assert missing([*walks()[title], "planner.nobody.calls_this"], calls)  # it can fail


def gradient(profile: bytes) -> list[str]:
    """Plan, attach and take a step, as one of two ranks; return the calls."""
    from planner.runtime import attach, join
    from tests.runtime.reference import backward, make_model, make_optimizer

    with join() as world:
        model = make_model("perceptron")
        optimizer = make_optimizer("sgd", model)

        def act() -> None:
            cost = AffineCost(20_000, Fraction(100))
            problem = caramel.Problem.from_profile(decode_profile(profile), cost, element_bytes=4)
            with attach(model, (problem, caramel.solve(problem)), optimizer, world) as executor:
                backward(model, "perceptron", world.rank, 0)
                executor.step()

        return calls_of(act)


@pytest.mark.slow
def test_a_gradient_takes_this_way() -> None:
    pytest.importorskip("torch")
    from planner.profiling import measure
    from tests.runtime.launching import launch
    from tests.runtime.reference import make_inputs, make_model

    inputs = (make_inputs("perceptron", 0, 0),)
    model = make_model("perceptron")
    profile = measure(model, inputs, name="perceptron", source="", warmup=0, repetitions=1)
    outcomes: list[Any] = launch(gradient, 2, encode_profile(profile).encode())
    for outcome in outcomes:
        assert missing(walks()[GRADIENT], outcome.value) == ""
