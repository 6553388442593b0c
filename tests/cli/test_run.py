"""``planner run`` and ``planner profile``, started as a launcher starts them."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from planner.jsonio import decode_profile
from tests.cli.factories import commanded
from tests.cli.printed import check_printed
from tests.jsonio.test_iteration import CLUSTER

MODEL = """
import os
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    print("made")
    layers = nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)
    return nn.Sequential(*layers), (torch.randn(4, 16),)

class Fault(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        fail()
        return gradient

def fail(*_):
    if os.environ["RANK"] == "1":
        raise ZeroDivisionError("on purpose")

def forward():
    model, inputs = make()
    model.register_forward_pre_hook(fail)
    return model, inputs

def backward():
    model, inputs = make()
    model.register_forward_hook(lambda _model, _inputs, output: Fault.apply(output))
    return model, inputs
"""
BRIEFLY = "--model my_model:make --timeout 20 --warmup 1 --steps"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its profile and its plans."""
    made = tmp_path_factory.mktemp("run")
    (made / "my_model.py").write_text(MODEL)
    (made / "two.json").write_text(json.dumps({**CLUSTER, "machines": 2}))
    compare = "compare profile.json --startup 100us --bandwidth 10Gb/s"
    commanded(
        1,
        made,
        "profile my_model:make -o profile.json --repetitions 2 --threads 1",
        f"{compare} --problem caramel --workers 2 -o caramel.json",
        f"{compare} --direction pull -o pull.json",
        f"{compare} --direction push -o push.json",
        "plan profile.json --cluster two.json --for fsdp2 -o fsdp.json",
    )
    check_printed("profile", json.loads((made / "profile.json").read_text()))
    plan = json.loads((made / "caramel.json").read_text())
    plan["advice"] |= {"keep_ddp": True, "bucket_cap_mb": 5, "gain": 1.005}  # however it turned out
    plan["warnings"] = ["it was busy"]
    (made / "caramel.json").write_text(json.dumps(plan))
    (made / "for_5.json").write_text(json.dumps(plan | {"ranks": 5}))
    return made


@pytest.mark.slow
def test_two_ranks_run_plans_and_the_first_one_reports(folder: Path) -> None:
    pictures = "--picture step.svg --trace trace.json"
    sections, silent = commanded(
        2,
        folder,
        f"run caramel.json {BRIEFLY} 3 --against-ddp 2 {pictures}",
        f"run pull.json push.json {BRIEFLY} 3 --optimizer adam --threads 2",
        f"run caramel.json {BRIEFLY} 3 --json --against-ddp 1",
        f"run pull.json push.json {BRIEFLY} 3 --json",
    )
    assert silent == ["made\n"] * 4  # other ranks leave reporting to rank 0
    first, second, third, fourth = sections
    for said in ("run: my_model:make, 2 ranks, 6 steps, sgd", "exposed communication"):
        assert said in first
    for said in ("in 2 alternating rounds", "warning: it was busy"):
        assert said in first
    assert re.search(r"^computation +\S", first, flags=re.MULTILINE)
    assert re.search(r"transfer +size +predicted +measured +waited", first)
    for said in ("forward phase", "backward phase", "pull 1  ", "push 1  "):
        assert said in second
    threads = "the profile was measured with 1 thread, a rank here computes with 2 threads"
    assert threads in second.replace("\n", " ")
    assert "the profile was measured with" not in first
    assert "planned for" not in first + second
    said, _, text = third.partition("made\n")
    assert said.startswith("planner: keep DDP: the plan gains only 0.50% over DDP with bucket_cap")
    document: dict[str, Any] = json.loads(text)
    check_printed("run", document)
    check_printed("run", json.loads(fourth.removeprefix("made\n")))
    plan = json.loads((folder / "caramel.json").read_text())
    about = {"file": "caramel.json", "problem": "caramel", "method": plan["method"], "ranks": 2}
    assert document["plans"] == [about]
    about = {"model": "my_model:make", "optimizer": "sgd", "ranks": 2, "warmup": 1}
    assert about.items() <= document.items()
    fields = ("direction", "batch", "bytes", "predicted_ns")
    assert [tuple(one[field] for field in fields) for one in document["transfers"]] == [
        (None, number, group["bytes"], group["end_ns"] - group["start_ns"])
        for number, group in enumerate(plan["groups"])
    ]
    for one in document["transfers"]:
        waited = zip(one["waited_ns"], one["measured_ns"], strict=True)
        assert all(0 <= part <= whole for part, whole in waited)
    assert [len(one["measured_ns"]) for one in document["comparisons"]] == [3, 3, 3]
    assert len(document["ddp_step_ns"]) == 3
    assert document["against_ddp"]["rounds"] == 1
    assert not document["against_ddp"]["differs"]  # which one round cannot tell
    assert "times as long as predicted" in (folder / "step.svg").read_text()
    trace = json.loads((folder / "trace.json").read_text())
    lanes = {one["args"]["name"] for one in trace["traceEvents"] if one["name"] == "thread_name"}
    assert lanes == {f"rank {rank} {what}" for rank in "01" for what in ("computation", "network")}


@pytest.mark.slow
def test_a_plan_of_fsdp_runs_beside_fsdp2_s_default(folder: Path) -> None:
    run = f"run fsdp.json {BRIEFLY} 2"
    (said,) = commanded(1, folder, run, f"{run} --trace trace.json", ends=2)
    assert "mesh: planned for 2 ranks, got 1" in said[0]
    assert "--trace: not of FSDP2" in said[1]
    sections, _ = commanded(2, folder, f"{run} --against-ddp 2", f"{run} --json --against-ddp 1")
    text, told = (part.partition("made\n")[2] for part in sections)
    assert "summed up by: FSDP2" in text
    assert re.search(r"^step +\S+ \S+ +\S", text, flags=re.MULTILINE)
    assert re.search(r"^FSDP2 by default: .* in 2 alternating rounds", text, flags=re.MULTILINE)
    document = json.loads(told)
    check_printed("run", document)
    assert document["comparisons"][0]["predicted_ns"] > 0
    assert len(document["fsdp2_step_ns"]) == 2
    assert document["against_fsdp2"]["rounds"] == 1
    assert "against_ddp" not in document


@pytest.mark.slow
def test_a_plan_for_other_ranks_runs_with_a_warning(folder: Path) -> None:
    ((said,),) = commanded(1, folder, "run for_5.json --model my_model:make --steps 2")
    assert "planned for 5 ranks, run on 1: predictions are for 5" in said
    assert "my_model:make, 1 rank, 2 steps" in said


@pytest.mark.slow
@pytest.mark.parametrize("which", ["forward", "backward"])
def test_what_a_model_raises_ends_every_rank_with_one_line(folder: Path, which: str) -> None:
    command = f"run caramel.json --model my_model:{which} --timeout 20"
    outputs = [said for (said,) in commanded(2, folder, command, ends=2)]
    told = [json.loads((folder / f"error-{rank}.json").read_text()) for rank in (0, 1)]
    first, second = (error["message"]["message"] for error in told)
    said = f"the model's {which} pass failed: ZeroDivisionError: on purpose"
    assert second == f"planner: error: {said}"
    assert "rank 1 stopped: MeasurementError: " + said in first
    for rank, output in enumerate(outputs):
        assert "Traceback" not in output
        assert output.count(f"\nrank {rank}: planner: error: ") == 1


@pytest.mark.slow
def test_without_torch_it_says_what_to_install(folder: Path) -> None:
    code = (
        "import sys\nsys.modules['torch'] = None\nfrom planner.cli import main\n"
        "sys.exit(main(['run', 'caramel.json', '--model', 'my_model:make', '--threads', '1']))"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert "torch is needed here: pip install '.[torch]' in a clone" in found.stderr


def test_all_ranks_profile_and_the_first_writes_the_slowest(tmp_path: Path) -> None:
    model = "tests.cli.factories:counted --input 16 --batch-size 3"  # which counts its passes
    command = f"profile {model} --warmup 0 --repetitions 2 -o {{rank}}.json"
    _, (silent,) = commanded(2, tmp_path, command)
    assert not (tmp_path / "1.json").exists()
    profile = decode_profile((tmp_path / "0.json").read_bytes())
    assert any("measured by 2 ranks at the same time" in note for note in profile.provenance.notes)
    assert profile.graph is not None
    assert any("update" in op.name for op in profile.graph.ops)  # those of SGD, as in the job
    assert silent.replace("a model that talks\n", "") == ""


def test_a_rank_that_cannot_profile_ends_the_others(tmp_path: Path) -> None:
    command = "profile tests.cli.factories:failing_on_rank_1 --input 16"
    for (said,) in commanded(2, tmp_path, command, ends=2):
        assert "only here" in said
