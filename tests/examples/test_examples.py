"""The scripts in `examples`, as a user starts them, on two ranks of this machine."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from torch import Tensor, nn

from planner.runtime.measuring import contention
from tests.cli.documents import ROOT
from tests.runtime.launching import launch
from tests.runtime.plans import plan_of

MADE_HERE = ("ddp", "accelerate", "lightning", "ray")
"""Those that are given a plan; the others measure and plan themselves, which takes seconds."""
NEEDS = {"ddp": None, "tune": None, "fsdp2": None} | {
    name: name for name in ("accelerate", "lightning", "ray", "transformers")
}
LAUNCHED_HERE = ("tune", "fsdp2")
PRINTED = re.compile(r"\S+: ([\d.]+) m?s a step; as planned: ([\d.]+) m?s|keep DDP")


def test_all_examples_are_run() -> None:
    scripts = {path.stem for path in (ROOT / "examples").glob("with_*.py")}
    assert scripts == {f"with_{name}" for name in NEEDS}


class Layers(nn.Module):
    """Names parameters as the example of Lightning does."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, inputs: Tensor) -> Any:
        return self.layers(inputs)


@pytest.fixture(scope="module")
def plans() -> dict[bool, bytes]:
    """Make plans of what the examples train, without and with Lightning around it."""
    sys.path.append(str(ROOT / "examples"))
    from example_job import make_batches, make_model

    model, (inputs, _) = make_model(), make_batches(0, 1)[0]
    return {
        wrapped: plan_of(Layers(model) if wrapped else model, inputs, method="layer_by_layer")
        for wrapped in (False, True)
    }


def printed_by(command: list[str], folder: Path, **more: str) -> str:
    """Start an example as a process, and return its standard output."""
    ran = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}", **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
    return ran.stdout


def run_script(script: str, folder: str) -> None:
    """Run a script as one of its ranks; what it times together with computation, briefly."""
    contention.SAMPLE_S = 0.02
    os.chdir(folder)
    sys.path.insert(0, str(Path(script).parent))
    sys.argv = [script, "--steps", "6"]
    runpy.run_path(script, run_name="__main__")


@pytest.mark.slow
@pytest.mark.pages
@pytest.mark.parametrize("name", LAUNCHED_HERE)
def test_an_example_that_plans_itself_trains_both_ways(name: str, tmp_path: Path) -> None:
    """Started by the launcher of the tests, which has imported torch; `ddp` is by torchrun."""
    script = str(ROOT / "examples" / f"with_{name}.py")
    first, second = launch(run_script, 2, script, str(tmp_path), timeout_s=200)
    for outcome in (first, second):
        assert outcome.exit_code == 0, outcome.output[-4000:]
    assert PRINTED.search(first.output), first.output[-4000:]


@pytest.mark.slow
@pytest.mark.pages
@pytest.mark.parametrize("name", [name for name in NEEDS if name not in LAUNCHED_HERE])
def test_an_example_trains_both_ways(name: str, plans: dict[bool, bytes], tmp_path: Path) -> None:
    package = NEEDS[name]
    if package is not None:
        pytest.importorskip(package, reason="needs the extra `examples`")
    script = str(ROOT / "examples" / f"with_{name}.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", script]
    if name == "ray":
        command = [sys.executable, script, "--storage", str(tmp_path)]
    if name in MADE_HERE:
        plan = tmp_path / "plan.json"
        plan.write_bytes(plans[name == "lightning"])
        command += ["--plan", str(plan)]
    environment = {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    printed = printed_by([*command, "--steps", "6"], tmp_path, **environment)
    assert PRINTED.search(printed), printed[-4000:]


@pytest.mark.slow
@pytest.mark.pages
@pytest.mark.parametrize("name", ["drizzle_group", "bigdl_slices"])
def test_an_example_runs_a_plan_on_spark(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs the extra `examples`")
    if shutil.which("java") is None:
        pytest.skip("needs Java 17")
    script = str(ROOT / "examples" / "spark" / f"{name}.py")
    printed = printed_by([sys.executable, script], tmp_path)
    assert re.search(r"predicted [\d.]+ ms.*, measured [\d.]+ ms", printed), printed[-4000:]


@pytest.mark.slow
@pytest.mark.pages
@pytest.mark.parametrize(("name", "package"), [("requests", None), ("on_dask", "distributed")])
def test_an_example_answers_many_requests(name: str, package: str | None, tmp_path: Path) -> None:
    if package is not None:
        pytest.importorskip(package, reason="needs the extra `examples`")
    printed = printed_by([sys.executable, str(ROOT / "examples" / f"many_{name}.py")], tmp_path)
    rows = re.findall(r"^([\d.]+) Gb/s: ", printed, re.MULTILINE)
    assert [float(rate) for rate in rows] == [2.0**power for power in range(8)]
