"""What is listed: the transfers of the plan, layer by layer and part by part, byte by byte."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.families.bml import Damage, Problem, Schedule, TreePlan
from planner.families.bml.evaluation import Listed, listed, parts_of
from planner.families.bml.methods import balanced
from planner.families.bml.problem import Transfer
from planner.families.bml.reroute import detour
from planner.families.bml.schedule import FULL_WEIGHT
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.solving.deadline import Deadline, TimeUpError
from tests.bml.networks import single_failures
from tests.bml.plans import detoured, intact, problems, tree_planned
from tests.bml.simulator import parts_of as cut
from tests.bml.simulator import sizes_of

AnyPlan = Schedule | TreePlan
Planned = tuple[Problem, AnyPlan]
LINKS = Network(10**9)  # type: ignore[arg-type]


class Piece(NamedTuple):
    """Some bytes of the gradient, and what they belong to."""

    layer: int
    part: int
    number: int
    bytes: range


@st.composite
def lighter(draw: st.DrawFn) -> Planned:
    """Draw a plan in which some ranges of pieces weigh less than others, or nothing."""
    problem, plan = draw(st.one_of(intact(rounds=3), detoured()))
    count = plan.threads * plan.pieces
    ends = sorted(draw(st.sets(st.integers(0, count), max_size=6)))
    light = tuple(zip(ends[::2], ends[1::2], strict=False))
    covered = {piece for start, stop in light for piece in range(start, stop)}
    assume(light and len(covered | set(plan.left_out)) < count)
    weight = draw(st.integers(0, FULL_WEIGHT - 1))
    return problem, replace(plan, light=light, light_weight=weight)


@st.composite
def balanced_plans(draw: st.DrawFn) -> Planned:
    """Draw a plan in which servers with fewer NICs sum up less."""
    bcube = BCube(2, 3)
    damage = Damage(bcube, draw(st.sampled_from(single_failures(bcube))))
    return draw(problems(bcube, damage.failed)), balanced(detour(damage), damage)


planned = st.one_of(intact(rounds=5), detoured(), tree_planned(), lighter(), balanced_plans())


def pieces_of(problem: Problem, plan: AnyPlan) -> list[Piece]:
    """Cut the gradient: the last layer first, each into parts, each part into pieces."""
    found = []
    ends = [sum(problem.chunks[: layer + 1]) for layer in range(len(problem.chunks))]
    for layer in reversed(range(len(problem.chunks))):
        place = ends[layer] - problem.chunks[layer]
        elements = problem.chunks[layer] // problem.element_bytes
        for part, some in enumerate(cut(elements, plan.rounds)):
            for number, size in enumerate(sizes_of(plan, some)):
                stop = place + size * problem.element_bytes
                found.append(Piece(layer, part, number, range(place, stop)))
                place = stop
        assert place == ends[layer]
    return found


def everything(problem: Problem, plan: AnyPlan) -> list[Listed]:
    return [row for server in range(plan.bcube.servers) for row in listed(problem, plan, server)]


def in_turn(row: Listed) -> tuple[int, ...]:
    """One part of one layer after the other."""
    moved = row.transfer
    return -row.layer, row.part, moved.stage == "broadcast", moved.step


@given(planned)
def test_what_is_listed_is_what_is_sent(case: Planned) -> None:
    """Each transfer of each part of each layer that moves any bytes, and just these bytes."""
    problem, plan = case
    by_part: dict[tuple[int, int], list[range]] = {}
    for one in pieces_of(problem, plan):
        by_part.setdefault((one.layer, one.part), []).append(one.bytes)
    for server in range(plan.bcube.servers):
        expected = []
        for (layer, part), pieces in by_part.items():
            for moved in plan.transfers(server):
                first = moved.thread * plan.pieces + moved.offset
                bytes_ = [byte for piece in pieces[first : first + moved.length] for byte in piece]
                if bytes_:
                    assert bytes_ == list(range(bytes_[0], bytes_[-1] + 1))
                    expected.append(Listed(moved, layer, part, bytes_[0], len(bytes_)))
        assert list(listed(problem, plan, server)) == expected == sorted(expected, key=in_turn)
        assert {row.transfer.server for row in expected} <= {server} - problem.failed.servers
        for row in expected:
            assert row.transfer.length > 0
            assert row.length_bytes > 0
            assert row.length_bytes % problem.element_bytes == 0


def test_an_example_by_hand() -> None:
    """BCube(2, 1): server 0 owns the first piece of each part, server 1 the other."""
    problem = Problem(BCube(2, 1), LINKS, None, (10, 6), 2)
    plan = Schedule(problem.bcube, rounds=2)
    assert list(parts_of(problem, 2)) == [(1, 0, 10, 2), (1, 1, 14, 1), (0, 0, 0, 3), (0, 1, 6, 2)]
    up = Transfer(0, 0, "aggregate", 0, 0, 1, 1, 1)
    down = Transfer(0, 0, "broadcast", 0, 0, 1, 0, 1)
    assert list(listed(problem, plan, 0)) == [
        Listed(up, 1, 0, 12, 2),
        Listed(down, 1, 0, 10, 2),
        Listed(down, 1, 1, 14, 2),
        Listed(up, 0, 0, 4, 2),
        Listed(down, 0, 0, 0, 4),
        Listed(up, 0, 1, 8, 2),
        Listed(down, 0, 1, 6, 2),
    ]


def test_nothing_is_sent_of_nothing() -> None:
    for layers in ((), (0, 0)):
        problem = Problem(BCube(3, 2), LINKS, 0, layers)
        plan = Schedule(problem.bcube, rounds=3)
        assert list(parts_of(problem, 3)) == []
        assert everything(problem, plan) == []


def test_a_few_transfers_of_a_huge_network_are_listed_at_once() -> None:
    """Offsets are closed forms: nobody walks over the 2^40 servers' pieces."""
    bcube = BCube(4, 20)
    each = 1000
    problem = Problem(bcube, LINKS, bcube.nics * each)
    rows = list(listed(problem, Schedule(bcube), bcube.servers - 1))
    assert len(rows) == 2 * 20 * 20 * 3
    for row in rows:
        first = row.transfer.thread * bcube.servers + row.transfer.offset
        assert (row.offset_bytes, row.length_bytes) == (first * each, row.transfer.length * each)


@pytest.mark.parametrize("bcube", [BCube(2, 30), BCube(46341, 2), BCube(2, 40), BCube(4096, 3)])
def test_places_in_huge_networks_do_not_overflow(bcube: BCube) -> None:
    size = 2**62 - 1
    problem = Problem(bcube, LINKS, size)
    plan = Schedule(bcube)
    layout = plan.layout(size, 1)
    rows = islice(listed(problem, plan, bcube.servers - 2), 3000)
    moved = {row.transfer: (row.offset_bytes, row.length_bytes) for row in rows}
    for transfer in islice(plan.transfers(bcube.servers - 2), 2000):
        first = transfer.thread * bcube.servers + transfer.offset
        start, stop = (
            -(-size * number // bcube.nics) for number in (first, first + transfer.length)
        )
        # Threads begin where the pieces before them end; inside, each rounds up by itself.
        assert abs(layout.start(first) - start) <= 1
        assert moved.get(transfer, (layout.start(first), 0)) == (
            layout.start(first),
            layout.span(first, transfer.length),
        )
        assert abs(layout.start(first + transfer.length) - stop) <= 1


def test_a_server_with_next_to_nothing_to_send_looks_at_the_clock() -> None:
    problem = Problem(BCube(64, 3), LINKS, 1)
    with pytest.raises(TimeUpError):
        list(listed(problem, Schedule(problem.bcube), 1234, Deadline(0)))


def test_transfers_of_many_layers_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the same for each; only where the bytes are differs."""
    made = []
    before = Schedule.transfers

    def counted(plan: Schedule, server: int) -> Iterator[Transfer]:
        made.append(server)
        return before(plan, server)

    monkeypatch.setattr(Schedule, "transfers", counted)
    problem = Problem(BCube(2, 2), LINKS, layer_bytes=(100, 40, 0, 600))
    plan = Schedule(problem.bcube)
    layers = [entry.layer for entry in listed(problem, plan, 3)]
    assert made == [3]
    assert layers == sorted(layers, reverse=True)
    assert set(layers) == {0, 1, 3}
