"""``planner export``: plans as settings of other tools, and plans for targets."""

from typing import Any

import pytest

import planner
from planner.solving.targets import TARGETS, to_apply
from tests.cli.documents import BML, PROVENANCE
from tests.cli.line import Line, read, write
from tests.formats.test_exports import GRAPH, PULL, PUSH, SIZES, caramel
from tests.jsonio.test_iteration import REQUEST
from tests.jsonio.test_plan_files import BIGDL

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
        assert settings["planner"]["exact"] == [0]
        assert settings["planner"]["buckets"] == [list(SIZES)[::-1]]


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


def test_what_cannot_be_said_is_refused_with_its_reason(line: Line) -> None:
    failed = {**BML, "n": 2, "failed": {"nics": [[[0, 0], 0]]}}
    slices = {**BIGDL, "elements": 12, "nodes": 4, "partitions_per_node": 1}
    for name, request, path in (
        ("sharded.json", {**REQUEST, "modes": ["sharded"]}, "synchronisation.mode"),
        ("uneven.json", {**slices, "elements": 13}, "program"),
        ("driver.json", {**slices, "method": "reduce"}, "method"),
        ("around.json", failed, "plan"),
        ("listed.json", {**failed, "with_plan": True}, "program"),
        ("slices.json", slices, ""),
    ):
        write(name, planner.solve(request))
        for tool in ("msccl", "mscclpp"):
            if path:
                error = line.error(f"export {tool} {name}")
                assert error.startswith(f"planner: error: {name}: {path}: ")
            else:
                line(f"export {tool} {name}")


RESNET50 = "data/profiles/resnet50.json"
CARAMEL = f"compare {RESNET50} --problem caramel --startup 2500us --bandwidth 500Mb/s --workers 8"


def test_a_plan_that_only_looks_faster_than_ddp_is_refused(line: Line) -> None:
    line(CARAMEL, "-o p.json")
    answer = read("p.json")
    assert round(answer["iteration_ns"] / 1e9, 3) == 3.798
    ddp = answer["targets"]["ddp"]
    assert round(ddp["default_ns"] / 1e9, 3) == 4.235
    assert round(ddp["plan_ns"] / 1e9, 3) == 4.823
    error = line.error("export ddp p.json")
    for said in ("its default 4.235 s", "plan for it (--for ddp)", "--anyway"):
        assert said in error
    anyway = line("export ddp p.json --anyway")
    assert len(anyway.json["buckets"]) == len(answer["groups"])
    assert "its default 4.235 s" in anyway.err


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_plan_for_a_target_is_exported_as_it_is(name: str, line: Line) -> None:
    table = line(CARAMEL, f"--for {name} -o p.json").out
    answer = read("p.json")
    assert f"the default of {TARGETS[name].title}" in table
    keep = f"keep the default of {TARGETS[name].title}" in table
    assert (f"planner export {name} p.json -o {name}.json" in table) == (not keep)
    assert keep == (name in ("ddp", "horovod"))
    assert answer["target"]["name"] == name
    priced = answer["targets"][name]
    assert priced["plan_ns"] == answer["iteration_ns"] <= priced["default_ns"]
    assert answer["barrier"]
    told = line(f"export {name} p.json")
    for lines in to_apply(TARGETS[name], "p.json", f"{name}.json").values():
        assert "\n".join(lines) in told.err
    groups = [set(group["parameters"]) for group in answer["groups"]]
    settings = told.json
    if name in ("deepspeed", "megatron"):
        made = settings["planner"]["buckets"]
        assert settings["planner"]["exact"] == list(range(len(groups)))
    else:
        made = settings["buckets"] if name == "ddp" else settings["planner"]["groups"]
    assert sorted(map(sorted, made)) == sorted(map(sorted, groups))


def test_a_plan_that_cuts_parameters_is_told_how_to_be_made(line: Line) -> None:
    options = "--cluster bml-bcube --computation 0.05 -o p.json"
    line("plan data/profiles/vgg19_22k.json", options)
    error = line.error("export ddp p.json")
    assert "whole parameters, the plan cuts some: plan for it (--for ddp)" in error
    said = line("plan data/profiles/vgg19_22k.json --for ddp", options).out
    assert "the default of DistributedDataParallel" in said
    line("export ddp p.json")


def test_pulls_for_fsdp2_are_compared_and_exported(line: Line) -> None:
    link = "--startup 100us --bandwidth 10Gb/s"
    command = f"compare data/profiles/vgg19.json {link} --for fsdp2 --regret -o p.json"
    assert "FSDP2" in line(command).out
    answer = read("p.json")
    assert answer["target"]["name"] == "fsdp2"
    priced = answer["targets"]["fsdp2"]
    assert priced["plan_ns"] == answer["makespan_ns"] <= priced["default_ns"]
    assert len(answer["regret"]) == 7
    told = line("export fsdp2 p.json")
    assert "by the rules of FSDP2 this plan takes" in told.err
    assert len(told.json["groups"]) == len(answer["batches"])


def test_without_a_cluster_a_plan_for_ddp_is_that_of_compare(line: Line) -> None:
    write("net.json", {"startup_ns": 2_500_000, "ns_per_byte": 28})
    options = "--for ddp --network net.json --json"
    first = line(f"compare {RESNET50} --problem caramel", options).json[0]
    planned = line(f"plan {RESNET50} --method buckets", options).json
    assert planned["groups"] == first["groups"]
    assert (planned["target"], planned["method"]) == (first["target"], "buckets")


def test_a_plan_for_fsdp2_says_whether_it_is_worth_setting_and_how(line: Line) -> None:
    for options, verdict in (
        ("lenet5.json --cluster a100dgx-2", "keep the default of FSDP2, a unit a layer"),
        ("gpt2_small.json --cluster caramel-8 --computation 0.02", "worth setting: 1.49× as fast "),
    ):
        said = line(f"plan --for fsdp2 data/profiles/{options}").out
        assert verdict in said
        pasted = "planner export fsdp2 plan.json -o fsdp2.json" in said
        assert pasted == verdict.startswith("worth")
