"""DDP with the batches of a plan: its buckets, their order, and the weights it ends with."""

import inspect
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel import distributed as torch_ddp

import planner
from planner.families import caramel
from planner.formats.exporters.frameworks import ddp_settings, gradients_of, whole_names
from planner.jsonio.caramel import answer
from planner.model.costs import AffineCost
from planner.model.errors import (
    InvalidInputError,
    InvalidPlanError,
    NotApplicableError,
    PlannerError,
)
from planner.model.graphs import Graph
from planner.programs import (
    Batch,
    GradientProgram,
    Piece,
    Program,
    ShardProgram,
    SliceProgram,
    program_of,
)
from planner.runtime import ddp as module
from planner.runtime import follow_order
from planner.runtime.ddp import as_ddp, ddp_bucket_caps, ddp_buckets
from planner.runtime.world.world import World
from planner.solving.bucketing import DDP_LIMITS
from planner.solving.targets import target_of
from tests.profiling.models import Model
from tests.runtime.jobs import in_each_rank
from tests.runtime.launching import launch
from tests.runtime.plans import plan_of
from tests.runtime.reference import (
    STEPS,
    ddp_weights,
    largest_difference,
    make_model,
    measured,
    trained,
)

MODEL = "perceptron"

Names = Sequence[Sequence[str]]

CONSECUTIVE: Names = (
    ("last.bias",),
    ("second.bias", "last.weight"),
    ("second.weight", "norm.bias", "norm.weight", "first.bias"),
    ("first.weight",),
)
LATE_FIRST = tuple(CONSECUTIVE[number] for number in (2, 0, 3, 1))
"""Batches that DDP would send in another order."""


def planned(names: Names) -> GradientProgram:
    return GradientProgram(tuple(Batch(tuple(map(Piece, group))) for group in names))


def sets(groups: Names | None) -> list[set[str]]:
    return [set(group) for group in groups or ()]


def train(
    names: Names, optimizer: str, under_ddp: Callable[[nn.Module], DistributedDataParallel]
) -> None:
    """Compare the buckets of each step, what DDP reports of them, and the weights."""
    plain = ddp_weights(MODEL, optimizer)
    model = make_model(MODEL)
    with torch.no_grad():  # all start from the weights of rank 0
        for parameter in model.parameters():
            parameter.mul_(1 + distributed.get_rank())
    ddp = under_ddp(model)
    called = {parameter: name for name, parameter in model.named_parameters()}
    steps: list[list[set[str]]] = []

    def record(
        state: Any,
        bucket: distributed.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[Tensor]:
        steps[-1].append({called[parameter] for parameter in bucket.parameters()})
        return allreduce_hook(state, bucket)

    ddp.register_comm_hook(None, record)
    ddp.register_forward_pre_hook(lambda *_: steps.append([]))
    weights = trained(ddp, MODEL, optimizer)
    assert steps[1:] == [sets(names)] * (STEPS - 1)
    assert sets(ddp_buckets(ddp)) == sets(names)
    assert largest_difference(weights, plain) == 0


def for_ddp(startup: int) -> bytes:
    """Return a plan of a model in which every op takes about as long as a transfer."""
    graph, cost = measured(MODEL).dataflow(), AffineCost(startup, Fraction(1))
    ops = tuple(replace(op, duration_ns=900) for op in graph.ops)
    rules = target_of("ddp", "target")
    problem = caramel.Problem(Graph(ops, graph.parameters), cost, workers=2, target=rules)
    return msgspec.json.encode(answer(problem, caramel.solve(problem)))


@pytest.fixture
def plans() -> list[bytes]:
    made = [for_ddp(startup) for startup in (300, 1000)]
    for plan in made:
        assert 1 < len(gradients_of(plan)) < 8  # parameters
    return made


@pytest.mark.slow
@in_each_rank()
def test_buckets_are_the_batches_and_weights_those_of_ddp(world: World, plans: list[bytes]) -> None:
    group, program = distributed.new_group(), planned(CONSECUTIVE)
    train(CONSECUTIVE, "sgd", lambda model: as_ddp(model, program))
    train(CONSECUTIVE, "adam", lambda model: as_ddp(model, program, gradient_as_bucket_view=True))
    train(CONSECUTIVE, "adam", lambda model: as_ddp(model, program, process_group=group))
    for plan in plans:  # as somebody does who reads what is exported
        settings = ddp_settings(gradients_of(plan))
        caps = settings["bucket_cap_mb_list"]
        assert caps == ddp_bucket_caps(program_of(plan), make_model(MODEL))
        by_hand = partial(DistributedDataParallel, bucket_cap_mb_list=caps)
        train(settings["buckets"], "sgd", by_hand)


@in_each_rank(3)
def test_buckets_travel_in_the_order_of_the_plan_and_others_are_refused(world: World) -> None:
    model, program = make_model(MODEL), planned(LATE_FIRST)
    caps: Any = ddp_bucket_caps(planned(CONSECUTIVE), model)
    ddp, all_reduce, sent = as_ddp(model, program), distributed.all_reduce, list[int]()

    def noted(flat: Tensor, **options: Any) -> Any:
        sent.append(flat.numel())
        return all_reduce(flat, **options)

    with mock.patch.object(distributed, "all_reduce", noted):
        weights = trained(ddp, MODEL)
    order = [sum(model.get_parameter(name).numel() for name in group) for group in LATE_FIRST]
    assert len(set(order)) == len(order)
    assert sent[-len(order) * (STEPS - 1) :] == order * (STEPS - 1)
    # The same buckets: with three ranks the order of sums depends on where in one a gradient lies.
    other = DistributedDataParallel(make_model(MODEL), bucket_cap_mb_list=caps)
    assert largest_difference(weights, trained(other, MODEL)) == 0
    other = DistributedDataParallel(make_model(MODEL))
    follow_order(other, program)
    with pytest.raises(InvalidPlanError, match=r"bucket 0 of DDP is no batch of the plan"):
        trained(other, MODEL)


@in_each_rank()
def test_an_order_that_ddp_does_not_expect_is_noticed_on_all_ranks(world: World) -> None:
    """The model computes in another order than it is listed in."""
    layers = {name: nn.Linear(4, 4) for name in "abc"}
    model = Model(lambda m, inputs: m.b(m.a(m.c(inputs))), "", **layers)
    ddp = as_ddp(model, planned([[f"{name}.bias", f"{name}.weight"] for name in "cba"]))

    def steps() -> None:
        for _ in range(4):
            ddp(torch.ones(2, 4)).sum().backward()

    with pytest.raises(InvalidPlanError, match="in another order than it expects") as caught:
        steps()
    assert caught.value.path == "groups[0]"


def test_pushes_of_a_sharded_program_are_buckets_and_frozen_parameters_are_in_none() -> None:
    model = make_model(MODEL)
    program = ShardProgram.pushes_first(pulls=(), pushes=planned(CONSECUTIVE).batches)
    assert ddp_bucket_caps(program, model) == ddp_bucket_caps(planned(CONSECUTIVE), model)
    model.get_parameter("second.weight").requires_grad_(False)
    rest = [[name for name in group if name != "second.weight"] for group in CONSECUTIVE]
    assert len(ddp_bucket_caps(planned(rest), model)) == len(rest)
    with pytest.raises(InvalidPlanError, match=r"no trainable parameter second\.weight"):
        ddp_bucket_caps(planned(CONSECUTIVE), model)


def refused(
    error: type[PlannerError],
    message: str,
    program: Program,
    change: Callable[[nn.Module], object] = lambda _: None,
    **options: Any,
) -> str:
    """Return the path of the error."""
    model = make_model(MODEL)
    change(model)
    with pytest.raises(error, match=message) as caught:
        as_ddp(model, program, **options)
    return getattr(caught.value, "path", "")


def test_what_cannot_be_expressed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, no, wrong = planned(CONSECUTIVE), NotApplicableError, InvalidInputError
    halves = Piece("last.bias", 0, 8), Piece("last.bias", 8, 28)
    rest = Piece("last.bias", 0, None), Piece("last.bias", 28, None)
    for pieces, path in ((halves, "groups[0]"), (rest, "groups[1]")):
        program = GradientProgram((*(Batch((each,)) for each in pieces), *whole.batches[1:]))
        assert refused(no, "expected whole parameters", program) == path
    scattered = planned([[*CONSECUTIVE[0], *CONSECUTIVE[3]], *CONSECUTIVE[1:3]])
    refused(no, r"has first\.weight, which is not among the next 2", scattered)
    refused(no, "got one of bigdl", SliceProgram((), ()))
    refused(no, "one type of number", whole, lambda model: model.get_submodule("norm").double())
    refused(InvalidPlanError, r"first\.weight is not in the plan", planned(CONSECUTIVE[:-1]))
    for options in ({"bucket_cap_mb": 1}, {"find_unused_parameters": True}):
        assert [refused(wrong, "expected", whole, **options)] == [*options]
    with pytest.raises(wrong, match=r"ddp: expected DistributedDataParallel, got Perc"):
        follow_order(make_model(MODEL), whole)  # type: ignore[arg-type]

    class Older(nn.Module):
        def __init__(self, module: nn.Module, bucket_cap_mb: float | None = None) -> None:
            """Take no list."""

    monkeypatch.setattr(module, "DistributedDataParallel", Older)
    refused(PlannerError, "has no bucket_cap_mb_list", whole)


# ---
# The programs of the page on exports, run as they stand there.

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "exports.md"
KEPT: dict[str, object] = {}
"""What a program leaves; what uses a group must not be deleted after the group."""

COST = {"startup_ns": 10, "ns_per_byte": 0.01}
UNITS = {
    "problem": "fsdp",
    "forward_ns": [9, 9],
    "backward_ns": [18, 18],
    "parameter_bytes": [1248, 700],
    "layer_names": ["0", "2"],
    "meshes": [{"shards": 2, "all_gather": COST, "reduce_scatter": COST}],
}


def execute(program: str, folder: str) -> None:
    os.chdir(folder)
    exec(compile(program, str(PAGE), "exec"), KEPT)


def test_the_programs_of_the_page_run(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 7))
    plan = plan_of(model, torch.ones(4, 12), method="layer_by_layer")
    (tmp_path / "plan.json").write_bytes(plan)
    (tmp_path / "units.json").write_text(json.dumps(planner.solve(UNITS)))
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert ["as_ddp" in program for program in programs] == [True, False]
    for program in programs:
        for outcome in launch(execute, 2, program, str(tmp_path)):
            assert outcome.error is None, outcome.error.trace
            if "as_ddp" in program:
                buckets = eval(outcome.output.splitlines()[-1])
                assert sets(buckets) == sets(whole_names(gradients_of(plan)))


# ---
# The rules of DDP and FSDP2 stand where they are said to, in the torch that is installed.

RULES = tomllib.loads((DOCS / "target_rules.toml").read_text(encoding="utf-8"))
TORCH = Path(torch.__file__).parent
FOLDERS = {
    "c10d": TORCH / "include" / "torch" / "csrc" / "distributed",
    "nn": TORCH,
    "": TORCH / "distributed" / "fsdp" / "_fully_shard",
}
THERE = {
    ("ddp", "barrier"): "finalize_backward",
    ("ddp", "pieces"): "compute_bucket_assignment_by_size",
    ("ddp", "order"): "rebuild_buckets|push_rebuilt_params",
    ("ddp", "leaves"): "next_bucket_|mark_bucket_ready",
    ("ddp", "default"): "kDefaultFirstBucketBytes|kDefaultBucketBytesCap",
    ("ddp", "algorithms"): "all_reduce_bucket",
    ("ddp", "buckets"): "has_custom_per_bucket_caps",
    ("fsdp2", "barrier"): "wait_event|post_backward_final_callback",
    ("fsdp2", "pieces"): "module",
    ("fsdp2", "order"): "def pre_forward|def post_backward",
    ("fsdp2", "buckets"): "group",
    ("fsdp2", "leaves"): "def unshard",
    ("fsdp2", "default"): "module",
    ("fsdp2", "credited"): "reshard_after_forward",
    ("fsdp2", "algorithms"): "foreach_all_gather",
}


def lines(source: str) -> Iterator[str]:
    """Yield the lines a source names."""
    name, places = source.split(":")
    folder = FOLDERS[name.split("/")[0] if "/" in name else ""]
    text = (folder / name).read_text().splitlines()
    for place in places.split(","):
        first, _, last = place.partition("-")
        yield from text[int(first) - 1 : int(last or first)]


def test_rules_and_defaults_stand_where_they_are_said_to() -> None:
    first, others = DDP_LIMITS
    assert first == getattr(distributed, "_DEFAULT_FIRST_BUCKET_BYTES")  # noqa: B009 - not exported
    assert others == torch_ddp._DEFAULT_BUCKET_CAP_MB * 2**20
    assert "bucket_cap_mb_list" in inspect.signature(DistributedDataParallel).parameters
    rules = [(name, about, at) for name in ("ddp", "fsdp2") for about, _, at in RULES[name]]
    assert sorted(THERE) == sorted(rule[:2] for rule in rules)
    if not torch.__version__.startswith("2.13"):
        pytest.skip("rules were read in torch 2.13")
    for name, about, source in rules:
        assert any(re.search(THERE[name, about], line) for line in lines(source)), source
