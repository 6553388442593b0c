"""``planner export``: plans of the command line as settings of other tools."""

from typing import Any

import pytest

import planner
from tests.cli.documents import BML, PROVENANCE
from tests.cli.line import Line, read, write
from tests.formats.test_exports import GRAPH, PULL, PUSH, SIZES, caramel
from tests.jsonio.test_iteration import REQUEST
from tests.jsonio.test_plan_files import BIGDL

ORDER = list(SIZES)[::-1]
PROFILE = {"name": "tiny", "provenance": PROVENANCE, **GRAPH}


@pytest.fixture(autouse=True)
def _files(line: Line) -> None:
    write("plan.json", caramel())
    write("pull.json", PULL)
    write("push.json", PUSH)
    write("profile.json", PROFILE)
    write("unknown.json", {**PROFILE, "parameters": GRAPH["parameters"][1:]})


def exported(line: Line, words: str) -> dict[str, Any]:
    said = line("export", words)
    assert all(row.startswith("planner: by the rules of ") for row in said.err.splitlines())
    settings: dict[str, Any] = said.json
    return settings


def test_each_tool_gets_its_settings(line: Line) -> None:
    groups = read("plan.json")["groups"]
    names = [group["parameters"] for group in groups]
    ddp = exported(line, "ddp plan.json")
    assert ddp["buckets"] == names
    assert ddp["bucket_cap_mb_list"] == [group["bytes"] / 2**20 for group in groups]
    assert exported(line, "horovod plan.json")["planner"]["groups"] == names
    assert exported(line, "fsdp2 pull.json push.json")["groups"] == [["a"], ["b"], ["c"]]
    assert len(exported(line, "ddp pull.json push.json")["buckets"]) == 1
    assert line("export horovod plan.json -o out.json").out == ""
    assert read("out.json")["params"]["fusion_threshold_mb"] == 1


def test_deepspeed_fills_its_buckets_in_the_order_of_the_profile(line: Line) -> None:
    for options, element in (("", 4), ("--element-bytes 2", 2)):
        settings = exported(line, f"deepspeed push.json --profile profile.json {options}")
        size = settings["zero_optimization"]["reduce_bucket_size"]
        assert size == sum(SIZES.values()) // element
        assert (settings["planner"]["exact"], settings["planner"]["buckets"]) == ([0], [ORDER])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("fsdp2 plan.json", "plan.json: problem: expected a plan of fsdp (planner plan --mode fsd"),
        ("fsdp2 push.json", "direction: expected a plan of ibatch to pull"),
        ("deepspeed plan.json", "--profile: missing"),
        ("deepspeed plan.json --profile tiny.json", "tiny.json: parameters: missing"),
        ("deepspeed push.json --profile unknown.json", "--profile: has no parameter 'a.weight'"),
        ("deepspeed plan.json --element-bytes 0", "--element-bytes: expected an integer >= 1"),
        ("ddp plan.json plan.json plan.json", "PLAN: expected one or two, got 3"),
        ("msccl plan.json plan.json", "PLAN: expected one, got 2"),
    ],
)
def test_what_is_wrong_is_said(words: str, said: str, line: Line) -> None:
    assert said in line.error("export", words)


FAILED = {**BML, "n": 2, "failed": {"nics": [[[0, 0], 0]]}}


def test_what_cannot_be_said_is_refused_with_its_reason(line: Line) -> None:
    slices = {**BIGDL, "elements": 12, "nodes": 4, "partitions_per_node": 1}
    for name, request, path in (
        ("sharded.json", {**REQUEST, "modes": ["sharded"]}, "synchronisation.mode"),
        ("uneven.json", {**slices, "elements": 13}, "program"),
        ("driver.json", {**slices, "method": "reduce"}, "method"),
        ("around.json", FAILED, "plan"),
        ("listed.json", {**FAILED, "with_plan": True}, "program"),
        ("slices.json", slices, ""),
    ):
        write(name, planner.solve(request))
        for tool in ("msccl", "mscclpp"):
            if path:
                error = line.error(f"export {tool} {name}")
                assert error.startswith(f"planner: error: {name}: {path}: ")
            else:
                line(f"export {tool} {name}")
