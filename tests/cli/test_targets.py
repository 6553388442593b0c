"""Plans for targets on the command line, and what becomes of other plans that are exported."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.families.caramel import Problem, evaluate, solve
from planner.families.caramel.baselines import unordered
from planner.families.caramel.for_target import exported
from planner.jsonio import decode_profile
from planner.jsonio.caramel import CaramelAnswer
from planner.model.clusters import Nic
from planner.programs import read_plan
from planner.solving.bucketing import ddp_buckets
from planner.solving.deadline import NEVER
from planner.solving.targets import TARGETS, to_apply

ROOT = Path(__file__).parents[2]
RESNET50 = str(ROOT / "data" / "profiles" / "resnet50.json")
NETWORK = ("--workers", "8", "--startup", "2500us", "--bandwidth", "500Mb/s")


def compared(folder: Path, *options: str) -> tuple[str, dict[str, Any]]:
    plan = folder / "p.json"
    command = ["compare", RESNET50, "--problem", "caramel", *NETWORK]
    assert main([*command, *options, "-o", str(plan)]) == 0
    answer: dict[str, Any] = json.loads(plan.read_text())
    return str(plan), answer


def test_a_plan_that_only_looks_faster_than_ddp_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, answer = compared(tmp_path)
    capsys.readouterr()
    assert round(answer["iteration_ns"] / 1e9, 3) == 3.798
    ddp = answer["targets"]["ddp"]
    assert round(ddp["default_ns"] / 1e9, 3) == 4.235
    assert ddp["plan_ns"] > 1.1 * ddp["default_ns"]
    assert main(["export", "ddp", plan]) == 2
    told = capsys.readouterr()
    assert not told.out
    for said in ("its default 4.235 s", "plan for it (--for ddp)", "--anyway"):
        assert said in told.err
    assert main(["export", "ddp", plan, "--anyway"]) == 0
    written = capsys.readouterr()
    assert len(json.loads(written.out)["buckets"]) == len(answer["groups"])
    assert "its default 4.235 s" in written.err


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_plan_for_a_target_is_exported_as_it_is(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, answer = compared(tmp_path, "--for", name)
    table = capsys.readouterr().out
    assert f"the default of {TARGETS[name].title}" in table
    keep = f"keep the default of {TARGETS[name].title}" in table
    assert (f"planner export {name} {plan} -o {name}.json" in table) == (not keep)
    assert keep == (name in ("ddp", "horovod"))
    assert answer["target"]["name"] == name
    priced = answer["targets"][name]
    assert priced["plan_ns"] == answer["iteration_ns"] <= priced["default_ns"]
    assert answer["barrier"]
    assert main(["export", name, plan]) == 0
    told = capsys.readouterr()
    file = f"{name}.json"
    for lines in to_apply(TARGETS[name], plan, file).values():
        assert "\n".join(lines) in told.err
    settings = json.loads(told.out)
    groups = [set(group["parameters"]) for group in answer["groups"]]
    if name in ("deepspeed", "megatron"):
        made = settings["planner"]["buckets"]
        assert settings["planner"]["exact"] == list(range(len(groups)))
    else:
        made = settings["buckets"] if name == "ddp" else settings["planner"]["groups"]
    assert sorted(map(sorted, made)) == sorted(map(sorted, groups))


def test_ddp_s_limits_make_the_buckets_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, answer = compared(tmp_path, "--for", "ddp")
    capsys.readouterr()
    assert main(["export", "ddp", plan]) == 0
    limits = [int(cap * 2**20) for cap in json.loads(capsys.readouterr().out)["bucket_cap_mb_list"]]
    rest = [
        answer["parameter_bytes"][parameter]
        for row in answer["groups"]
        for parameter in row["parameters"]
    ]
    for limit, group in zip(limits, answer["groups"], strict=True):
        count = ddp_buckets(rest, limit, limit)[0]
        assert count == len(group["parameters"])
        rest = rest[count:]
    assert not rest


def test_prices_under_the_rules_are_those_of_the_evaluation(tmp_path: Path) -> None:
    path, answer = compared(tmp_path)
    profile = decode_profile(Path(RESNET50).read_bytes())
    problem = Problem.from_profile(profile, Nic(Fraction(500_000_000, 8), 2_500_000), workers=8)
    read = read_plan(Path(path).read_bytes())
    assert isinstance(read, CaramelAnswer)
    plan = solve(problem).plan
    assert plan is not None
    lanes = unordered(problem, NEVER)
    there = type(plan)(plan.groups, lanes.backward_orders, lanes.forward_order, barrier=True)
    priced = exported(problem, plan, NEVER)
    assert priced["ddp"].plan_ns == evaluate(problem, there).iteration_ns
    assert priced["ddp"].plan_ns == answer["targets"]["ddp"]["plan_ns"]
    default = solve(problem, method="ddp").objective_ns
    assert priced["ddp"].default_ns == default == answer["targets"]["ddp"]["default_ns"]


def test_a_plan_that_cuts_parameters_is_told_how_to_be_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(tmp_path / "p.json")
    profile = str(ROOT / "data" / "profiles" / "vgg19_22k.json")
    command = ["plan", profile, "--cluster", "bml-bcube", "--computation", "0.05", "-o", plan]
    assert main(command) == 0
    assert main(["export", "ddp", plan]) == 2
    assert (
        "whole parameters, the plan cuts some: plan for it (--for ddp)" in capsys.readouterr().err
    )
    assert main([*command, "--for", "ddp"]) == 0
    assert "the default of DistributedDataParallel" in capsys.readouterr().out
    assert main(["export", "ddp", plan]) == 0


def test_names_of_targets_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compare", RESNET50, "--problem", "caramel", *NETWORK, "--for", "dpp"])
    assert "invalid choice: 'dpp'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["plan", RESNET50, "--cluster", "caramel-16", "--for", "dpp"])


def test_pulls_for_fsdp2_are_compared_and_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(tmp_path / "p.json")
    profile = str(ROOT / "data" / "profiles" / "vgg19.json")
    command = ["compare", profile, "--startup", "100us", "--bandwidth", "10Gb/s"]
    assert main([*command, "--for", "fsdp2", "--regret", "-o", plan]) == 0
    table = capsys.readouterr().out
    assert "FSDP2" in table
    answer = json.loads(Path(plan).read_text())
    assert answer["target"]["name"] == "fsdp2"
    priced = answer["targets"]["fsdp2"]
    assert priced["plan_ns"] == answer["makespan_ns"] <= priced["default_ns"]
    assert len(answer["regret"]) == 7
    assert main(["export", "fsdp2", plan]) == 0
    told = capsys.readouterr()
    assert "by the rules of FSDP2 this plan takes" in told.err
    assert len(json.loads(told.out)["groups"]) == len(answer["batches"])
    for wrong, said in (
        (["--for", "ddp"], "pulls no parameters"),
        (["--for", "fsdp2", "--direction", "push"], "in the units that it gathers"),
        (["--problem", "caramel", "--for", "fsdp2"], "--for: FSDP2 shards parameters"),
    ):
        assert main([*command, *wrong]) == 2
        assert said in capsys.readouterr().err


def test_a_slow_pull_plan_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(tmp_path / "p.json")
    profile = str(ROOT / "data" / "profiles" / "resnet50.json")
    command = ["compare", profile, "--startup", "100ms", "--bandwidth", "10Gb/s"]
    assert main([*command, "--methods", "layer_by_layer", "-o", plan]) == 0
    assert main(["export", "fsdp2", plan]) == 2
    assert "plan for it (--for fsdp2)" in capsys.readouterr().err
    assert main(["export", "fsdp2", plan, "--anyway"]) == 0


def test_without_a_cluster_a_plan_for_ddp_is_that_of_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.json").write_text('{"startup_ns": 2500000, "ns_per_byte": 28}')
    shared = ["--for", "ddp", "--network", str(tmp_path / "net.json"), "--json"]
    assert main(["compare", RESNET50, "--problem", "caramel", *shared]) == 0
    (first, *_) = json.loads(capsys.readouterr().out)
    assert main(["plan", RESNET50, *shared, "--method", "buckets"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["groups"] == first["groups"]
    assert (planned["target"], planned["method"]) == (first["target"], "buckets")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--for", "ddp"], "--cluster: missing: where the model trains, or --network alone"),
        (["--for", "fsdp2", "--network", "x"], "--cluster: missing: where the model trains"),
        (["--network", "x", "--mode", "sharded"], "--mode: only together with --cluster"),
    ],
)
def test_what_a_network_alone_does_not_tell_is_asked_for(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", RESNET50, *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("profile", "cluster", "verdict", "pasted"),
    [
        ("vgg19", "a100dgx-2", "keep the default of FSDP2, a unit a layer", False),
        ("gpt2_small", "caramel-8", "worth setting: 1.49× as fast as the default of FSDP2", True),
    ],
)
def test_a_plan_for_fsdp2_says_whether_it_is_worth_setting_and_how(
    capsys: pytest.CaptureFixture[str], profile: str, cluster: str, verdict: str, pasted: bool
) -> None:
    path = ROOT / "data" / "profiles" / f"{profile}.json"
    scale = () if profile == "vgg19" else ("--computation", "0.02")
    assert main(["plan", str(path), "--cluster", cluster, "--for", "fsdp2", *scale]) == 0
    said = capsys.readouterr().out
    assert verdict in said
    assert ("planner export fsdp2 plan.json -o fsdp2.json" in said) == pasted
