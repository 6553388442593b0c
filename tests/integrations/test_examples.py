"""The scripts in `examples`, as a user starts them, on two ranks of this machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
NEEDS = {
    "ddp": None,
    "tune": None,
    "fsdp2": None,
    "accelerate": "accelerate",
    "lightning": "lightning",
    "ray": "ray",
    "transformers": "transformers",
}
PRINTED = re.compile(r"\S+: ([\d.]+) m?s a step; as planned: ([\d.]+) m?s|keep DDP")


def test_all_examples_are_run() -> None:
    scripts = {path.stem for path in (ROOT / "examples").glob("with_*.py")}
    assert scripts == {f"with_{name}" for name in NEEDS}


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
def test_an_example_trains_both_ways(name: str, tmp_path: Path) -> None:
    package = NEEDS[name]
    if package is not None:
        pytest.importorskip(package, reason="needs the extra `integrations`")
    script = str(ROOT / "examples" / f"with_{name}.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", script]
    if name == "ray":
        command = [sys.executable, script, "--storage", str(tmp_path)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    ran = subprocess.run(
        [*command, "--steps", "6"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert PRINTED.search(ran.stdout), ran.stdout[-4000:]
