"""The closed form is Algorithm 1, transfer by transfer, and what follows from that."""

from collections import defaultdict
from fractions import Fraction
from functools import cache
from itertools import islice, product

import bml_algorithm1 as algorithm1
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.bml import Plan, Problem, Schedule, Transfer, evaluate
from planner.families.bml.schedule import slice_of
from planner.model.network import Network
from planner.model.topologies import BCube
from tests.bml.plans import Planned, all_transfers, planned

ALL = [(n, k) for k in range(1, 7) for n in range(2, 65) if n**k <= 64]
"""Every BCube of at most 64 servers."""

Said = tuple[str, int, int, int, frozenset[tuple[int, ...]]]


@pytest.mark.parametrize(("n", "k"), ALL)
def test_closed_form_is_algorithm_1(n: int, k: int) -> None:
    """All threads of all servers; neighbours may come in any order."""
    bcube, schedule = BCube(n, k), Schedule(BCube(n, k))
    # Each thread's pieces as the paper names them: thread, owner's digits.
    names = [
        [(t, *bcube.digits(schedule.owner(t, piece))) for piece in range(schedule.pieces)]
        for t in range(schedule.threads)
    ]

    @cache
    def pieces(thread: int, offset: int, length: int) -> frozenset[tuple[int, ...]]:
        return frozenset(names[thread][offset : offset + length])

    for server in range(bcube.servers):
        closed: list[list[Said]] = [[] for _ in range(bcube.k)]
        for one in schedule.transfers(server):
            assert one.server == server
            held = pieces(one.thread, one.offset, one.length)
            closed[one.thread].append((one.stage, one.step, one.level, one.peer, held))
        for thread in range(bcube.k):
            literal = list(algorithm1.run_thread(bcube, thread, server))
            assert len(closed[thread]) == len(literal)
            assert set(closed[thread]) == {tuple(one) for one in literal}


@given(st.integers(2, 20), st.integers(1, 6), st.data())
def test_slices_are_the_pieces_that_agree_in_digits(n: int, k: int, data: st.DataObject) -> None:
    bcube, schedule = BCube(n, k), Schedule(BCube(n, k))
    thread, step = data.draw(st.integers(0, k - 1)), data.draw(st.integers(0, k - 1))
    server = data.draw(st.integers(0, bcube.servers - 1))
    piece = data.draw(st.integers(0, bcube.servers - 1))
    offset, length = slice_of(bcube, thread, step, server)
    levels = [(thread + place) % k for place in range(step + 1)]
    owner = schedule.owner(thread, piece)
    agree = all(bcube.digit(owner, level) == bcube.digit(server, level) for level in levels)
    assert agree == (offset <= piece < offset + length)
    assert length == n ** (k - 1 - step)
    assert schedule.owner(thread, slice_of(bcube, thread, k - 1, server)[0]) == server


@given(st.integers(2, 9), st.integers(1, 5), st.data())
def test_no_two_servers_send_to_one_at_the_same_turn(n: int, k: int, data: st.DataObject) -> None:
    bcube, level = BCube(n, k), data.draw(st.integers(0, k - 1))
    servers = bcube.on_switch(level, data.draw(st.integers(0, bcube.servers // n - 1)))
    turns: dict[tuple[str, int, int], dict[int, list[int]]] = defaultdict(dict)
    for server in servers:
        for one in Schedule(bcube).transfers(server):
            if one.level == level:
                order = turns[one.stage, one.step, one.thread].setdefault(server, [])
                order.append(one.peer)
    assert len(turns) == 2 * k
    for orders in turns.values():
        assert orders.keys() == {*servers}
        for peers_at_once in zip(*orders.values(), strict=True):
            assert sorted(peers_at_once) == sorted(servers)


@pytest.mark.parametrize(("n", "k"), [(2**62, 1), (2**30, 2), (2, 56), (16, 4)])
def test_transfers_are_made_one_by_one(n: int, k: int) -> None:
    bcube = BCube(n, k)
    server = bcube.servers - 1
    first = next(Schedule(bcube).transfers(server))
    length = n ** (k - 1)
    assert first == Transfer(server, 0, "aggregate", 0, 0, server - (n - 1), 0, length)
    assert len(list(islice(Schedule(bcube).transfers(server), 50))) == min(50, 2 * k * k * (n - 1))


Hop = tuple[str, int, int, int, int]


def hops_of(plan: Plan, thread: int, piece: int) -> list[Hop]:
    """Return the way of a piece up and, reversed, down again."""
    found = []
    for step, sender, receiver, level in plan.hops(thread, piece).tolist():
        found.append(("aggregate", step, sender, receiver, level))
        found.append(("broadcast", plan.steps - 1 - step, receiver, sender, level))
    return sorted(found)


def sent_of(transfers: list[Transfer], thread: int, piece: int) -> list[Hop]:
    return sorted(
        (transfer.stage, transfer.step, transfer.server, transfer.peer, transfer.level)
        for transfer in transfers
        if transfer.thread == thread
        and transfer.offset <= piece < transfer.offset + transfer.length
    )


@settings(max_examples=200)
@given(planned)
def test_hops_are_transfers(case: Planned) -> None:
    _, plan = case
    transfers = all_transfers(plan)
    for thread, piece in product(range(plan.threads), range(plan.pieces)):
        if thread * plan.pieces + piece not in plan.left_out:
            assert hops_of(plan, thread, piece) == sent_of(transfers, thread, piece)


@settings(max_examples=40)
@given(st.integers(0, 3), st.integers(0, 16**4 - 1), st.integers(0, 16**4 - 1))
def test_hops_are_transfers_on_65536_servers(thread: int, piece: int, server: int) -> None:
    schedule = Schedule(BCube(16, 4))
    followed = [hop for hop in hops_of(schedule, thread, piece) if hop[2] == server]
    assert followed == sent_of(list(schedule.transfers(server)), thread, piece)


def test_step_loads_of_the_paper() -> None:
    bcube = BCube(3, 2)
    problem = Problem(bcube, Network(Fraction(10**9)), 18 * 7)
    steps = evaluate(problem, Schedule(bcube)).steps
    assert [step.pieces for step in steps] == [6, 2, 2, 6]
    stages = product(("aggregate", "broadcast"), range(2))
    assert [(step.stage, step.step) for step in steps] == list(stages)
