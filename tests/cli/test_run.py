"""``planner run``, started as a launcher starts it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from planner.cli import main
from tests.cli.printed import check_printed
from tests.runtime.launching import launch

pytestmark = pytest.mark.slow

MODEL = """
import torch
from torch import nn

def make(batch_size=4):
    torch.manual_seed(0)
    print("made")
    layers = nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)
    return nn.Sequential(*layers), (torch.randn(batch_size, 16),)
"""

BAD_MODEL = """
import os
import torch
from my_model import make

class Fault(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if os.environ["RANK"] == "1":
            raise ZeroDivisionError("on purpose")
        return gradient

def forward():
    model, inputs = make()
    def fail(*_):
        if os.environ["RANK"] == "1":
            raise ZeroDivisionError("on purpose")
    model.register_forward_pre_hook(fail)
    return model, inputs

def backward():
    model, inputs = make()
    model.register_forward_hook(lambda _model, _inputs, output: Fault.apply(output))
    return model, inputs
"""


def _commands(folder: str, commands: list[list[str]]) -> list[int]:
    os.chdir(folder)
    statuses = []
    for number, arguments in enumerate(commands):
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + (number > 0))
        sys.stdout.write(f"== {number}\n")
        statuses.append(main(arguments))
    return statuses


def _sections(output: str) -> list[str]:
    return [part.partition("\n")[2] for part in output.split("== ")[1:]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its profile and its plans."""
    made = tmp_path_factory.mktemp("run")
    (made / "my_model.py").write_text(MODEL)
    compare = ["compare", "profile.json", "--startup", "100us", "--bandwidth", "10Gb/s"]
    preparing = [
        ["profile", "my_model:make", "-o", "profile.json", "--repetitions", "2", "--threads", "1"],
        [*compare, "--problem", "caramel", "--workers", "2", "-o", "caramel.json"],
        [*compare, "--direction", "pull", "-o", "pull.json"],
        [*compare, "--direction", "push", "-o", "push.json"],
    ]
    (outcome,) = launch(_commands, 1, str(made), preparing)
    assert outcome.value == [0] * 4, outcome.output
    check_printed("profile", json.loads((made / "profile.json").read_text()))
    plan = json.loads((made / "caramel.json").read_text())
    plan["advice"] |= {"keep_ddp": True, "bucket_cap_mb": 5, "gain": 1.005}  # however it turned out
    plan["warnings"] = ["it was busy"]
    (made / "caramel.json").write_text(json.dumps(plan))
    return made


def test_two_ranks_run_plans_and_the_first_one_reports(folder: Path) -> None:
    model = ["--model", "my_model:make", "--steps", "3", "--warmup", "1", "--timeout", "20"]
    pictures = ["--picture", "step.svg", "--trace", "trace.json"]
    outcomes = launch(
        _commands,
        2,
        str(folder),
        [
            ["run", "caramel.json", *model, "--against-ddp", "2", *pictures],
            ["run", "pull.json", "push.json", *model, "--optimizer", "adam", "--threads", "2"],
            ["run", "caramel.json", *model, "--json", "--against-ddp", "1"],
            ["run", "pull.json", "push.json", *model, "--json"],
        ],
    )
    for outcome in outcomes:
        assert outcome.value == [0, 0, 0, 0], outcome.output
    first, second, third, fourth = _sections(outcomes[0].output)
    assert "run: my_model:make, 2 ranks, 6 steps, sgd" in first
    assert "exposed communication" in first
    assert "in 2 alternating rounds" in first
    assert "warning: it was busy" in first
    assert re.search(r"^computation +\S", first, flags=re.MULTILINE)
    assert "forward phase" in second
    assert "backward phase" in second
    assert "pull 1  " in second
    assert "push 1  " in second
    assert "off by: predicted / measured - 1; above 0 the prediction is too long" in first
    assert re.search(r"transfer +size +predicted +measured +waited", first)
    assert "waited: how much longer it kept another" in first
    assert "the profile was measured with" not in first
    assert (
        "the profile was measured with 1 thread, a rank here computes with 2 threads"
        in second.replace("\n", " ")
    )
    assert "ddp_step_ns" not in second
    for section in (first, second):
        assert "planned for" not in section
    said, _, text = third.partition("made\n")
    assert said.startswith("planner: keep DDP: the plan gains only 0.50% over DDP with bucket_cap")
    document: dict[str, Any] = json.loads(text)
    check_printed("run", document)
    check_printed("run", json.loads(fourth.removeprefix("made\n")))
    plan = json.loads((folder / "caramel.json").read_text())
    assert document["plans"] == [
        {"file": "caramel.json", "problem": "caramel", "method": plan["method"], "ranks": 2}
    ]
    about = ("model", "optimizer", "ranks", "warmup")
    assert [document[name] for name in about] == ["my_model:make", "sgd", 2, 1]
    assert [
        (transfer["direction"], transfer["batch"], transfer["bytes"], transfer["predicted_ns"])
        for transfer in document["transfers"]
    ] == [
        (None, number, group["bytes"], group["end_ns"] - group["start_ns"])
        for number, group in enumerate(plan["groups"])
    ]
    for one in document["transfers"]:
        assert all(
            0 <= waited <= whole
            for waited, whole in zip(one["waited_ns"], one["measured_ns"], strict=True)
        )
    assert [len(one["measured_ns"]) for one in document["comparisons"]] == [3, 3, 3]
    assert len(document["ddp_step_ns"]) == 3
    assert document["against_ddp"]["rounds"] == 1
    assert not document["against_ddp"]["differs"]  # which one round cannot tell
    assert all(time > 0 for time in document["ddp_step_ns"])
    picture = (folder / "step.svg").read_text()
    assert "<svg" in picture
    assert "forward ops" in picture
    assert re.search(
        r"median step .* \(nearest, shown: rank [01], round [12], step [123]\)", picture
    )
    assert "times as long as predicted" in picture
    for name in ("end of the step, predicted", "end of the step, measured"):
        assert name in picture
    trace = json.loads((folder / "trace.json").read_text())
    lanes = {one["args"]["name"] for one in trace["traceEvents"] if one["name"] == "thread_name"}
    assert lanes == {
        f"rank {rank} {what}" for rank in (0, 1) for what in ("computation", "network")
    }
    for section in _sections(outcomes[1].output):
        assert section == "made\n"  # other ranks leave reporting to rank 0


SWITCH = """{"name": "two", "source": "-", "machines": 2, "topology": {"kind": "switch"},
"nic": {"bytes_per_s": 1e9, "startup_ns": 1000}}"""


def test_a_plan_of_fsdp_runs_beside_fsdp2_s_default(folder: Path) -> None:
    (folder / "two.json").write_text(SWITCH)
    planning = ["plan", "profile.json", "--cluster", "two.json", "--for", "fsdp2"]
    model = ["--model", "my_model:make", "--steps", "2", "--warmup", "1", "--timeout", "20"]
    run = ["run", "fsdp.json", *model]
    commands = [[*run, "--against-ddp", "2"], [*run, "--json", "--against-ddp", "1"]]
    refused = [[*run, "--trace", "trace.json"]]
    (outcome,) = launch(_commands, 1, str(folder), [[*planning, "-o", "fsdp.json"], run, *refused])
    assert outcome.value == [0, 2, 2], outcome.output
    assert "mesh: planned for 2 ranks, got 1" in outcome.output
    assert "--trace: not of FSDP2" in outcome.output
    outcomes = launch(_commands, 2, str(folder), commands)
    assert [outcome.value for outcome in outcomes] == [[0, 0], [0, 0]], outcomes[0].output
    text, told = (part.partition("made\n")[2] for part in _sections(outcomes[0].output))
    assert "summed up by: FSDP2" in text
    assert re.search(r"^step +\S+ \S+ +\S", text, flags=re.MULTILINE)
    assert re.search(r"^FSDP2 by default: .* in 2 alternating rounds", text, flags=re.MULTILINE)
    document = json.loads(told)
    check_printed("run", document)
    assert document["comparisons"][0]["predicted_ns"] > 0
    assert len(document["fsdp2_step_ns"]) == 2
    assert document["against_fsdp2"]["rounds"] == 1
    assert "against_ddp" not in document


def _wrong(folder: str, arguments: list[str]) -> int:
    os.chdir(folder)
    return main(arguments)


def test_a_plan_for_another_model_ends_every_rank(folder: Path) -> None:
    other = MODEL.replace("nn.Linear(32, 8)", "nn.Linear(32, 9)")
    (folder / "other_model.py").write_text(other)
    arguments = ["run", "caramel.json", "--model", "other_model:make", "--timeout", "20"]
    for outcome in launch(_wrong, 2, str(folder), arguments):
        assert outcome.value == 2
        assert "the model has" in outcome.output
        assert "Traceback" not in outcome.output


def _failing(folder: str, arguments: list[str]) -> tuple[int, str]:
    os.chdir(folder)
    file = Path(f"error-{os.environ['RANK']}.json")
    os.environ["TORCHELASTIC_ERROR_FILE"] = str(file)
    status = main(arguments)
    return status, json.loads(file.read_text())["message"]["message"]


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_what_a_model_raises_ends_every_rank_with_one_line(folder: Path, which: str) -> None:
    (folder / "bad_model.py").write_text(BAD_MODEL)
    arguments = ["run", "caramel.json", "--model", f"bad_model:{which}", "--timeout", "20"]
    outcomes = launch(_failing, 2, str(folder), arguments)
    said = f"the model's {which} pass failed: ZeroDivisionError: on purpose"
    assert outcomes[1].value == (2, f"planner: error: {said}")
    assert outcomes[0].value is not None
    status, other = outcomes[0].value
    assert status == 2
    assert "rank 1 stopped: MeasurementError: " + said in other
    for outcome in outcomes:
        assert "Traceback" not in outcome.output
        lines = outcome.output.splitlines()
        assert sum(line.startswith(f"rank {outcome.rank}: planner: error: ") for line in lines) == 1


def test_a_plan_for_other_ranks_runs_with_a_warning(folder: Path) -> None:
    plan = json.loads((folder / "caramel.json").read_text())
    (folder / "for_5.json").write_text(json.dumps(plan | {"ranks": 5}))
    arguments = ["run", "for_5.json", "--model", "my_model:make", "--steps", "2"]
    (outcome,) = launch(_wrong, 1, str(folder), arguments)
    assert outcome.value == 0, outcome.output
    assert "planned for 5 ranks, run on 1: predictions are for 5" in outcome.output
    assert "my_model:make, 1 rank, 2 steps" in outcome.output


def test_without_torch_it_says_what_to_install(folder: Path) -> None:
    code = (
        "import sys\nsys.modules['torch'] = None\nfrom planner.cli import main\n"
        "sys.exit(main(['run', 'caramel.json', '--model', 'my_model:make', '--threads', '1']))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert found.returncode == 2
    assert "torch is needed here: pip install '.[torch]' in a clone" in found.stderr


def test_without_a_launcher_it_says_how_to_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("RANK", raising=False)
    assert main(["run", "caramel.json", "--model", "my_model:make"]) == 2
    said = capsys.readouterr()
    assert "torchrun --nproc-per-node" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["caramel.json", "--steps", "0"], "--steps: expected an integer >= 2"),
        (["caramel.json", "--picture", "step.txt"], "--picture: expected a name ending in"),
        (["profile.json"], "profile.json: status: missing: expected an answer of planner solve"),
        (["caramel.json", "--timeout", "nan"], "--timeout: expected seconds > 0"),
        (["caramel.json", "--timeout", "0"], "--timeout: expected seconds > 0"),
        (["caramel.json", "--model", "nothing"], "--model: expected module:factory"),
        (["caramel.json", "--model", "my_model:lost"], "my_model.py) has no lost"),
        (["caramel.json", "--input", "3"], "--input: no effect here"),
        (["caramel.json", "--picture", "none/step.svg"], "--picture: no such folder"),
        (["caramel.json", "pull.json"], "expected one plan, or two of ibatch"),
        (["pull.json", "pull.json"], "at most one plan to pull"),
    ],
)
def test_bad_arguments(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    assert main(["run", "--model", "my_model:make", *arguments]) == 2
    assert message in capsys.readouterr().err
