"""Sums over gloo: every program and every plan of BML, and what is refused."""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, distributed, nn

from planner.families import bml
from planner.families.bml.program import REPLAN, made
from planner.families.collectives.exchange import direct_program, routed_program
from planner.families.collectives.program import ListedProgram, Message, Program
from planner.families.collectives.recipes import Recipe
from planner.families.collectives.ring import ring_program
from planner.jsonio import solve
from planner.model.errors import (
    CommunicationError,
    DisagreementError,
    InvalidInputError,
    InvalidPlanError,
    PlannerError,
)
from planner.model.network import Network
from planner.model.topologies import BCube, Failures
from planner.runtime.collectives.interpreter import BcubeAllReduce, Interpreter, collective_of
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.collectives.programs import all_programs
from tests.runtime.faulty import end, strike
from tests.runtime.jobs import in_each_process, in_each_rank
from tests.runtime.launching import launch, values
from tests.thorough import THOROUGH

TIMEOUT_S = 20.0
SIZES = (0, 1, 2, 3, 7, 16, 17, 64, 1001, 20_011, 300_011)


def integers(rank: int, size: int) -> Tensor:
    draw = torch.Generator().manual_seed(1000 * rank + size)
    return torch.randint(-(2**40), 2**40, (size,), generator=draw)


def floats(rank: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank))


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


TREES = Failures(nics=frozenset({(0, 0), (1, 1), (3, 0), (8, 0)}))
"""Where only trees are left."""
FAILURES = {
    9: [Failures(nics=frozenset({(0, 0)})), Failures(switches=frozenset({(0, 1)})), TREES],
    8: [Failures(servers=frozenset({5})), Failures(frozenset({0}), frozenset({(8, 1)}))],
}
"""Of a BCube(3, 2), by the ranks that are left."""


def around_failures(ranks: int, rounds: int) -> list[Program]:
    """Return programs in one round or in four, by turns; those of trees alone have both."""
    return [
        made(Recipe(REPLAN, (3, 2, rounds), failed))
        for place, failed in enumerate(FAILURES.get(ranks, ()))
        if THOROUGH or place % 2 == (rounds > 1) or failed is TREES
    ]


def programs_of(ranks: int) -> list[Program]:
    """Return every algorithm on so many ranks, those that send the same messages once."""
    programs = [program for program in all_programs() if program.ranks == ranks]
    different = {(program.links, *sorted(program.messages())): program for program in programs}
    if ranks < 8 or THOROUGH:
        return list(different.values())
    # Among many ranks one of each kind: the other shapes of hosts differ as they do among four.
    kinds = {re.sub(r"\d+", "n", program.name): program for program in different.values()}
    # Among eight what has three links, or what does otherwise among nine, is new.
    return [one for one in kinds.values() if ranks == 9 or one.links == 3 or "halving" in one.name]


def try_halves(
    summing: Interpreter, rank: int, whole: Mapping[int, Tensor], cuts: Iterable[tuple[int, int]]
) -> None:
    """Sum up by halves: whoever owns a chunk has its sum in between, whatever else is there."""
    for size, depth in cuts:
        flat, total = integers(rank, size), whole[size]
        summing.reduce_scatter(flat, depth)
        mine = summing.owned(flat, depth)
        for own, wanted in zip(mine, summing.owned(total, depth), strict=True):
            assert torch.equal(own, wanted)
        kept = [own.clone() for own in mine]
        flat.fill_(rank)
        for own, sums in zip(mine, kept, strict=True):
            own.copy_(sums)
        summing.all_gather(flat, depth)
        assert torch.equal(flat, total)


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 9])
@in_each_rank("ranks", timeout_s=120)
def test_every_algorithm_sums_up_as_gloo_does(world: World, ranks: int) -> None:
    # How chunks are cut is the same among many ranks.
    sizes: tuple[int, ...] = (1, 7, 1000, 65_537, ranks - 1, ranks, ranks + 1)
    if not THOROUGH:
        sizes = sizes if ranks < 4 else sizes[:4] if ranks == 4 else (1, 1000)
    thorough = ranks < 8 or THOROUGH
    whole = {size: integers(world.rank, size) for size in sizes}
    wanted = floats(world.rank, 5, 67)
    for total in (*whole.values(), wanted):
        distributed.all_reduce(total)
    found = []
    halved = [*programs_of(ranks), *around_failures(ranks, 1)]
    for place, program in enumerate([*halved, *around_failures(ranks, 4)]):
        summing = Interpreter(world, program)
        for size, total in whole.items():
            for depth in (
                (1, 3) if size == 1000 and thorough else (3,) if size in (7, 1000) else (1,)
            ):
                flat = integers(world.rank, size)
                summing(flat, depth)
                assert torch.equal(flat, total), (program.name, size, depth)
        if place < len(halved):
            cuts = ((1, 1), (1000, 3)) if thorough else ((1000, 3),)
            try_halves(summing, world.rank, whole, cuts)
        flat = floats(world.rank, 5, 67)
        summing.all_reduce(flat)
        assert torch.allclose(flat, wanted, rtol=1e-6, atol=1e-5)
        found.append(bits(flat).hex())
        summing.close()
    world.agree("the bits of sums", repr(found))


class Wired:
    """Says a link, whatever there is."""

    def __call__(self, sender: int, receiver: int, lane: int) -> int:
        return 3


FIRST, *REST = direct_program(3).messages()


def listed(*messages: Message) -> Program:
    return ListedProgram("listed", 3, 1, 1, 3, messages, [0, 1, 2], 1)


OTHER = DisagreementError, "the program of the all-reduce: rank {} differs"
WRONG: dict[int, list[tuple[type[PlannerError], str, Callable[[World, bool], object]]]] = {
    3: [
        (
            InvalidPlanError,
            "rank 0, chunk 1: has the contribution of rank 0 0 t",
            lambda world, _: collective_of(world, listed(*REST)),
        ),
        (
            InvalidPlanError,
            "step 0, rank 0 to rank 1, chunks 1…1: chunk 1 then has",
            lambda world, _: collective_of(world, listed(FIRST, FIRST, *REST)),
        ),
        (
            InvalidPlanError,
            "step 0, rank 0 to rank 1: no link 3: ranks have 1",
            lambda world, _: collective_of(world, replace(ring_program(3), wire=Wired())),
        ),
        (*OTHER, lambda world, odd: collective_of(world, (direct_program, ring_program)[odd](3))),
        (
            *OTHER,
            lambda world, odd: collective_of(
                world, listed(*(one._replace(step=one.step + odd) for one in (FIRST, *REST)))
            ),
        ),
    ],
    4: [
        (*OTHER, lambda world, odd: BcubeAllReduce(world, *((2, 2), (4, 1))[odd])),
        (
            *OTHER,
            lambda world, odd: BcubeAllReduce(
                world, 2, 2, planned(2, 2, "nic", ("detour", "trees")[odd])
            ),
        ),
    ],
}
"""By ranks, what is built; one rank, told so, builds something else."""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", WRONG)
@in_each_process("ranks")
def test_what_is_wrong_is_refused_before_the_first_byte(ranks: int, store: int) -> None:
    """What is refused ends the job, and another one begins."""
    os.environ |= {"MASTER_PORT": str(store), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    odd = ranks // 2
    for error, words, build in WRONG[ranks]:
        with (
            join(TIMEOUT_S) as world,
            pytest.raises(error, match=words.format(odd)) as caught,
        ):
            build(world, world.rank == odd)
        assert type(caught.value) is error
        assert getattr(caught.value, "ranks", (odd,)) == (odd,)


@pytest.mark.slow
@in_each_rank()
def test_a_wrong_plan_on_one_rank_ends_all(world: World) -> None:
    plan = msgspec.json.decode(planned(2, 1, "nothing"))
    plan["plan"]["plan"] |= {"dead": [0]} if world.rank else {}
    error, words = (InvalidPlanError, "") if world.rank else (CommunicationError, "rank 1 stopped")
    with pytest.raises(error, match=words):
        BcubeAllReduce(world, 2, 1, plan)


SHORT_S, LONG_S = 3.0, 6.0


def lose(how: str) -> tuple[str, tuple[int, ...], float]:
    world = join(LONG_S if how == "kill" else SHORT_S)  # a roll call takes half of it
    routed = how == "stop"
    summing = (
        Interpreter(world, routed_program(BCube(2, 2))) if routed else BcubeAllReduce(world, 2, 2)
    )
    tensor = torch.ones(300_000)
    summing.all_reduce(tensor)
    if world.rank == 3:
        strike(how, world)
        return "", (), 0  # who hangs, though its watch answers
    begin = time.monotonic()
    with pytest.raises(CommunicationError) as failed:
        any(summing.all_reduce(tensor) is None for _ in count())
    took = time.monotonic() - begin
    with pytest.raises(CommunicationError):
        summing.reduce_scatter(tensor)
    summing.close()
    world.leave()
    return str(failed.value), failed.value.peers, took


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize(("how", "word"), [("kill", "level"), ("stop", "link"), ("hang", "level")])
def test_a_lost_rank_is_named_on_all_others_with_the_link(how: str, word: str) -> None:
    outcomes = launch(lose, 4, how, meanwhile=end(3) if how == "stop" else None)
    for text, peers, took in values(outcomes[:3]):
        assert word in text
        if how == "hang":
            assert len(peers) == 1
            continue
        assert peers == (3,)
        assert "rank 3 does not answer" in text
        assert how == "stop" or took < LONG_S  # long before the time-out


@pytest.mark.slow
@in_each_process(4)
def test_sums_are_exact_and_what_does_not_fit_is_refused() -> None:
    """Kinds of tensors, each level over its interface; another test has all sizes and networks."""
    linux = Path("/sys/class/net/lo").exists()
    with join(TIMEOUT_S, ["lo", "lo"] if linux else None) as world:
        ranks = range(world.size)
        bcube = BcubeAllReduce(world, 2, 2)

        def check(make: Any, rtol: float = 0, atol: float = 0) -> None:
            exact = torch.stack([make(rank).double() for rank in ranks]).sum(0)
            sums = [make(world.rank) for _ in range(2)]
            for one in sums:
                assert bcube.all_reduce(one) is one
                assert one.shape == exact.shape
                assert torch.allclose(one.double(), exact, rtol=rtol, atol=atol)
                world.agree("the sum", bits(one).hex())
            assert bits(sums[0]) == bits(sums[1])

        check(lambda rank: floats(rank, 5, 67), rtol=1e-6, atol=1e-5)
        check(lambda rank: floats(rank, 67, 5).t(), rtol=1e-6, atol=1e-5)
        check(lambda rank: floats(rank, 100).bfloat16(), rtol=0.05, atol=0.2)
        for dtype in (torch.int32, torch.uint8):
            check(lambda _, dtype=dtype: torch.arange(10).to(dtype))
        leaf = nn.Parameter(torch.tensor(float(world.rank)))
        bcube.all_reduce(leaf)
        assert leaf.item() == sum(ranks)

        expected = "tensor: expected a dense one of real numbers on the CPU, got torch."
        for wrong, message in (
            (torch.zeros(3, dtype=torch.complex64), f"{expected}strided, torch.complex64, cpu"),
            (torch.eye(2).to_sparse(), f"{expected}sparse_coo, torch.float32, cpu"),
        ):
            with pytest.raises(InvalidInputError, match=f"^{message}$"):
                bcube.all_reduce(wrong)
        with pytest.raises(InvalidInputError, match=r"^world: expected 9 ranks for bml\(3, 2\)"):
            BcubeAllReduce(world, 3, 2)
        if linux:
            with pytest.raises(InvalidInputError, match=r"^interfaces: expected one for each"):
                BcubeAllReduce(world, 4, 1)
        with torch.inference_mode():
            inside = torch.ones(3)
            bcube.all_reduce(inside)  # which is none the worse for it
        assert inside.tolist() == [world.size] * 3
        bcube.close()
        bcube.close()
        with pytest.raises(PlannerError, match=r"^this all-reduce was closed$"):
            bcube.all_reduce(torch.zeros(3))


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


Planned = tuple[Any, Sequence[int]]
"""A plan, and the sizes that are summed up by it."""


@pytest.fixture
def plans(ranks: int) -> list[Planned]:
    """Return answers, the last of each failure in rounds, and for every size a typed plan."""
    ways: list[dict[str, Any]] = [{"method": "detour"}, {"method": "trees"}, {"latency_ns": 10**5}]
    failures = ["nic", "switch", "nothing"] if ranks == 4 else ["server"]
    found: list[Planned] = [
        (planned(2, 2, failed, **way), [2003]) for failed in failures for way in ways
    ]
    if ranks == 4:
        failed = bml.Failures(nics=frozenset({(0, 0)}))
        network = Network(Fraction(10**6), startup_ns=100_000)
        typed = bml.solve(bml.Problem(BCube(2, 2), network, 10**6, failed=failed)).plan
        assert typed is not None
        found.append((typed, SIZES if THOROUGH else SIZES[::2]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 4])
@in_each_rank("ranks")
def test_plans_are_followed(world: World, ranks: int, plans: list[Planned]) -> None:
    names = set()
    for plan, sizes in plans:
        bcube = BcubeAllReduce(world, 2, 2, plan)
        for size in sizes:
            total = sum((integers(rank, size) for rank in range(ranks)), torch.tensor(0))
            for _ in range(2):
                assert torch.equal(bcube.all_reduce(integers(world.rank, size)), total)
        names.add(bcube.name)
        bcube.close()
    assert len(names) > 1
