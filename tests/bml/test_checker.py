"""The checker accepts what is right, and refuses every plan that is a little wrong."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from planner.families.bml import CheckerContext, Failures, Schedule, Transfer, check, checker
from planner.families.bml.checker import check_complete, check_form, check_piece
from planner.model.errors import InvalidPlanError
from planner.model.topologies import BCube
from planner.solving.deadline import Deadline, TimeUpError
from tests.bml.networks import SMALL, damaged_networks, small_bcubes
from tests.bml.plans import all_transfers, context_of

# --- mutations of the list of all transfers


OneOfMany = tuple[BCube, list[Transfer], int]


@st.composite
def one_of_many(draw: st.DrawFn) -> OneOfMany:
    """Draw a network without failures and one of its transfers."""
    bcube = draw(small_bcubes)
    transfers = all_transfers(Schedule(bcube))
    return bcube, transfers, draw(st.integers(0, len(transfers) - 1))


def refused(
    bcube: BCube, transfers: Iterable[Transfer], context: CheckerContext | None = None
) -> str:
    with pytest.raises(InvalidPlanError) as error:
        check_complete(context or CheckerContext(bcube, exclusive=True), Schedule(bcube), transfers)
    return error.value.message


@given(one_of_many())
def test_dropped_and_doubled_transfers_and_broken_links_are_found(drawn: OneOfMany) -> None:
    bcube, transfers, place = drawn
    one = transfers[place]
    refused(bcube, transfers[:place] + transfers[place + 1 :])
    twice = "sends it" if one.stage == "aggregate" else "gets the sum"
    assert f"{twice} 2 times" in refused(bcube, [*transfers, one])
    for end in (one.server, one.peer):
        for context in (
            CheckerContext(bcube, dead=frozenset({end})),
            CheckerContext(bcube, down=frozenset({(end, one.level)})),
        ):
            # By itself: else another transfer over the same NIC is refused in its place.
            assert refused(bcube, [one], context) == "takes no link that works"


def otherwise(bcube: BCube) -> dict[str, dict[str, st.SearchStrategy[object]]]:
    """Return how a transfer can be changed, by name."""
    servers, numbers = (st.integers(-1, bcube.servers + more) for more in (0, 1))
    levels, steps = st.integers(0, bcube.k - 1), st.integers(-1, bcube.k)
    return {
        "level": {"level": levels},
        "step": {"stage": st.sampled_from(["aggregate", "broadcast"]), "step": steps},
        "pieces": {"offset": numbers, "length": numbers},
        "peer": {"peer": servers},
        "server": {"server": servers},
        "thread": {"thread": steps},
        "link": {"level": levels, "peer": servers},
    }


@pytest.mark.parametrize("name", otherwise(SMALL[0]))
@given(drawn=one_of_many(), data=st.data())
def test_transfers_that_are_otherwise_are_found(
    name: str, drawn: OneOfMany, data: st.DataObject
) -> None:
    bcube, transfers, place = drawn
    one = transfers[place]
    changes = data.draw(st.fixed_dictionaries(otherwise(bcube)[name]))
    transfers[place] = one._replace(**changes)  # type: ignore[arg-type]
    assume(transfers[place] != one)
    for exclusive in (False, True):
        refused(bcube, transfers, CheckerContext(bcube, exclusive=exclusive))


def test_a_contribution_that_comes_back_is_found() -> None:
    """Server 0 of BCube(2, 2) sends to 1 what 3 owns, and gets it back in place of 3."""
    schedule = Schedule(BCube(2, 2))
    onward = Transfer(1, 0, "aggregate", 1, 1, 3, 3, 1)
    transfers = all_transfers(schedule)
    assert schedule.owner(0, 3) == 3
    assert {onward, Transfer(0, 0, "aggregate", 0, 0, 1, 2, 2)} <= {*transfers}
    transfers[transfers.index(onward)] = onward._replace(level=0, peer=0)
    said = refused(schedule.bcube, transfers, CheckerContext(schedule.bcube))
    assert "server 0 receives it when it has sent it" in said


def test_two_threads_on_one_link_are_found() -> None:
    """With a transfer of thread 1 in the name of thread 0, one link has two users.

    So has one NIC of a receiver if each thread sends over a NIC of its own.
    """
    bcube = BCube(3, 2)
    transfers = all_transfers(Schedule(bcube))
    one = next(transfer for transfer in transfers if transfer.thread == 1)
    clash = one._replace(thread=0)
    (other,) = set(bcube.neighbours(one.server, one.level)) - {one.peer}
    for sent in ([*transfers, clash], [one, clash._replace(server=other)]):
        assert "used by thread" in refused(bcube, sent)
        assert "used by thread" not in refused(bcube, sent, CheckerContext(bcube))


def test_a_complete_check_looks_at_the_clock() -> None:
    plan = Schedule(BCube(3, 2))
    with pytest.raises(TimeUpError):
        check_complete(CheckerContext(plan.bcube), plan, all_transfers(plan), Deadline(0))


# --- the two tiers, and why a sample says much: the schedule is symmetric


def accepts(check: Callable[..., None], *given: Any) -> bool:
    try:
        check(*given)
    except InvalidPlanError:
        return False
    return True


@given(damaged_networks(cut=True, most=2))
def test_both_tiers_say_the_same(network: tuple[BCube, Failures]) -> None:
    """Let an intact plan run on a broken network: each piece is right, or the plan is wrong."""
    context = context_of(*network)
    schedule = Schedule(context.bcube, context.dead)
    right = accepts(check_complete, context, schedule, all_transfers(schedule))
    assert right == all(
        accepts(check_piece, context, schedule, *one)
        for one in product(range(schedule.threads), range(schedule.pieces))
    )


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

    def hops(self, thread: int, piece: int) -> NDArray[np.int64]:
        if self.way is None:
            return self.plan.hops(thread, piece)
        return np.array(self.way, dtype=np.int64).reshape(-1, 4)


class Longer(Altered):
    """A plan whose transfers take one piece more with them."""

    def transfers(self, server: int) -> Iterator[Transfer]:
        for one in self.plan.transfers(server):
            if one.offset + one.length < self.plan.pieces:
                yield one._replace(length=one.length + 1)


class Silent(Altered):
    """A plan in which servers say nothing about their last step."""

    def transfers(self, server: int) -> Iterator[Transfer]:
        for one in self.plan.transfers(server):
            if (one.stage, one.step) != ("broadcast", self.plan.steps - 1):
                yield one


def test_every_piece_of_a_transfer_comes_closer_in_networks_too_large_to_follow() -> None:
    bcube = BCube(2, 19)
    for large in (bcube, BCube(2**20, 3)):
        assert check(CheckerContext(large), Schedule(large)) == "transfers"
    with pytest.raises(InvalidPlanError, match="closer"):
        check(CheckerContext(bcube), Longer(Schedule(bcube)))  # type: ignore[arg-type]


def test_servers_whose_transfers_do_not_follow_the_way_are_found() -> None:
    """At 65,536 servers some are asked what they send: it must be what pieces' ways say."""
    bcube = BCube(16, 4)
    assert bcube.servers**2 * bcube.nics > checker.COMPLETE_CELLS
    assert check(CheckerContext(bcube), Schedule(bcube)) == "pieces"
    with pytest.raises(InvalidPlanError, match="do not follow"):
        check(CheckerContext(bcube), Silent(Schedule(bcube)))  # type: ignore[arg-type]
    schedule = Schedule(BCube(3, 2))
    one, *rest = schedule.transfers(4)
    checker._check_agreement(schedule, one.thread, one.offset, {4}, [one, *rest])
    other = schedule.bcube.neighbours(4, 1 - one.level)[0]
    for wrong in (one._replace(peer=other), one._replace(step=1 - one.step)):
        with pytest.raises(InvalidPlanError, match="do not follow"):
            checker._check_agreement(schedule, one.thread, one.offset, {4}, [wrong, *rest])


PlacedWay = tuple[Schedule, int, int, Way, int]


@st.composite
def ways(draw: st.DrawFn) -> PlacedWay:
    """Draw a piece, its way, and one hop of that by its place."""
    schedule = Schedule(draw(small_bcubes))
    thread = draw(st.integers(0, schedule.threads - 1))
    piece = draw(st.integers(0, schedule.pieces - 1))
    way = schedule.hops(thread, piece).tolist()
    return schedule, thread, piece, way, draw(st.integers(0, len(way) - 1))


def lost(drawn: PlacedWay, way: Way, **broken: Any) -> str:
    """Return the faults of another way, in a network with failures or without."""
    schedule, thread, piece, *_ = drawn
    check_piece(CheckerContext(schedule.bcube), schedule, thread, piece)
    altered: Any = Altered(schedule, way)
    with pytest.raises(InvalidPlanError) as error:
        check_piece(CheckerContext(schedule.bcube, **broken), altered, thread, piece)
    return error.value.message


@given(ways(), st.data())
def test_ways_that_are_otherwise_are_found(drawn: PlacedWay, data: st.DataObject) -> None:
    schedule, thread, piece, way, place = drawn
    step, sender, receiver, level = hop = way[place]
    before, behind = way[:place], way[place + 1 :]
    assert "sends it 0 times" in lost(drawn, [*before, *behind])
    assert "sends it 2 times" in lost(drawn, [*way, hop])
    for later in (1, -1):
        moved = [[at + later, *other] for at, *other in way]
        assert "expected steps from 0" in lost(drawn, moved)
    # Who sends to another server on the same level closes a circle, or comes too late.
    wrong = data.draw(st.sampled_from([x for x in range(schedule.bcube.servers) if x != receiver]))
    lost(drawn, [*before, [step, sender, wrong, level], *behind])
    # Whichever end is broken; by itself, else another hop of the same server is refused.
    for end in (sender, receiver):
        assert "no link" in lost(drawn, [hop], down=frozenset({(end, level)}))
        its = "owner is dead" if end == schedule.owner(thread, piece) else "no link"
        assert its in lost(drawn, [hop], dead=frozenset({end}))


@given(ways(), st.data())
def test_a_hop_in_another_step_is_found(drawn: PlacedWay, data: st.DataObject) -> None:
    """Unless its sender still has all it gets, and its receiver has not sent yet: then it may."""
    schedule, thread, piece, way, place = drawn
    step, *hop = way[place]
    assume(schedule.steps > 1)
    new = data.draw(st.sampled_from([x for x in range(schedule.steps) if x != step]))
    mutated = [*way[:place], [new, *hop], *way[place + 1 :]]
    arrives = [at for at, _, other, _ in way if other == hop[0]]
    leaves = [at for at, other, *_ in way if other == hop[1]]
    if max(arrives, default=-1) < new < min(leaves, default=schedule.steps):
        altered: Any = Altered(schedule, mutated)
        check_piece(CheckerContext(schedule.bcube), altered, thread, piece)
    else:
        assert "receives it when it has sent it" in lost(drawn, mutated)


@pytest.mark.parametrize("rounds", [0, -1, 1.0, True])
def test_rounds_of_a_schedule_are_an_integer_above_0(rounds: Any) -> None:
    schedule = Schedule(BCube(2, 2))
    object.__setattr__(schedule, "rounds", rounds)  # a schedule of a file, or changed by hand
    with pytest.raises(InvalidPlanError, match="expected an integer >= 1") as error:
        check_form(schedule.bcube, schedule)
    assert error.value.path == "rounds"
