"""Programs around failures as algorithms of MSCCL and plans of MSCCL++."""

from collections import Counter
from graphlib import TopologicalSorter

import pytest

from planner.families.bml.program import replanned
from planner.formats import write_msccl
from planner.formats.exporters.mscclpp import write_mscclpp
from planner.model.topologies import BCube, Failures
from tests.formats import mscclpp_interpreter
from tests.formats.msccl_interpreter import order, parse, races
from tests.formats.mscclpp_interpreter import Plan, replayed
from tests.formats.test_msccl import sums

DAMAGED = [
    (BCube(2, 2), Failures(nics=frozenset({(1, 0)}))),
    (BCube(2, 2), Failures(servers=frozenset({2}))),
    (BCube(3, 2), Failures(switches=frozenset({(1, 0)}))),
    (BCube(3, 2), Failures(servers=frozenset({4}), nics=frozenset({(0, 1)}))),
    # Where only trees are left.
    (BCube(3, 2), Failures(nics=frozenset({(0, 0), (1, 1), (3, 0), (8, 0)}))),
]


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize(("bcube", "failed"), DAMAGED, ids=str)
def test_every_order_gives_every_rank_the_sum(bcube: BCube, failed: Failures, rounds: int) -> None:
    program = replanned(bcube, failed, rounds)
    blocks = parse(write_msccl(program))
    assert len(blocks) == bcube.servers - len(failed.servers)
    assert not races(blocks, in_place=True)
    assert sums(blocks, program.chunks)
    TopologicalSorter(order(blocks, rendezvous=True)).prepare()
    plan, whole = Plan(write_mscclpp(program)), Counter(range(program.ranks))
    assert not mscclpp_interpreter.races(plan)
    for chunks in replayed(plan, 0):
        assert set(chunks) == set(range(program.chunks))
        assert all(held == whole for held in chunks.values())
