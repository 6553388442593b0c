"""The checker of networks too large to follow looks at ways of pieces, and refuses wrong ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.families.bml import Ground, Schedule, Transfer, check
from planner.families.bml.checker import _check_agreement, check_piece
from planner.families.bml.problem import Hops
from planner.model.errors import InvalidPlanError
from planner.model.topologies import BCube
from tests.bml.networks import small_bcubes

# --- mutations of the way of one piece


@dataclass(frozen=True)
class Altered:
    """A plan of which one thing differs: the way of its pieces."""

    plan: Schedule
    way: tuple[Hops, ...] | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self.plan, name)

    def hops(self, thread: int, piece: int) -> Iterator[Hops]:
        return self.plan.hops(thread, piece) if self.way is None else iter(self.way)

    def transfers(self, server: int) -> Iterator[Transfer]:
        return self.plan.transfers(server)


@dataclass(frozen=True)
class Longer(Altered):
    """A plan whose transfers take one piece more with them."""

    def transfers(self, server: int) -> Iterator[Transfer]:
        for transfer in self.plan.transfers(server):
            if transfer.offset + transfer.length < self.plan.pieces:
                yield transfer._replace(length=transfer.length + 1)


def test_every_piece_of_a_transfer_comes_closer_in_networks_too_large_to_follow() -> None:
    bcube = BCube(2, 19)
    assert check(Ground(bcube), Schedule(bcube)) == "transfers"
    with pytest.raises(InvalidPlanError, match="closer"):
        check(Ground(bcube), Longer(Schedule(bcube)))  # type: ignore[arg-type]


@given(small_bcubes, st.data())
def test_broken_links_on_the_way_of_a_piece_are_found(bcube: BCube, data: st.DataObject) -> None:
    """Whichever end is broken; by itself, else another hop of the same server is refused."""
    schedule = Schedule(bcube)
    thread = data.draw(st.integers(0, schedule.threads - 1))
    piece = data.draw(st.integers(0, schedule.pieces - 1))
    hops = data.draw(st.sampled_from(list(schedule.hops(thread, piece))))
    place = data.draw(st.integers(0, len(hops.senders) - 1))
    ends = int(hops.senders[place]), int(hops.receivers[place])
    only = Hops(hops.step, *(hop[place : place + 1] for hop in hops[1:]))
    plan: Any = Altered(schedule, (only,))
    for end in ends:
        broken = frozenset({(end, int(hops.levels[place]))})
        with pytest.raises(InvalidPlanError, match="no link"):
            check_piece(Ground(bcube, down=broken), plan, thread, piece)
        if end != schedule.owner(thread, piece):
            with pytest.raises(InvalidPlanError, match="no link"):
                check_piece(Ground(bcube, dead=frozenset({end})), plan, thread, piece)


@st.composite
def ways(draw: st.DrawFn) -> tuple[Schedule, int, int, list[Hops], int, int]:
    """Draw a piece, its way, and one hop of that: which step, and which place there."""
    schedule = Schedule(draw(small_bcubes))
    thread = draw(st.integers(0, schedule.threads - 1))
    piece = draw(st.integers(0, schedule.pieces - 1))
    way = list(schedule.hops(thread, piece))
    step = draw(st.integers(0, len(way) - 1))
    return schedule, thread, piece, way, step, draw(st.integers(0, len(way[step].senders) - 1))


def lost(drawn: tuple[Schedule, int, int, list[Hops], int, int], way: list[Hops]) -> str:
    schedule, thread, piece, *_ = drawn
    check_piece(Ground(schedule.bcube), schedule, thread, piece)
    with pytest.raises(InvalidPlanError) as error:
        check_piece(
            Ground(schedule.bcube),
            Altered(schedule, tuple(way)),  # type: ignore[arg-type]
            thread,
            piece,
        )
    return error.value.message


def without(hops: Hops, place: int) -> Hops:
    return Hops(hops.step, *(np.delete(hop, place) for hop in hops[1:]))


def beside(hops: Hops, others: Hops, place: int) -> Hops:
    return Hops(
        hops.step,
        *(np.append(one, other[place]) for one, other in zip(hops[1:], others[1:], strict=True)),
    )


def test_servers_whose_transfers_do_not_follow_the_way_are_found() -> None:
    schedule = Schedule(BCube(3, 2))
    sent = list(schedule.transfers(4))
    one = sent[0]
    _check_agreement(schedule, one.thread, one.offset, {4}, sent)
    other = schedule.bcube.neighbours(4, 1 - one.level)[0]
    for wrong in (one._replace(peer=other), one._replace(step=1 - one.step)):
        with pytest.raises(InvalidPlanError, match="do not follow"):
            _check_agreement(schedule, one.thread, one.offset, {4}, [wrong, *sent[1:]])


@given(ways())
def test_a_dropped_hop_is_found(drawn: tuple[Schedule, int, int, list[Hops], int, int]) -> None:
    *_, way, step, place = drawn
    assert "sends it 0 times" in lost(
        drawn, [*way[:step], without(way[step], place), *way[step + 1 :]]
    )


@given(ways())
def test_a_doubled_hop_is_found(drawn: tuple[Schedule, int, int, list[Hops], int, int]) -> None:
    *_, way, step, place = drawn
    assert "sends it 2 times" in lost(
        drawn, [*way[:step], beside(way[step], way[step], place), *way[step + 1 :]]
    )


@given(ways(), st.data())
def test_a_hop_in_another_step_is_found(
    drawn: tuple[Schedule, int, int, list[Hops], int, int], data: st.DataObject
) -> None:
    """Unless its sender still has all it gets, and its receiver has not sent yet: then it may."""
    schedule, thread, piece, way, step, place = drawn
    assume(len(way) > 1)
    new = data.draw(st.sampled_from([x for x in range(len(way)) if x != step]))
    mutated = list(way)
    mutated[new] = beside(way[new], way[step], place)
    mutated[step] = without(way[step], place)
    sender, receiver = int(way[step].senders[place]), int(way[step].receivers[place])
    arrives = [x for x, hops in enumerate(way) if sender in hops.receivers]
    leaves = [x for x, hops in enumerate(way) if receiver in hops.senders]
    if max(arrives, default=-1) < new < min(leaves, default=len(way)):
        altered = Altered(schedule, tuple(mutated))
        check_piece(Ground(schedule.bcube), altered, thread, piece)  # type: ignore[arg-type]
    else:
        assert "receives it when it has sent it" in lost(drawn, mutated)


@given(ways(), st.data())
def test_another_receiver_is_found(
    drawn: tuple[Schedule, int, int, list[Hops], int, int], data: st.DataObject
) -> None:
    """Who sends to another server on the same level closes a circle, or comes too late."""
    schedule, _, _, way, step, place = drawn
    hops, bcube = way[step], schedule.bcube
    right = int(hops.receivers[place])
    others = [x for x in range(bcube.servers) if x != right]
    receivers = hops.receivers.copy()
    receivers[place] = data.draw(st.sampled_from(others))
    lost(drawn, [*way[:step], hops._replace(receivers=receivers), *way[step + 1 :]])


@given(ways())
def test_steps_out_of_order_are_found(
    drawn: tuple[Schedule, int, int, list[Hops], int, int],
) -> None:
    *_, way, step, _ = drawn
    assert "comes after" in lost(
        drawn, [*way[: step + 1], way[step]._replace(step=step), *way[step + 1 :]]
    )
    later = [one._replace(step=one.step + 1) for one in way]
    assert "expected steps from 0" in lost(drawn, later)


@given(ways())
def test_pieces_of_the_dead_and_broken_hops_are_found(
    drawn: tuple[Schedule, int, int, list[Hops], int, int],
) -> None:
    schedule, thread, piece, way, step, place = drawn
    bcube, owner = schedule.bcube, schedule.owner(thread, piece)
    with pytest.raises(InvalidPlanError, match="owner is dead"):
        check_piece(Ground(bcube, dead=frozenset({owner})), schedule, thread, piece)
    level = int(way[step].levels[place])
    for end in (int(way[step].senders[place]), int(way[step].receivers[place])):
        grounds = [Ground(bcube, down=frozenset({(end, level)}))]
        if end != owner:
            grounds.append(Ground(bcube, dead=frozenset({end})))
        for ground in grounds:
            with pytest.raises(InvalidPlanError, match="no link"):
                check_piece(ground, schedule, thread, piece)


def test_servers_that_say_something_else_are_found() -> None:
    """At 65,536 servers some are asked what they send: it must be what pieces' ways say."""
    bcube = BCube(16, 4)
    with pytest.raises(InvalidPlanError, match="do not follow"):
        check(Ground(bcube), Silent(Schedule(bcube)))  # type: ignore[arg-type]


class Silent(Altered):
    """A plan in which servers say nothing about their last step."""

    def transfers(self, server: int) -> Iterator[Transfer]:
        last = ("broadcast", self.plan.steps - 1)
        return (
            transfer
            for transfer in self.plan.transfers(server)
            if (transfer.stage, transfer.step) != last
        )


def test_of_the_largest_networks_some_transfers_are_seen() -> None:
    bcube = BCube(2**20, 3)
    assert check(Ground(bcube), Schedule(bcube)) == "transfers"
    with pytest.raises(InvalidPlanError, match="closer"):
        check(Ground(bcube), Elsewhere(Schedule(bcube)))  # type: ignore[arg-type]


class Elsewhere(Altered):
    """A plan in which servers send the pieces beside those they should."""

    def transfers(self, server: int) -> Iterator[Transfer]:
        for transfer in self.plan.transfers(server):
            start = (transfer.offset + transfer.length) % self.plan.pieces
            yield transfer._replace(offset=start)
