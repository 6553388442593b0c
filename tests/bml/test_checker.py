"""The checker accepts what is right, and refuses every plan that is a little wrong."""

from collections.abc import Iterable
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.families.bml import CheckerContext, Failures, Schedule, Transfer, check
from planner.families.bml.checker import COMPLETE_CELLS, check_complete, check_piece
from planner.families.bml.reroute import Damage, detour
from planner.model.errors import InvalidPlanError, NotApplicableError
from planner.model.topologies import BCube
from planner.solving.deadline import NEVER, Deadline, TimeUpError
from tests.bml.networks import SMALL, damaged_networks, small_bcubes
from tests.bml.plans import all_transfers

LARGER = [*SMALL, BCube(3, 3), BCube(5, 2), BCube(2, 5)]


@pytest.mark.parametrize("bcube", LARGER, ids=str)
def test_intact_plans_are_right(bcube: BCube) -> None:
    context, schedule = CheckerContext(bcube, exclusive=True), Schedule(bcube)
    check_complete(context, schedule, all_transfers(schedule))
    for thread, piece in product(range(schedule.threads), range(schedule.pieces)):
        check_piece(context, schedule, thread, piece)
    assert check(context, schedule) == "complete"


def test_plans_of_65536_servers_are_followed_piece_by_piece() -> None:
    bcube = BCube(16, 4)
    assert bcube.servers**2 * bcube.nics > COMPLETE_CELLS
    assert check(CheckerContext(bcube), Schedule(bcube)) == "pieces"


# --- mutations of the list of all transfers


@st.composite
def one_of_many(draw: st.DrawFn) -> tuple[BCube, list[Transfer], int]:
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
def test_dropped_and_doubled_transfers_are_found(drawn: tuple[BCube, list[Transfer], int]) -> None:
    bcube, transfers, place = drawn
    refused(bcube, transfers[:place] + transfers[place + 1 :])
    twice = "sends it" if transfers[place].stage == "aggregate" else "gets the sum"
    assert f"{twice} 2 times" in refused(bcube, [*transfers, transfers[place]])


def otherwise(bcube: BCube) -> dict[str, dict[str, st.SearchStrategy[object]]]:
    """Return how a transfer can be changed, by name."""
    servers, numbers = (st.integers(-1, bcube.servers + more) for more in (0, 1))
    return {
        "level": {"level": st.integers(0, bcube.k - 1)},
        "step": {
            "stage": st.sampled_from(["aggregate", "broadcast"]),
            "step": st.integers(-1, bcube.k),
        },
        "pieces": {"offset": numbers, "length": numbers},
        "offset": {"offset": numbers},
        "length": {"length": numbers},
        "peer": {"peer": servers},
        "server": {"server": servers},
        "thread": {"thread": st.integers(-1, bcube.k)},
        "link": {"level": st.integers(0, bcube.k - 1), "peer": servers},
    }


@pytest.mark.parametrize("name", otherwise(SMALL[0]))
@given(drawn=one_of_many(), data=st.data())
def test_transfers_that_are_otherwise_are_found(
    name: str, drawn: tuple[BCube, list[Transfer], int], data: st.DataObject
) -> None:
    bcube, transfers, place = drawn
    one = transfers[place]
    changes = data.draw(st.fixed_dictionaries(otherwise(bcube)[name]))
    transfers[place] = one._replace(**changes)  # type: ignore[arg-type]
    assume(transfers[place] != one)
    for exclusive in (False, True):
        refused(bcube, transfers, CheckerContext(bcube, exclusive=exclusive))


@given(one_of_many())
def test_dead_servers_and_broken_links_are_found(
    drawn: tuple[BCube, list[Transfer], int],
) -> None:
    bcube, transfers, place = drawn
    one = transfers[place]
    for end in (one.server, one.peer):
        for context in (
            CheckerContext(bcube, dead=frozenset({end})),
            CheckerContext(bcube, down=frozenset({(end, one.level)})),
        ):
            # By itself: else another transfer over the same NIC is refused in its place.
            assert refused(bcube, [one], context) == "takes no link that works"


@settings(max_examples=50)
@given(damaged_networks(most=2), st.data())
def test_dropped_detours_are_found(network: tuple[BCube, Failures], data: st.DataObject) -> None:
    """Whatever carries a piece in use is needed around failures too."""
    damage = Damage(*network)
    try:
        schedule = detour(damage)
    except NotApplicableError:
        assume(condition=False)
    context = CheckerContext(damage.bcube, damage.dead, damage.down)
    transfers = all_transfers(schedule)
    check_complete(context, schedule, transfers)
    used = [
        place
        for place, one in enumerate(transfers)
        if any(
            one.thread * schedule.pieces + piece not in schedule.left_out
            for piece in range(one.offset, one.offset + one.length)
        )
    ]
    assume(used)
    place = data.draw(st.sampled_from(used))
    for mutated in (
        transfers[:place] + transfers[place + 1 :],
        [*transfers, transfers[place]],
    ):
        with pytest.raises(InvalidPlanError):
            check_complete(context, schedule, mutated)


def test_a_contribution_that_comes_back_is_found() -> None:
    """Server 0 of BCube(2, 2) sends to 1 what 3 owns, and gets it back in place of 3."""
    schedule = Schedule(BCube(2, 2))
    onward = Transfer(1, 0, "aggregate", 1, 1, 3, 3, 1)
    transfers = all_transfers(schedule)
    assert schedule.owner(0, 3) == 3
    assert {onward, Transfer(0, 0, "aggregate", 0, 0, 1, 2, 2)} <= {*transfers}
    transfers[transfers.index(onward)] = onward._replace(level=0, peer=0)
    assert "server 0 receives it when it has sent it" in refused(
        schedule.bcube, transfers, CheckerContext(schedule.bcube)
    )


def test_two_threads_on_one_link_are_found() -> None:
    """With a transfer of thread 1 in the name of thread 0, one link has two users."""
    bcube = BCube(2, 2)
    transfers = all_transfers(Schedule(bcube))
    clash = next(transfer for transfer in transfers if transfer.thread == 1)._replace(thread=0)
    assert "used by thread" in refused(bcube, [*transfers, clash])
    assert "used by thread" not in refused(bcube, [*transfers, clash], CheckerContext(bcube))


def test_two_threads_that_send_to_one_server_are_found() -> None:
    """Over one NIC of the receiver, though each over a NIC of its own."""
    bcube = BCube(3, 2)
    transfers = [one for one in all_transfers(Schedule(bcube)) if one.thread == 1]
    one = transfers[0]
    (other,) = set(bcube.neighbours(one.server, one.level)) - {one.peer}
    clash = one._replace(thread=0, server=other)
    assert "used by thread" in refused(bcube, [one, clash])
    assert "used by thread" not in refused(bcube, [one, clash], CheckerContext(bcube))


# --- the two tiers, and why a sample says much: the schedule is symmetric


@given(damaged_networks(cut=True, most=2), st.data())
def test_both_tiers_say_the_same(network: tuple[BCube, Failures], data: st.DataObject) -> None:
    """Let an intact plan run on a broken network: each piece is right, or the plan is wrong."""
    bcube, failed = network
    damage = Damage(bcube, failed)
    context = CheckerContext(bcube, damage.dead, damage.down)
    schedule = Schedule(bcube, damage.dead)
    try:
        check_complete(context, schedule, all_transfers(schedule))
        right = True
    except InvalidPlanError:
        right = False
    rights = []
    for thread, piece in product(range(schedule.threads), range(schedule.pieces)):
        try:
            check_piece(context, schedule, thread, piece)
            rights.append(True)
        except InvalidPlanError:
            rights.append(False)
    assert right == all(rights)


def test_a_complete_check_looks_at_the_clock() -> None:
    bcube = BCube(3, 2)
    plan = Schedule(bcube)
    check_complete(CheckerContext(bcube), plan, all_transfers(plan), NEVER)
    with pytest.raises(TimeUpError):
        check_complete(CheckerContext(bcube), plan, all_transfers(plan), Deadline(0))
