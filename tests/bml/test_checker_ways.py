"""The checker of networks too large to follow looks at ways of pieces, and refuses wrong ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.families.bml import CheckerContext, Schedule, Transfer, check
from planner.families.bml.checker import _check_agreement, check_piece
from planner.model.errors import InvalidPlanError
from planner.model.topologies import BCube
from tests.bml.networks import small_bcubes

if TYPE_CHECKING:
    from numpy.typing import NDArray

# --- mutations of the way of one piece

Way = list[list[int]]
"""Step, sender, receiver and level of each transfer of a piece, on its way up."""


@dataclass(frozen=True)
class Altered:
    """A plan of which one thing differs: the way of its pieces."""

    plan: Schedule
    way: Way | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self.plan, name)

    def hops(self, thread: int, piece: int) -> "NDArray[np.int64]":
        if self.way is None:
            return self.plan.hops(thread, piece)
        return np.array(self.way, dtype=np.int64).reshape(-1, 4)

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
    for large in (bcube, BCube(2**20, 3)):
        assert check(CheckerContext(large), Schedule(large)) == "transfers"
    with pytest.raises(InvalidPlanError, match="closer"):
        check(CheckerContext(bcube), Longer(Schedule(bcube)))  # type: ignore[arg-type]


@given(small_bcubes, st.data())
def test_broken_links_on_the_way_of_a_piece_are_found(bcube: BCube, data: st.DataObject) -> None:
    """Whichever end is broken; by itself, else another hop of the same server is refused."""
    schedule = Schedule(bcube)
    thread = data.draw(st.integers(0, schedule.threads - 1))
    piece = data.draw(st.integers(0, schedule.pieces - 1))
    only = data.draw(st.sampled_from(schedule.hops(thread, piece).tolist()))
    _, *ends, level = only
    plan: Any = Altered(schedule, [only])
    for end in ends:
        broken = frozenset({(end, level)})
        with pytest.raises(InvalidPlanError, match="no link"):
            check_piece(CheckerContext(bcube, down=broken), plan, thread, piece)
        if end == schedule.owner(thread, piece):
            with pytest.raises(InvalidPlanError, match="owner is dead"):
                check_piece(CheckerContext(bcube, dead=frozenset({end})), plan, thread, piece)
        else:
            with pytest.raises(InvalidPlanError, match="no link"):
                check_piece(CheckerContext(bcube, dead=frozenset({end})), plan, thread, piece)


@st.composite
def ways(draw: st.DrawFn) -> tuple[Schedule, int, int, Way, int]:
    """Draw a piece, its way, and one hop of that by its place."""
    schedule = Schedule(draw(small_bcubes))
    thread = draw(st.integers(0, schedule.threads - 1))
    piece = draw(st.integers(0, schedule.pieces - 1))
    way = schedule.hops(thread, piece).tolist()
    return schedule, thread, piece, way, draw(st.integers(0, len(way) - 1))


def lost(drawn: tuple[Schedule, int, int, Way, int], way: Way) -> str:
    schedule, thread, piece, *_ = drawn
    check_piece(CheckerContext(schedule.bcube), schedule, thread, piece)
    altered: Any = Altered(schedule, way)
    with pytest.raises(InvalidPlanError) as error:
        check_piece(CheckerContext(schedule.bcube), altered, thread, piece)
    return error.value.message


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
def test_dropped_and_doubled_hops_are_found(drawn: tuple[Schedule, int, int, Way, int]) -> None:
    *_, way, place = drawn
    assert "sends it 0 times" in lost(drawn, [*way[:place], *way[place + 1 :]])
    assert "sends it 2 times" in lost(drawn, [*way, way[place]])


@given(ways(), st.data())
def test_a_hop_in_another_step_is_found(
    drawn: tuple[Schedule, int, int, Way, int], data: st.DataObject
) -> None:
    """Unless its sender still has all it gets, and its receiver has not sent yet: then it may."""
    schedule, thread, piece, way, place = drawn
    step, sender, receiver, level = way[place]
    assume(schedule.steps > 1)
    new = data.draw(st.sampled_from([x for x in range(schedule.steps) if x != step]))
    mutated = [*way[:place], [new, sender, receiver, level], *way[place + 1 :]]
    arrives = [at for at, _, other, _ in way if other == sender]
    leaves = [at for at, other, *_ in way if other == receiver]
    if max(arrives, default=-1) < new < min(leaves, default=schedule.steps):
        altered: Any = Altered(schedule, mutated)
        check_piece(CheckerContext(schedule.bcube), altered, thread, piece)
    else:
        assert "receives it when it has sent it" in lost(drawn, mutated)


@given(ways(), st.data())
def test_another_receiver_is_found(
    drawn: tuple[Schedule, int, int, Way, int], data: st.DataObject
) -> None:
    """Who sends to another server on the same level closes a circle, or comes too late."""
    schedule, _, _, way, place = drawn
    step, sender, right, level = way[place]
    wrong = data.draw(st.sampled_from([x for x in range(schedule.bcube.servers) if x != right]))
    lost(drawn, [*way[:place], [step, sender, wrong, level], *way[place + 1 :]])


@given(ways())
def test_steps_that_the_plan_has_not_are_found(drawn: tuple[Schedule, int, int, Way, int]) -> None:
    *_, way, _ = drawn
    for later in (1, -1):
        moved = [[step + later, *hop] for step, *hop in way]
        assert "expected steps from 0" in lost(drawn, moved)


def test_servers_that_say_something_else_are_found() -> None:
    """At 65,536 servers some are asked what they send: it must be what pieces' ways say."""
    bcube = BCube(16, 4)
    with pytest.raises(InvalidPlanError, match="do not follow"):
        check(CheckerContext(bcube), Silent(Schedule(bcube)))  # type: ignore[arg-type]


class Silent(Altered):
    """A plan in which servers say nothing about their last step."""

    def transfers(self, server: int) -> Iterator[Transfer]:
        last = ("broadcast", self.plan.steps - 1)
        return (
            transfer
            for transfer in self.plan.transfers(server)
            if (transfer.stage, transfer.step) != last
        )
