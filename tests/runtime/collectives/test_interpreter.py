"""Every program over gloo: sums and halves are right, what is wrong is refused before a byte."""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, distributed

from planner.families import bml
from planner.families.collectives.exchange import (
    bml_program,
    direct_program,
    hierarchical_program,
    routed_program,
)
from planner.families.collectives.program import ListedProgram, Program
from planner.families.collectives.ring import ring_program
from planner.model.errors import CommunicationError
from planner.model.topologies import BCube
from planner.runtime.collectives.interpreter import BcubeAllReduce, Interpreter, collective_of
from planner.runtime.collectives.ring import Ring
from planner.runtime.world.joining import join
from tests.collectives.programs import all_programs
from tests.runtime.collectives.test_bcube import TIMEOUT_S, bits, floats, integers
from tests.runtime.faulty import end, strike
from tests.runtime.launching import errors, launch, values
from tests.thorough import THOROUGH


def programs_of(ranks: int) -> list[Program]:
    """Return every algorithm on so many ranks, those that send the same messages once."""
    programs = [program for program in all_programs() if program.ranks == ranks]
    different = {(program.links, *sorted(program.messages())): program for program in programs}
    if ranks < 8 or THOROUGH:
        return list(different.values())
    # Among many ranks one of each kind: the other shapes of hosts differ as they do among four.
    kinds = {re.sub(r"\d+", "n", program.name): program for program in different.values()}
    if ranks == 9:
        return list(kinds.values())
    # Among eight what has three links, or what does otherwise among nine, is new.
    return [one for one in kinds.values() if one.links == 3 or "halving" in one.name]


def sum_by_all(ranks: int) -> list[tuple[str, bytes]]:
    """Sum up by every program; return its name, and the bits of a sum of floats."""
    world = join(TIMEOUT_S)
    found = []
    # How chunks are cut is the same among many ranks.
    sizes: tuple[int, ...] = (1, 7, 1000, 65_537, ranks - 1, ranks, ranks + 1)
    if not THOROUGH:
        sizes = sizes if ranks < 4 else sizes[:4] if ranks == 4 else (1, 1000)
    thorough = ranks < 8 or THOROUGH
    whole = {size: integers(world.rank, size) for size in sizes}
    wanted = floats(world.rank, 5, 67)
    for total in (*whole.values(), wanted):
        distributed.all_reduce(total)
    for program in programs_of(ranks):
        summing = Interpreter(world, program)
        for size, total in whole.items():
            for depth in (
                (1, 3) if size == 1000 and thorough else (3,) if size in (7, 1000) else (1,)
            ):
                flat = integers(world.rank, size)
                summing(flat, depth)
                assert torch.equal(flat, total), (program.name, size, depth)
        try_halves(summing, world.rank, whole, ((1, 1), (1000, 3)) if thorough else ((1000, 3),))
        flat = floats(world.rank, 5, 67)
        summing.all_reduce(flat)
        assert torch.allclose(flat, wanted, rtol=1e-6, atol=1e-5)
        found.append((program.name, bits(flat)))
        summing.close()
    world.leave()
    return found


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


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 9])
def test_every_algorithm_sums_up_as_gloo_does(ranks: int) -> None:
    results = values(launch(sum_by_all, ranks, ranks, timeout_s=120))
    assert all(result == results[0] for result in results)


class Wired:
    """Says a link, whatever there is."""

    def __call__(self, sender: int, receiver: int, lane: int) -> int:
        return 3


def wrong(kind: str, rank: int) -> Program:
    whole = direct_program(3)
    first, *rest = whole.messages()
    listed = tuple({"left out": rest, "twice": [first, first, *rest]}.get(kind, [first, *rest]))
    if kind == "link":
        return replace(ring_program(3), wire=Wired())
    if kind == "ranks differ":
        return ring_program(3) if rank == 1 else whole
    if kind == "lists differ" and rank == 1:
        listed = tuple(message._replace(step=message.step + 1) for message in listed)
    size = 4 if kind == "too few" else 3
    return (
        bml_program(BCube(4, 1))
        if size == 4
        else ListedProgram("listed", 3, 1, 1, 3, listed, [0, 1, 2], 1)
    )


def refused(kind: str) -> None:
    with join(TIMEOUT_S) as world:
        collective_of(world, wrong(kind, world.rank))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("left out", "InvalidPlanError", "rank 0, chunk 1: has the contribution of rank 0 0 times"),
        ("twice", "InvalidPlanError", "step 0, rank 0 to rank 1, chunks 1…1: chunk 1 then has the"),
        ("link", "InvalidPlanError", "step 0, rank 0 to rank 1: no link 3: ranks have 1"),
        ("ranks differ", "DisagreementError", "the program of the all-reduce: rank 1 differs"),
        ("lists differ", "DisagreementError", "the program of the all-reduce: rank 1 differs"),
        ("too few", "InvalidInputError", "world: expected 4 ranks for bml(4, 1), got 3"),
    ],
)
def test_what_is_wrong_is_refused_before_the_first_byte(kind: str, error: str, words: str) -> None:
    for one in errors(launch(refused, 3, kind)):
        assert one.type == error
        assert words in one.text


def names() -> list[str]:
    world = join(TIMEOUT_S)
    found = []
    for plan in (None, bml.Schedule(BCube(2, 1)), bml.Schedule(BCube(2, 1), rounds=2)):
        one = BcubeAllReduce(world, 2, 1, plan)
        found.append(one.name)
        one.close()
    for program in (ring_program(2), hierarchical_program([2]), direct_program(2)):
        other = Interpreter(world, program)
        found.append(other.name)
        other.close()
    assert isinstance(collective_of(world, ring_program(2)), Ring)
    world.leave()
    return found


def test_names_tell_programs_apart() -> None:
    found = values(launch(names, 2))
    assert found[0] == found[1]
    none, same, *_ = found[0]
    assert none == same == "bml(2, 1)"  # which are the same program
    assert len(set(found[0])) == len(found[0]) - 1


AWAY_S, LONG_S = 3.0, 12.0


def lose(how: str) -> tuple[str, tuple[int, ...], float]:
    times_out = {"away": AWAY_S, "kill": LONG_S}
    world = join(times_out.get(how, TIMEOUT_S / 3))  # a roll call takes half of it
    routed = how == "stop"
    summing = (
        Interpreter(world, routed_program(BCube(2, 2))) if routed else BcubeAllReduce(world, 2, 2)
    )
    tensor = torch.ones(300_000)
    summing.all_reduce(tensor)
    if world.rank == 3:
        if how == "away":  # though its watch answers
            time.sleep(2 * AWAY_S)
            return "", (), 0
        strike(how, world)
    begin = time.monotonic()
    with pytest.raises(CommunicationError) as failed:
        sum_for_ever(summing, tensor)
    took = time.monotonic() - begin
    with pytest.raises(CommunicationError):
        summing.reduce_scatter(tensor)
    summing.close()
    world.leave()
    return str(failed.value), failed.value.peers, took


def sum_for_ever(summing: Interpreter, tensor: Tensor) -> None:
    while True:
        summing.all_reduce(tensor)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "word"), [("kill", "level"), ("stop", "link"), ("away", "level")])
def test_a_lost_rank_is_named_on_all_others_with_the_link(how: str, word: str) -> None:
    outcomes = launch(lose, 4, how, meanwhile=end(3) if how == "stop" else None)
    for text, peers, took in values(outcomes[:3]):
        assert word in text
        if how == "away":
            assert len(peers) == 1
            continue
        assert peers == (3,)
        assert "rank 3 does not answer" in text
        assert how == "stop" or took < LONG_S  # long before the time-out
