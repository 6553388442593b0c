"""BML executed over gloo: its sums are exact, and training with it is that of DDP."""

import os
from fractions import Fraction
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from planner.families import bml
from planner.jsonio import solve
from planner.model.errors import InvalidInputError, PlannerError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.programs import Batch, GradientProgram, Piece
from planner.runtime.collectives.interpreter import BcubeAllReduce
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.world.joining import join
from tests.runtime.launching import Outcome, launch
from tests.thorough import THOROUGH

SIZES = (0, 1, 2, 3, 7, 16, 17, 64, 1001, 20_011, 300_011)
SOME_SIZES = (0, 1, 17, 1001, 20_011) if THOROUGH else (0, 1, 1001)
TIMEOUT_S = 20.0

small = pytest.mark.parametrize(("n", "k"), [(2, 1), (2, 2), (3, 1), (4, 1)])
large = pytest.mark.parametrize(("n", "k"), [(3, 2), (2, 3)])


def values(outcomes: list[Outcome]) -> list[Any]:
    for one in outcomes:
        assert one.error is None, one.error.trace
        assert one.exit_code == 0, one.output
    return [outcome.value for outcome in outcomes]


def integers(rank: int, size: int) -> Tensor:
    draw = torch.Generator().manual_seed(1000 * rank + size)
    return torch.randint(-(2**40), 2**40, (size,), generator=draw)


def floats(rank: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank))


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def sums(n: int, k: int) -> tuple[str, list[bytes]]:
    world = join(TIMEOUT_S)
    ranks = range(world.size)
    bcube = BcubeAllReduce(world, n, k)
    for size in SIZES if world.size <= 4 else SOME_SIZES:
        total = sum((integers(rank, size) for rank in ranks), torch.tensor(0))
        for depth in (1, 3) if size > 16 else (3,) if size % 2 else (1,):
            flat = integers(world.rank, size)
            bcube(flat, depth)
            assert torch.equal(flat, total)

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


def check_sums(n: int, k: int) -> None:
    results = values(launch(sums, n**k, n, k))
    assert all(result == results[0] for result in results)
    assert results[0][0] == f"bml({n}, {k})"


@pytest.mark.slow
@small
def test_sums_are_exact_and_the_same_everywhere(n: int, k: int) -> None:
    check_sums(n, k)


@pytest.mark.slow
@large
def test_sums_are_exact_on_larger_networks(n: int, k: int) -> None:
    check_sums(n, k)


class Net(nn.Module):
    """Some layers of different sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(13, 31)
        self.norm = nn.LayerNorm(31)
        self.last = nn.Linear(31, 5)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.last(torch.tanh(self.norm(self.first(x))))
        return outputs


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return torch.optim.Adam(model.parameters(), lr=0.01)


def data(rank: int, step: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(8, 13, generator=draw), torch.randn(8, 5, generator=draw)


def train(n: int, k: int) -> list[float]:
    world = join(TIMEOUT_S)
    bcube = BcubeAllReduce(world, n, k)
    apart = []
    # By default one of both: how gradients are used is not for the collective to know.
    for name in ("sgd", "adam") if THOROUGH else ("sgd",) if n == 2 else ("adam",):
        torch.manual_seed(0)
        model, plain = Net(), Net()
        plain.load_state_dict(model.state_dict())
        program = GradientProgram(
            (
                Batch((Piece("last.bias"), Piece("last.weight", 0, 400))),
                Batch((Piece("last.weight", 400), Piece("norm.bias"), Piece("norm.weight"))),
                Batch((Piece("first.weight"), Piece("first.bias")), depth=2),
            )
        )
        optimizer = optimizer_of(name, model)
        executor = GradientExecutor(model, program, optimizer, world, all_reduce=bcube)
        ddp = DistributedDataParallel(plain)
        reference = optimizer_of(name, plain)
        for step in range(3):
            inputs, targets = data(world.rank, step)
            nn.functional.mse_loss(model(inputs), targets).backward()
            executor.step()
            optimizer.zero_grad()
            reference.zero_grad()
            nn.functional.mse_loss(ddp(inputs), targets).backward()
            reference.step()
        executor.close()
        pairs = zip(model.parameters(), plain.parameters(), strict=True)
        apart.append(max((ours - other).abs().max().item() for ours, other in pairs))
    bcube.close()
    world.leave()
    return apart


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "k"), [(2, 1), (3, 1), (2, 2), pytest.param(3, 2, marks=pytest.mark.slow)]
)
def test_training_is_that_of_ddp(n: int, k: int) -> None:
    for apart in values(launch(train, n**k, n, k)):
        assert max(apart) < 1e-6


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


@pytest.mark.slow
def test_answers_are_followed_on_a_larger_network() -> None:
    whole = [
        planned(3, 2, "nic", method="detour"),
        planned(3, 2, "switch", method="trees"),
        planned(3, 2, "nothing", **ROUNDS),
    ]
    check_answers(9, 3, 2, whole)
    if THOROUGH:  # else four servers are without one
        check_answers(8, 3, 2, [planned(3, 2, "server", method=way) for way in ("detour", "trees")])


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


def too_many_interfaces() -> None:
    world = join(TIMEOUT_S, interfaces=["lo", "lo"])
    try:
        BcubeAllReduce(world, 2, 1)
    finally:
        world.leave()


def test_interfaces_must_be_one_for_each_level() -> None:
    for outcome in launch(too_many_interfaces, 2):
        assert outcome.error is not None
        assert outcome.error.text == "interfaces: expected one for each of 1 levels, got 2"


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
