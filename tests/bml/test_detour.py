"""Detours: right whenever there are any, and nothing else changes."""

from itertools import product

import pytest
from hypothesis import given, settings

from planner.families.bml import CheckerContext, Damage, Failures, Schedule, check
from planner.families.bml.checker import check_complete, check_piece
from planner.families.bml.reroute import detour
from planner.model.errors import NotApplicableError
from planner.model.topologies import BCube
from tests.bml.networks import Links, damaged_networks, links_left
from tests.bml.plans import all_transfers


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
    number = {one: place for place, one in enumerate(pieces)}
    lost = {
        number[piece]
        for piece in pieces
        if not summable(bcube, links, piece[0], owners.owner(*piece))
    }
    if len(lost) == len(pieces):
        return None
    degraded = {server for server, _ in damage.down}
    poor = {number[piece] for piece in pieces if owners.owner(*piece) in degraded}
    return lost if len(lost | poor) == len(pieces) else lost | poor


@pytest.mark.slow
@settings(max_examples=150)
@given(damaged_networks(most=3))
def test_detours_are_right_and_leave_out_what_they_must(network: tuple[BCube, Failures]) -> None:
    damage = Damage(*network)
    left_out = expected_left_out(damage, links_left(*network))
    if left_out is None:
        with pytest.raises(NotApplicableError) as error:
            detour(damage)
        assert error.value.path == "failed"
        return
    schedule = detour(damage)
    assert schedule.left_out == tuple(sorted(left_out))
    assert schedule == detour(Damage(*network))
    context = CheckerContext(damage.bcube, damage.dead, damage.down)
    check_complete(context, schedule, all_transfers(schedule))
    for thread, piece in product(range(schedule.threads), range(schedule.pieces)):
        if thread * schedule.pieces + piece not in left_out:
            check_piece(context, schedule, thread, piece)


@settings(max_examples=150)
@given(damaged_networks(most=2))
def test_what_is_not_blocked_stays_as_it_was(network: tuple[BCube, Failures]) -> None:
    """All that differs between the two lists is what cannot be, and the detours."""
    damage, links = Damage(*network), links_left(*network)
    bcube = damage.bcube
    try:
        schedule = detour(damage)
    except NotApplicableError:
        return
    numbers = [schedule.step_of(w) for w in range(bcube.k)]
    back = {number: w for w, number in enumerate(numbers)}
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
    failed = Failures(frozenset({1, 77}), nics, frozenset({(1, 4095)}))
    damage = Damage(BCube(16, 4), failed)
    schedule = detour(damage)
    assert schedule.changed
    context = CheckerContext(damage.bcube, damage.dead, damage.down)
    assert check(context, schedule) == "pieces"
    # The pieces concerned are few: they are followed one by one.
    for one in schedule.detours[:: max(1, len(schedule.detours) // 8)]:
        for part in one.parts[:1]:
            if one.thread * schedule.pieces + part.offset not in schedule.left_out:
                check_piece(context, schedule, one.thread, part.offset)
