"""Plans for targets on the command line, and what becomes of other plans that are exported."""

from typing import Any

import pytest

from planner.solving.targets import TARGETS, to_apply
from tests.cli.line import Line, Said, read, write

RESNET50 = "data/profiles/resnet50.json"
CARAMEL = f"compare {RESNET50} --problem caramel --startup 2500us --bandwidth 500Mb/s --workers 8"


def compared(line: Line, options: str = "") -> tuple[Said, Any]:
    said = line(CARAMEL, options, "-o p.json")
    return said, read("p.json")


def test_a_plan_that_only_looks_faster_than_ddp_is_refused(line: Line) -> None:
    _, answer = compared(line)
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
    (table, _), answer = compared(line, f"--for {name}")
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
