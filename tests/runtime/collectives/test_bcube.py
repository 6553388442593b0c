"""BML executed over gloo: its sums are exact, and training with it is that of DDP."""

import os
from fractions import Fraction
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

from planner.families import bml
from planner.jsonio import solve
from planner.model.errors import InvalidInputError, PlannerError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.programs import Batch, GradientProgram, Piece
from planner.runtime.collectives.interpreter import BcubeAllReduce
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.world.joining import join
from tests.runtime.launching import errors, launch, values
from tests.runtime.reference import (
    ddp_weights,
    largest_difference,
    make_model,
    make_optimizer,
    take_steps,
    weights_of,
)
from tests.thorough import THOROUGH

SIZES = (0, 1, 2, 3, 7, 16, 17, 64, 1001, 20_011, 300_011)
TIMEOUT_S = 20.0


def integers(rank: int, size: int) -> Tensor:
    draw = torch.Generator().manual_seed(1000 * rank + size)
    return torch.randint(-(2**40), 2**40, (size,), generator=draw)


def floats(rank: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank))


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def sums(n: int, k: int) -> tuple[str, list[bytes]]:
    """Sum up tensors of many kinds; `test_interpreter` has all sizes and networks."""
    world = join(TIMEOUT_S)
    ranks = range(world.size)
    bcube = BcubeAllReduce(world, n, k)
    messages = []
    exact = torch.stack([floats(rank, 5, 67).double() for rank in ranks]).sum(0)
    for _ in range(2):
        tensor = floats(world.rank, 5, 67)
        assert bcube.all_reduce(tensor) is tensor
        assert torch.allclose(tensor.double(), exact, rtol=1e-6, atol=1e-5)
        messages.append(bits(tensor))
    assert messages[0] == messages[1]

    across = floats(world.rank, 67, 5).t()
    bcube.all_reduce(across)
    assert across.shape == (5, 67)
    single = torch.stack([floats(rank, 67, 5).t().double() for rank in ranks]).sum(0)
    assert torch.allclose(across.double(), single, rtol=1e-6, atol=1e-5)

    half = floats(world.rank, 100).bfloat16()
    bcube.all_reduce(half)
    rounded = torch.stack([floats(rank, 100).bfloat16().double() for rank in ranks]).sum(0)
    assert torch.allclose(half.double(), rounded, rtol=0.05, atol=0.2)
    messages.append(bits(half))

    leaf = nn.Parameter(torch.tensor(float(world.rank)))
    bcube.all_reduce(leaf)
    assert leaf.item() == sum(ranks)
    for dtype in (torch.int32, torch.uint8):
        plain = torch.arange(10).to(dtype)
        bcube.all_reduce(plain)
        assert torch.equal(plain, (world.size * torch.arange(10)).to(dtype))
    with torch.inference_mode():
        inside = torch.ones(3)
        bcube.all_reduce(inside)
    assert inside.tolist() == [world.size] * 3

    bcube.close()
    world.leave()
    return bcube.name, messages


@pytest.mark.slow
def test_sums_are_exact_and_the_same_everywhere() -> None:
    results = values(launch(sums, 4, 2, 2))
    assert all(result == results[0] for result in results)
    assert results[0][0] == "bml(2, 2)"


def train(n: int, k: int) -> float:
    """Train by batches that cut a parameter; return how far DDP is."""
    program = GradientProgram(
        (
            Batch((Piece("last.bias"), Piece("last.weight", 0, 400))),
            Batch((Piece("last.weight", 400), Piece("norm.bias"), Piece("norm.weight"))),
            Batch(tuple(Piece(f"{name}.weight") for name in ("second", "first")), depth=2),
            Batch(tuple(Piece(f"{name}.bias") for name in ("second", "first"))),
        )
    )
    with join(TIMEOUT_S) as world:
        bcube = BcubeAllReduce(world, n, k)
        model = make_model("perceptron")
        optimizer = make_optimizer("sgd", model)
        with GradientExecutor(model, program, optimizer, world, all_reduce=bcube) as executor:
            take_steps(executor, "perceptron", world.rank)
        bcube.close()
        return largest_difference(weights_of(model), ddp_weights("perceptron"))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 1), (2, 2)])
def test_training_is_that_of_ddp(n: int, k: int) -> None:
    assert max(values(launch(train, n**k, n, k))) < 1e-6


FAILED: dict[str, dict[str, Any]] = {
    "nic": {"nics": [[[0, 1], 0]]},
    "switch": {"switches": [[1, [0]]]},
    "server": {"servers": [[1, 0]]},
    "nothing": {},
}


def planned(n: int, k: int, failed: str, method: str = "auto", **fields: Any) -> bytes:
    request = {
        "problem": "bml",
        "n": n,
        "k": k,
        "gradient_bytes": 8 * 2003,
        "element_bytes": 8,
        "link_bytes_per_s": 10**6,
        "latency_ns": 1_000_000,
        "with_plan": True,
        "failed": FAILED[failed],
        "method": method,
    }
    return msgspec.json.encode(solve(request | fields))


def follow(n: int, k: int, plans: list[bytes]) -> list[str]:
    world = join(TIMEOUT_S)
    total = sum((integers(rank, 2003) for rank in range(world.size)), torch.tensor(0))
    names = []
    for plan in plans:
        bcube = BcubeAllReduce(world, n, k, plan)
        for _ in range(2):
            tensor = integers(world.rank, 2003)
            bcube.all_reduce(tensor)
            assert torch.equal(tensor, total)
        names.append(bcube.name)
        bcube.close()
    world.leave()
    return names


def check_answers(ranks: int, n: int, k: int, plans: list[bytes]) -> None:
    names = values(launch(follow, ranks, n, k, plans))
    assert all(other == names[0] for other in names)
    assert len(set(names[0])) > 1


ROUNDS: dict[str, Any] = {"method": "auto", "latency_ns": 100_000}
"""Leads to plans in rounds."""


@pytest.mark.slow
def test_answers_are_followed() -> None:
    ways: list[dict[str, Any]] = [{"method": "detour"}, {"method": "trees"}, ROUNDS]
    everyone = [failed for failed in FAILED if failed != "server"]
    for failures, ranks in ((everyone, 4), (["server"], 3)):
        check_answers(
            ranks, 2, 2, [planned(2, 2, failed, **way) for failed in failures for way in ways]
        )


def follow_typed(plan: bml.Plan) -> None:
    world = join(TIMEOUT_S)
    summing = BcubeAllReduce(world, 2, 2, plan)
    for size in SIZES if THOROUGH else SIZES[::2]:
        flat = integers(world.rank, size)
        summing(flat)
        assert torch.equal(flat, sum((integers(rank, size) for rank in range(4)), torch.tensor(0)))
    summing.close()
    world.leave()


@pytest.mark.slow
def test_typed_plans_are_followed_for_every_size() -> None:
    failed = bml.Failures(nics=frozenset({(0, 0)}))
    network = Network(Fraction(10**6), startup_ns=100_000)
    plan = bml.solve(bml.Problem(BCube(2, 2), network, 10**6, failed=failed)).plan
    assert plan is not None
    values(launch(follow_typed, 4, plan))


def refuse() -> dict[str, str]:
    world = join(TIMEOUT_S)
    texts = {}
    plain = BcubeAllReduce(world, 2, 1)
    with pytest.raises(InvalidInputError) as refused:
        plain.all_reduce(torch.zeros(3, dtype=torch.complex64))
    texts["complex"] = str(refused.value)
    with pytest.raises(InvalidInputError) as refused:
        plain.all_reduce(torch.eye(2).to_sparse())
    texts["sparse"] = str(refused.value)
    with pytest.raises(InvalidInputError) as refused:
        BcubeAllReduce(world, 2, 2)
    texts["world"] = str(refused.value)
    tensor = torch.ones(2)
    plain.all_reduce(tensor)  # neither of them is the worse for it
    assert tensor.tolist() == [2, 2]
    plain.close()
    plain.close()
    with pytest.raises(PlannerError) as closed:
        plain.all_reduce(torch.zeros(3))
    texts["closed"] = str(closed.value)
    world.leave()
    return texts


def test_what_does_not_fit_is_refused() -> None:
    texts = values(launch(refuse, 2))
    assert texts[0] == texts[1]
    assert texts[0] == {
        "complex": "tensor: expected a dense one of real numbers on the CPU, got torch.strided, "
        "torch.complex64, cpu",
        "sparse": "tensor: expected a dense one of real numbers on the CPU, got torch.sparse_coo, "
        "torch.float32, cpu",
        "world": "world: expected 4 ranks for bml(2, 2), got 2",
        "closed": "this all-reduce was closed",
    }


def disagree(kind: str) -> None:
    world = join(TIMEOUT_S)
    odd = world.rank == 2
    try:
        if kind == "network":
            BcubeAllReduce(world, *((4, 1) if odd else (2, 2)))
        else:
            plan = planned(2, 2, "nic", method="trees" if odd else "detour")
            BcubeAllReduce(world, 2, 2, plan)
    finally:
        world.leave()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["network", "plan"])
def test_disagreement_is_found_before_the_first_transfer(kind: str) -> None:
    for error in errors(launch(disagree, 4, kind)):
        assert error.type == "DisagreementError"
        assert error.attributes["ranks"] == (2,)


def wrong_plan() -> None:
    world = join(TIMEOUT_S)
    plan = msgspec.json.decode(planned(2, 1, "nothing"))
    if world.rank:
        plan["plan"]["plan"]["dead"] = [0]
    try:
        BcubeAllReduce(world, 2, 1, plan)
    finally:
        world.leave()


@pytest.mark.slow
def test_a_wrong_plan_on_one_rank_ends_all() -> None:
    first, second = launch(wrong_plan, 2)
    assert second.error is not None
    assert second.error.type == "InvalidPlanError"
    assert first.error is not None
    assert first.error.type == "CommunicationError"
    assert "rank 1 stopped" in first.error.text


def too_many_interfaces() -> None:
    world = join(TIMEOUT_S, interfaces=["lo", "lo"])
    try:
        BcubeAllReduce(world, 2, 1)
    finally:
        world.leave()


def test_interfaces_must_be_one_for_each_level() -> None:
    for error in errors(launch(too_many_interfaces, 2)):
        assert error.text == "interfaces: expected one for each of 1 levels, got 2"


def on_lo() -> list[float]:
    world = join(TIMEOUT_S, interfaces=["lo", "lo"])
    bcube = BcubeAllReduce(world, 2, 2)
    tensor = torch.arange(9.0)
    bcube.all_reduce(tensor)
    bcube.close()
    world.leave()
    return [float(element) for element in tensor]


@pytest.mark.skipif(not os.path.exists("/sys/class/net/lo"), reason="needs Linux")  # noqa: PTH110
def test_each_level_goes_over_its_interface() -> None:
    for tensor in values(launch(on_lo, 4)):
        assert tensor == [4.0 * element for element in range(9)]
