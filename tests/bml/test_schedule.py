"""The closed form is Algorithm 1, transfer by transfer; what failures leave of it, and detours."""

from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache
from itertools import product

import bml_algorithm1 as algorithm1
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.families.bml import Damage, Failures, Schedule
from planner.families.bml.checker import check, check_complete, check_piece
from planner.families.bml.evaluation import busiest_load
from planner.families.bml.methods import balanced
from planner.families.bml.reroute import detour
from planner.families.bml.schedule import FULL_WEIGHT
from planner.model.errors import NotApplicableError
from planner.model.topologies import BCube
from tests.bml import networks
from tests.bml.networks import Links, connected, damaged_networks, distances, links_left
from tests.bml.plans import Planned, all_transfers, context_of, detour_or_reject, planned
from tests.formats.refused import refused

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


@settings(max_examples=200)
@given(planned)
def test_hops_are_transfers(case: Planned) -> None:
    """The way of each piece in use up and, reversed, down again."""
    _, plan = case
    transfers = all_transfers(plan)
    for thread, piece in product(range(plan.threads), range(plan.pieces)):
        if thread * plan.pieces + piece in plan.left_out:
            continue
        hops = []
        for step, sender, receiver, level in plan.hops(thread, piece).tolist():
            hops.append(("aggregate", step, sender, receiver, level))
            hops.append(("broadcast", plan.steps - 1 - step, receiver, sender, level))
        assert sorted(hops) == sorted(
            (one.stage, one.step, one.server, one.peer, one.level)
            for one in transfers
            if one.thread == thread and one.offset <= piece < one.offset + one.length
        )


# --- what is left of a broken network, against a search along every link


@given(damaged_networks(cut=True, most=6))
def test_what_is_left_is_what_a_search_finds(network: tuple[BCube, Failures]) -> None:
    bcube, failed = network
    damage, links = Damage(bcube, failed), links_left(bcube, failed)
    nics = {(server, level) for server in links for _, level in links[server]}
    assert damage.dead == failed.servers
    assert damage.living == len(links)
    assert damage.down == set(product(links, range(bcube.k))) - nics
    assert damage.usable_nics == len(nics)
    fewest = min((len({x for _, x in own}) for own in links.values()), default=bcube.k)
    assert damage.fewest_nics == fewest
    parts = {frozenset(distances(links, server)) for server in links}
    cut_off = frozenset(damage.cut_off())
    assert cut_off <= links.keys()
    rest = frozenset(links) - cut_off
    assert rest in parts or not parts
    assert len(rest) == max(map(len, parts), default=0)


@settings(max_examples=300)
@given(st.data())
def test_servers_are_never_closer_than_hops_says(data: st.DataObject) -> None:
    """The farthest living servers, after anything from one failure to nearly all servers dead."""
    bcube = data.draw(st.sampled_from([BCube(2, 2), BCube(3, 2), BCube(2, 3), BCube(4, 2)]))
    dead = data.draw(st.frozensets(st.integers(0, bcube.servers - 1), max_size=bcube.servers - 1))
    failed = data.draw(networks.failures(bcube, most=2))
    failed = Failures(dead, failed.nics, failed.switches)
    links = links_left(bcube, failed)
    assume(connected(links))
    farthest = max(max(distances(links, server).values()) for server in links)
    hops = Damage(bcube, failed).hops()
    assert hops <= farthest
    assert (hops == 0) == (len(links) == 1)


# --- detours

LOST = Failures(nics=frozenset({(5, 1)}))


def summable(bcube: BCube, links: Links, thread: int, owner: int) -> bool:
    """Whether a piece reaches its owner, by the text: piece by piece, server by server.

    Each living server takes the link Algorithm 1 gives it, or hands the piece to a neighbour on a
    level of a later step that can take its own link in that step.
    """
    if owner not in links:
        return False
    order = [(thread + step) % bcube.k for step in range(bcube.k)]
    digits = list(product(range(bcube.n), repeat=bcube.k))
    places = {level: bcube.k - 1 - level for level in order}
    for server in links:
        wrong = [x for x in order if digits[server][places[x]] != digits[owner][places[x]]]
        if not wrong:
            continue
        level = wrong[0]
        later = order[order.index(level) + 1 :]

        def next_one(sender: int, level: int = level) -> tuple[int, int]:
            changed = list(digits[sender])
            changed[places[level]] = digits[owner][places[level]]
            return digits.index(tuple(changed)), level

        if next_one(server) in links[server]:
            continue
        if not any(at in later and next_one(via) in links[via] for via, at in links[server]):
            return False
    return True


def expected_left_out(damage: Damage, links: Links) -> set[int] | None:
    """Return the numbers of pieces to be left out; None if that is all of them."""
    bcube = damage.bcube
    owners = Schedule(bcube)
    pieces = list(product(range(bcube.k), range(bcube.servers)))
    owner = {number: owners.owner(*piece) for number, piece in enumerate(pieces)}
    lost = {
        number
        for number, (thread, _) in enumerate(pieces)
        if not summable(bcube, links, thread, owner[number])
    }
    if len(lost) == len(pieces):
        return None
    degraded = {server for server, _ in damage.down}
    more = lost | {number for number in owner if owner[number] in degraded}
    return lost if len(more) == len(pieces) else more


@pytest.mark.slow
@settings(max_examples=150)
@given(damaged_networks(most=3))
def test_detours_are_right_and_leave_out_what_they_must(network: tuple[BCube, Failures]) -> None:
    damage = Damage(*network)
    left_out = expected_left_out(damage, links_left(*network))
    if left_out is None:
        with refused("failed", "", NotApplicableError):
            detour(damage)
        return
    schedule = detour(damage)
    assert schedule.left_out == tuple(sorted(left_out))
    assert schedule == detour(Damage(*network))
    context = context_of(*network)
    check_complete(context, schedule, all_transfers(schedule))
    for thread, piece in product(range(schedule.threads), range(schedule.pieces)):
        if thread * schedule.pieces + piece not in left_out:
            check_piece(context, schedule, thread, piece)


@settings(max_examples=150)
@given(damaged_networks(most=2))
def test_what_is_not_blocked_stays_as_it_was(network: tuple[BCube, Failures]) -> None:
    """All that differs between the two lists is what cannot be, and the detours."""
    links, bcube = links_left(*network), network[0]
    schedule = detour_or_reject(Damage(*network))
    back = {schedule.step_of(w): w for w in range(bcube.k)}
    kept, detours = [], []
    for one in all_transfers(schedule):
        step = one.step if one.stage == "aggregate" else schedule.steps - 1 - one.step
        if step in back:
            w = back[step] if one.stage == "aggregate" else bcube.k - 1 - back[step]
            kept.append(one._replace(step=w))
        else:
            detours.append(one)
    assert kept == [
        one
        for one in all_transfers(Schedule(bcube))
        if one.server in links and (one.peer, one.level) in links[one.server]
    ]
    assert bool(detours) == bool(schedule.half_steps)
    assert len(detours) == 2 * sum(len(one.parts) for one in schedule.detours)
    layout = schedule.layout(bcube.nics, 1)
    for one in detours:
        assert layout.span(one.thread * schedule.pieces + one.offset, one.length)


def test_parts_are_spread_over_all_levels_left() -> None:
    """A NIC is lost: its server's first slices go half and half over the two others."""
    schedule = detour(Damage(BCube(4, 3), Failures(nics=frozenset({(0, 0)}))))
    first = [one for one in schedule.detours if (one.thread, one.step, one.sender) == (0, 0, 0)]
    assert len(first) == 3
    for one in first:
        assert {part.level for part in one.parts} == {1, 2}
        assert [part.length for part in one.parts] == [8, 8]


@pytest.mark.slow
def test_detours_among_65536_servers() -> None:
    nics = frozenset({(0, 0), (2, 0), (16, 2), (9999, 3), (65535, 3), (65535, 2)})
    network = BCube(16, 4), Failures(frozenset({1, 77}), nics, frozenset({(1, 4095)}))
    schedule, context = detour(Damage(*network)), context_of(*network)
    assert schedule.changed
    assert check(context, schedule) == "pieces"
    # The pieces concerned are few: they are followed one by one.
    for one in schedule.detours[:: max(1, len(schedule.detours) // 8)]:
        for part in one.parts[:1]:
            if one.thread * schedule.pieces + part.offset not in schedule.left_out:
                check_piece(context, schedule, one.thread, part.offset)


@pytest.mark.parametrize("failed", [LOST, Failures(servers=frozenset({5}))])
def test_what_one_server_sends_around_takes_different_ways(failed: Failures) -> None:
    """So do slices of a lost NIC, and of those who would send to a dead server."""
    ways = Counter(
        (one.thread, one.step, part.via)
        for one in detour(Damage(BCube(8, 2), failed)).detours
        for part in one.parts
        if one.sender == 5 or one.receiver == 5
    )
    # As many detours as neighbours, in two directions at most.
    assert max(ways.values()) <= 2


# --- lighter pieces where servers with fewer NICs sum up


@pytest.mark.parametrize(("n", "k"), [(3, 3), (2, 4), (4, 3)])
def test_the_weight_is_the_best_of_all(n: int, k: int) -> None:
    damage = Damage(BCube(n, k), LOST)
    plan = detour(damage)
    chosen = balanced(plan, damage)
    assert chosen.light
    loads = {
        weight: busiest_load(replace(plan, light=chosen.light, light_weight=weight))
        for weight in range(FULL_WEIGHT + 1)
    }
    assert loads[FULL_WEIGHT] == busiest_load(plan)
    assert busiest_load(chosen) == min(loads.values()) < busiest_load(plan)


@pytest.mark.parametrize(
    ("bcube", "failed"),
    [
        (BCube(4, 2), LOST),
        (BCube(3, 3), Failures(servers=frozenset({4}))),
        # Two opposite servers each sum up half of all pieces, so equal weights change nothing.
        (BCube(2, 3), Failures(nics=frozenset({(0, 0), (7, 1)}))),
    ],
)
def test_nothing_is_lighter_where_there_is_nothing_to_gain(bcube: BCube, failed: Failures) -> None:
    damage = Damage(bcube, failed)
    plan = detour(damage)
    assert balanced(plan, damage) == plan
