"""``planner export``: plans of the command line as settings of other tools."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli import main
from planner.families.collectives.exchange import bml_program
from planner.families.collectives.recipes import Recipe, made
from planner.formats import write_msccl
from planner.formats.exporters.mscclpp import write_mscclpp
from planner.model.topologies import BCube
from tests.formats.test_exports import PULL, PUSH, SIZES, caramel
from tests.jsonio.test_iteration import REQUEST

PROFILE: dict[str, Any] = {
    "name": "tiny",
    "provenance": {"kind": "synthetic", "source": "a test"},
    "ops": [
        {"name": "a/forward", "ns": 1, "pass": "forward", "after": []},
        {"name": "b/forward", "ns": 1, "pass": "forward", "after": ["a/forward"]},
        {"name": "c/forward", "ns": 1, "pass": "forward", "after": ["b/forward"]},
        {"name": "c/backward", "ns": 1, "pass": "backward", "after": ["c/forward"]},
        {"name": "b/backward", "ns": 1, "pass": "backward", "after": ["c/backward"]},
        {"name": "a/backward", "ns": 1, "pass": "backward", "after": ["b/backward"]},
    ],
    "parameters": [
        {
            "name": name,
            "bytes": size,
            "updated_by": f"{name[0]}/backward",
            "read_by": f"{name[0]}/forward",
        }
        for name, size in SIZES.items()
    ],
}


def file(folder: Path, name: str, content: Any) -> str:
    path = folder / name
    path.write_text(json.dumps(content))
    return str(path)


def exported(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> dict[str, Any]:
    assert main(["export", *arguments]) == 0
    out, err = capfdbinary.readouterr()
    assert all(line.startswith(b"planner: by the rules of ") for line in err.splitlines())
    settings: dict[str, Any] = json.loads(out)
    return settings


def test_each_tool_gets_its_settings(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    answer = caramel()
    plan = file(tmp_path, "plan.json", answer)
    groups = [group["parameters"] for group in answer["groups"]]
    ddp = exported(capfdbinary, "ddp", plan)
    assert ddp["buckets"] == groups
    assert ddp["bucket_cap_mb_list"] == [group["bytes"] / 2**20 for group in answer["groups"]]
    assert exported(capfdbinary, "horovod", plan)["planner"]["groups"] == groups
    pull, push = file(tmp_path, "pull.json", PULL), file(tmp_path, "push.json", PUSH)
    assert exported(capfdbinary, "fsdp2", pull, push)["groups"] == [["a"], ["b"], ["c"]]
    assert len(exported(capfdbinary, "ddp", pull, push)["buckets"]) == 1


def test_deepspeed_fills_its_buckets_in_the_order_of_the_profile(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    plan = file(tmp_path, "push.json", PUSH)
    profile = file(tmp_path, "profile.json", PROFILE)
    settings = exported(capfdbinary, "deepspeed", plan, "--profile", profile)
    assert settings["zero_optimization"]["reduce_bucket_size"] == sum(SIZES.values()) // 4
    assert settings["planner"]["exact"] == [0]
    order = ["c.bias", "c.weight", "b.bias", "b.weight", "a.bias", "a.weight"]
    assert settings["planner"]["buckets"] == [order]
    halves = exported(capfdbinary, "deepspeed", plan, "--profile", profile, "--element-bytes", "2")
    assert halves["zero_optimization"]["reduce_bucket_size"] == sum(SIZES.values()) // 2


def test_settings_go_to_a_file(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    plan, out = file(tmp_path, "plan.json", caramel()), tmp_path / "out.json"
    assert main(["export", "horovod", plan, "-o", str(out)]) == 0
    assert capfdbinary.readouterr().out == b""
    assert json.loads(out.read_text())["params"]["fusion_threshold_mb"] == 1


def test_what_is_wrong_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, push = file(tmp_path, "plan.json", caramel()), file(tmp_path, "push.json", PUSH)
    unknown = file(tmp_path, "unknown.json", {**PROFILE, "parameters": PROFILE["parameters"][1:]})
    chain = file(
        tmp_path,
        "chain.json",
        {
            "name": "chain",
            "provenance": PROFILE["provenance"],
            "layers": [{"name": "l", "forward_ns": 1, "backward_ns": 1, "parameter_bytes": 4}],
        },
    )
    for arguments, message in (
        (
            ["fsdp2", plan],
            f"{plan}: problem: expected a plan of fsdp (planner plan --mode fsdp), of ibatch",
        ),
        (["fsdp2", push], "direction: expected a plan of ibatch to pull"),
        (["deepspeed", plan], "--profile: missing"),
        (["deepspeed", plan, "--profile", chain], f"{chain}: parameters: missing"),
        (
            ["deepspeed", push, "--profile", unknown],
            "error: --profile: has no parameter 'a.weight'",
        ),
        (["deepspeed", plan, "--element-bytes", "0"], "--element-bytes: expected an integer >= 1"),
        (["ddp", plan, plan, plan], "PLAN: expected one or two, got 3"),
        (["ddp", plan, "-o", str(tmp_path / "no" / "file")], "--output: no such folder"),
        (["ddp", str(tmp_path / "missing.json")], "missing.json"),
    ):
        assert main(["export", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_exporting_needs_no_torch(tmp_path: Path) -> None:
    plan = file(tmp_path, "plan.json", caramel())
    code = (
        "import sys; from planner.cli import main; main(['export', 'ddp', sys.argv[1]]);"
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, plan], capture_output=True, check=True)
    assert done.stderr.splitlines()[-1] == b"False"


def test_plans_of_a_shipped_profile(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = Path(__file__).parents[2] / "data" / "profiles" / "resnet50.json"
    document = json.loads(path.read_text())
    answer = planner.solve(
        {
            "problem": "caramel",
            "ops": document["ops"],
            "parameters": document["parameters"],
            "network": {"startup_ns": 100_000, "ns_per_byte": 0.8},
            "method": "ddp",
        }
    )
    plan = file(tmp_path, "plan.json", answer)
    settings = exported(capfdbinary, "deepspeed", plan, "--profile", str(path))
    sizes = {parameter["name"]: parameter["bytes"] // 4 for parameter in document["parameters"]}
    limit = settings["zero_optimization"]["reduce_bucket_size"]
    for bucket in settings["planner"]["buckets"]:
        assert sum(sizes[name] for name in bucket) <= limit or len(bucket) == 1


BCUBE = {"problem": "bml", "n": 2, "k": 2, "gradient_bytes": 400, "link_bytes_per_s": 5e9}


def test_a_plan_of_bml_becomes_an_algorithm_of_msccl(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    plan = file(tmp_path, "plan.json", planner.solve(BCUBE))
    assert main(["export", "msccl", plan]) == 0
    out, err = capfdbinary.readouterr()
    assert err == b""
    assert out.decode() == write_msccl(bml_program(BCube(2, 2)))


@pytest.mark.parametrize("tool", ["msccl", "mscclpp"])
@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "ps"])
def test_plans_of_iterations_become_algorithms(
    tool: str, algorithm: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    answer = planner.solve({**REQUEST, "modes": ["replicated"], "algorithms": [algorithm]})
    plan = file(tmp_path, "plan.json", answer)
    assert main(["export", tool, plan]) == 0
    out, err = capfdbinary.readouterr()
    assert err == b""
    program = made(Recipe("direct" if algorithm == "ps" else algorithm, (4,)))
    write = write_msccl if tool == "msccl" else write_mscclpp
    assert out.decode() == write(program)


SLICES = {
    "problem": "bigdl",
    "elements": 12,
    "element_bytes": 4,
    "nodes": 4,
    "partitions_per_node": 1,
    "link_bytes_per_s": 1e9,
}


@pytest.mark.parametrize("tool", ["msccl", "mscclpp"])
@pytest.mark.parametrize(
    ("answer", "path"),
    [
        (planner.solve({**REQUEST, "modes": ["sharded"]}), "synchronisation.mode"),
        (planner.solve({**SLICES, "elements": 13}), "program"),
        (planner.solve({**SLICES, "method": "reduce"}), "method"),
        (
            planner.solve({**BCUBE, "failed": {"nics": [[[0, 0], 0]]}, "with_plan": True}),
            "program",
        ),
    ],
)
def test_what_cannot_be_said_is_refused_with_its_reason(
    tool: str, answer: Any, path: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    plan = file(tmp_path, "plan.json", answer)
    assert main(["export", tool, plan]) == 2
    out, err = capfdbinary.readouterr()
    assert out == b""
    assert err.decode().startswith(f"planner: error: {plan}: {path}: ")
    assert main(["export", tool, file(tmp_path, "slices.json", planner.solve(SLICES))]) == 0
    capfdbinary.readouterr()
    assert main(["export", tool, plan, plan]) == 2
    assert capfdbinary.readouterr().err == b"planner: error: PLAN: expected one, got 2\n"


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        (planner.solve({**BCUBE, "failed": {"nics": [[[0, 0], 0]]}}), "plan"),
        (caramel(), "problem"),
        ({**planner.solve(BCUBE), "objective_ns": 1}, "lower_bound_ns"),
    ],
)
def test_what_leaves_open_how_to_sum_up_is_not_written_for_msccl(
    answer: Any, path: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    plan = file(tmp_path, "plan.json", answer)
    assert main(["export", "msccl", plan]) == 2
    out, err = capfdbinary.readouterr()
    assert out == b""
    assert err.decode().startswith(f"planner: error: {plan}: {path}: ")
