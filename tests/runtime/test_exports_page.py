"""The programs of the page on exports, run as they stand there."""

import json
import os
import re
from pathlib import Path

import pytest

import planner
from tests.runtime.launching import launch

PAGE = Path(__file__).parents[2] / "docs" / "exports.md"
KEPT: dict[str, object] = {}
"""What a program leaves; what uses a group must not be deleted after the group."""

LAYERS = {"0": (1152, 96), "2": (672, 28)}
UNITS = {
    "problem": "fsdp",
    "forward_ns": [9, 9],
    "backward_ns": [18, 18],
    "parameter_bytes": [1248, 700],
    "layer_names": ["0", "2"],
    "meshes": [
        {
            "shards": 2,
            "all_gather": {"startup_ns": 10, "ns_per_byte": 0.01},
            "reduce_scatter": {"startup_ns": 10, "ns_per_byte": 0.01},
        }
    ],
}
CARAMEL = {
    "problem": "caramel",
    "ops": [
        {"name": "f0", "ns": 9, "pass": "forward", "after": []},
        {"name": "f2", "ns": 9, "pass": "forward", "after": ["f0"]},
        {"name": "b2", "ns": 9, "pass": "backward", "after": ["f2"]},
        {"name": "b0", "ns": 9, "pass": "backward", "after": ["b2"]},
    ],
    "parameters": [
        {
            "name": f"{layer}.{what}",
            "bytes": size,
            "updated_by": f"b{layer}",
            "read_by": f"f{layer}",
        }
        for layer, sizes in LAYERS.items()
        for what, size in zip(("weight", "bias"), sizes, strict=True)
    ],
    "network": {"startup_ns": 10, "ns_per_byte": 0.01},
    "method": "layer_by_layer",
}


def execute(program: str, folder: str) -> None:
    os.chdir(folder)
    exec(compile(program, str(PAGE), "exec"), KEPT)


@pytest.mark.parametrize("changes", [{}, {"method": "auto", "target": "ddp"}])
def test_the_programs_run(changes: dict[str, str], tmp_path: Path) -> None:
    plan = planner.solve({**CARAMEL, **changes})
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "units.json").write_text(json.dumps(planner.solve(UNITS)))
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(programs) == 2
    for program in programs:
        for outcome in launch(execute, 2, program, str(tmp_path)):
            assert outcome.error is None, outcome.error.trace
            if "as_ddp" in program:
                buckets = eval(outcome.output.splitlines()[-1])
                groups = [set(group["parameters"]) for group in plan["groups"]]
                assert [set(bucket) for bucket in buckets] == groups
