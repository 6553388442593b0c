"""The price of a plan is what a literal simulation adds up, and what is listed what is sent.

The simulation: every transfer of every server, every byte, every NIC.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, islice, pairwise, product
from math import ceil
from typing import TypeVar
from unittest.mock import call, patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.bml import (
    Damage,
    Failures,
    Plan,
    Problem,
    Schedule,
    TreePlan,
    evaluate,
    lower_bound_ns,
)
from planner.families.bml.evaluation import Listed, listed, loads
from planner.families.bml.reroute import detour
from planner.families.bml.schedule import FULL_WEIGHT
from planner.families.collectives.layout import EvenLayout, RangedLayout
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.solving.deadline import Deadline, TimeUpError
from tests.bml.plans import NET, Planned, all_transfers, planned
from tests.formats.refused import refused

Size = TypeVar("Size", int, Fraction)
Nic = tuple[int, int, str]
"""Server, level and direction."""


def shares_of(plan: Plan) -> list[Fraction]:
    """Return the share of each piece in a gradient that could be cut as finely as one likes."""
    if isinstance(plan, TreePlan):
        return list(plan.shares)

    def weight(number: int) -> int:
        if number in plan.left_out:
            return 0
        is_light = any(first <= number < stop for first, stop in plan.light)
        return plan.light_weight if is_light else 64

    weights = list(map(weight, range(plan.threads * plan.pieces)))
    return [Fraction(weight, sum(weights)) for weight in weights]


def sizes_of(plan: Plan, elements: int) -> list[int]:
    """Return the elements of every piece, in the order of their numbers."""
    if isinstance(plan, Schedule) and plan.light_weight == 64:
        return even_sizes(plan, elements)
    ends = (int(share * elements // 1) for share in accumulate(shares_of(plan)))
    return [stop - start for start, stop in pairwise([0, *ends])]


def even_sizes(plan: Schedule, elements: int) -> list[int]:
    """Share elements among threads by their pieces in use, and among these."""
    sizes = [0] * (plan.threads * plan.pieces)
    in_use = [number for number in range(len(sizes)) if number not in plan.left_out]
    before = end = 0
    for thread in range(plan.threads):
        mine = [number for number in in_use if number // plan.pieces == thread]
        before += len(mine)
        start, end = end, ceil(Fraction(before * elements, len(in_use)))
        ends = (ceil(Fraction(n * (end - start), len(mine))) for n in range(1, len(mine) + 1))
        for number, (first, stop) in zip(mine, pairwise([0, *ends]), strict=True):
            sizes[number] = stop - first
    return sizes


def parts_of(elements: int, rounds: int) -> list[int]:
    """Return the elements of the parts that follow each other, longer ones first."""
    return [elements // rounds + (part < elements % rounds) for part in range(rounds)]


def carried(plan: Plan, sizes: Sequence[Size]) -> list[dict[Nic, Size]]:
    """Return the bytes on each NIC in each step, for pieces of these sizes."""
    found: list[dict[Nic, Size]] = [defaultdict(type(sizes[0])) for _ in range(2 * plan.steps)]
    for one in all_transfers(plan):
        step = one.step if one.stage == "aggregate" else plan.steps + one.step
        first = one.thread * plan.pieces + one.offset
        for nic in ((one.server, one.level, "sends"), (one.peer, one.level, "receives")):
            for size in sizes[first : first + one.length]:
                found[step][nic] += size
    return found


def simulated_ns(problem: Problem, plan: Plan) -> int:
    """Add up what each NIC carries in each step, and what each server adds."""
    network, width = problem.network, problem.element_bytes
    time = Fraction(0)
    for chunk in problem.chunks:
        moved: dict[int, Counter[Nic]] = defaultdict(Counter)
        added: dict[int, Counter[int]] = defaultdict(Counter)
        for part, elements in enumerate(parts_of(chunk // width, plan.rounds)):
            for step, nics in enumerate(carried(plan, sizes_of(plan, elements))):
                moved[step + part].update(nics)
                for (server, _, way), size in nics.items():
                    if step < plan.steps and way == "receives":
                        added[step + part][server] += size
        for step, busy in moved.items():
            if most := max(busy.values(), default=0):
                adding = width * max(added[step].values(), default=0)
                sending = Fraction(width * most * 10**9) / network.link_bytes_per_s
                time += network.startup_ns + sending + adding * network.reduce_ns_per_byte
    return ceil(time)


def assert_priced(problem: Problem, plan: Plan) -> None:
    priced = evaluate(problem, plan)
    assert priced.time_ns == simulated_ns(problem, plan)
    load: Counter[Nic] = Counter()
    for nics in carried(plan, shares_of(plan)):
        load.update(nics)
    assert priced.load == max(load.values(), default=0)
    used = [int(number not in plan.left_out) for number in range(plan.threads * plan.pieces)]
    most_pieces = [max(nics.values(), default=0) for nics in carried(plan, used)]
    assert [step.pieces for step in priced.steps] == most_pieces
    stages = product(("aggregate", "broadcast"), range(plan.steps))
    assert [(step.stage, step.step) for step in priced.steps] == list(stages)
    damage = Damage(problem.bcube, problem.failed)
    assert lower_bound_ns(problem, damage) <= priced.time_ns
    assert damage.load_bound() <= priced.load


@settings(max_examples=200)
@given(planned)
def test_plans_cost_what_a_simulation_says_and_every_nic_carries_what_it_sends(
    case: Planned,
) -> None:
    assert_priced(*case)
    problem, plan = case
    elements = problem.size_bytes // problem.element_bytes
    by_step = carried(plan, sizes_of(plan, elements))
    found = list(loads(plan, plan.layout(elements, 1)))
    assert len(found) == plan.steps
    for step, one in enumerate(found):
        up, down = by_step[step], by_step[2 * plan.steps - 1 - step]
        for level, server in product(range(plan.bcube.k), range(plan.bcube.servers)):
            sent, received = one.sent[level, server], one.received[level, server]
            assert sent == up[server, level, "sends"] == down[server, level, "receives"]
            assert received == up[server, level, "receives"] == down[server, level, "sends"]


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_no_sum_wraps_around_at_the_edge_of_the_range(rounds: int) -> None:
    """All pieces are left out but one: 15 servers send the whole gradient to the same NIC."""
    bcube, network = BCube(16, 1), Network(Fraction(2**61))
    failed = Failures(nics=frozenset({(0, 0)}))
    left_out = tuple(piece for piece in range(16) if piece != 7)
    plan = Schedule(bcube, left_out=left_out, rounds=rounds)
    size = (2**63 - 2) // 16
    for layers in ((size,), (size // 4,) * 4):
        problem = Problem(bcube, network, layer_bytes=layers, failed=failed)
        priced = evaluate(problem, plan)
        assert priced.load == 15
        assert [step.pieces for step in priced.steps] == [15, 15]
        assert priced.time_ns == simulated_ns(problem, plan)
    with refused("gradient_bytes", "must fit in 63 bits"):
        Problem(bcube, network, size + 1, failed=failed)


@given(st.integers(0, (2**63 - 2) // 16), st.sampled_from([1, 2, 3, 5]))
def test_huge_gradients_around_failures(elements: int, rounds: int) -> None:
    bcube, failed = BCube(4, 2), Failures(nics=frozenset({(0, 0), (7, 1)}))
    plan = replace(detour(Damage(bcube, failed)), rounds=rounds)
    problem = Problem(bcube, Network(Fraction(2**40)), elements, failed=failed)
    assert_priced(problem, plan)
    whole = Problem(bcube, problem.network, 2**62 - elements)
    assert_priced(whole, Schedule(bcube, rounds=rounds))


def test_products_beyond_64_bits_do_not_wrap() -> None:
    pieces = np.array([0, 1, 2**19, 2**20 - 1, 2**20])
    for weights in ((64, 63), (2**50, 2**49)):
        layout = RangedLayout((0, 2**19, 2**20), weights, 2**60, 1)
        assert layout.starts(pieces).tolist() == [layout.start(piece) for piece in pieces.tolist()]


def test_equal_weights_are_the_even_layout() -> None:
    plan = Schedule(BCube(2, 2), light=((0, 2),))
    assert isinstance(plan.layout(100, 1), EvenLayout)
    assert plan.total_weight == 8 * FULL_WEIGHT


# --- what is listed: the transfers of a plan, layer by layer and part by part, byte by byte


def pieces_of(problem: Problem, plan: Plan) -> dict[tuple[int, int], list[range]]:
    """Return the bytes of each piece of each part of each layer, the last layer first."""
    found: dict[tuple[int, int], list[range]] = defaultdict(list)
    for layer in reversed(range(len(problem.chunks))):
        place = sum(problem.chunks[:layer])
        elements = problem.chunks[layer] // problem.element_bytes
        for part, some in enumerate(parts_of(elements, plan.rounds)):
            for size in sizes_of(plan, some):
                stop = place + size * problem.element_bytes
                found[layer, part].append(range(place, stop))
                place = stop
        assert place == sum(problem.chunks[: layer + 1])
    return found


def in_turn(row: Listed) -> tuple[int, ...]:
    """One part of one layer after the other."""
    moved = row.transfer
    return -row.layer, row.part, moved.stage == "broadcast", moved.step


@settings(max_examples=200)
@given(planned)
def test_what_is_listed_is_what_is_sent(case: Planned) -> None:
    """Each transfer of each part of each layer that moves any bytes, and just these bytes."""
    problem, plan = case
    by_part = pieces_of(problem, plan)
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


HUGE = [BCube(2, 30), BCube(2, 40), BCube(4096, 3)]


@pytest.mark.parametrize(
    ("bcube", "size"),
    [(BCube(4, 20), 1000 * 20 * 4**20), *((bcube, 2**62 - 1) for bcube in HUGE)],
    ids=str,
)
def test_places_in_huge_networks_are_closed_forms_that_do_not_overflow(
    bcube: BCube, size: int
) -> None:
    """Nobody walks over the 2^40 servers' pieces."""
    problem, plan, server = Problem(bcube, NET, size), Schedule(bcube), bcube.servers - 2
    layout = plan.layout(size, 1)
    moved = {row.transfer: row for row in islice(listed(problem, plan, server), 3000)}
    # Threads begin where the pieces before them end; inside, each rounds up by itself.
    rounding = min(size % bcube.nics, 1)
    for transfer in islice(plan.transfers(server), 2500):
        first = transfer.thread * bcube.servers + transfer.offset
        start, stop = layout.start(first), layout.start(first + transfer.length)
        assert abs(start + size * first // -bcube.nics) <= rounding
        assert abs(stop + size * (first + transfer.length) // -bcube.nics) <= rounding
        if rounding == 0 or transfer in moved:  # transfers without bytes are not listed
            row = moved[transfer]
            assert (row.offset_bytes, row.length_bytes) == (start, stop - start)


def test_a_server_with_next_to_nothing_to_send_looks_at_the_clock() -> None:
    problem = Problem(BCube(64, 3), NET, 1)
    with pytest.raises(TimeUpError):
        list(listed(problem, Schedule(problem.bcube), 1234, Deadline(0)))


def test_transfers_of_many_layers_are_made_once() -> None:
    """They are the same for each; only where the bytes are differs."""
    problem = Problem(BCube(2, 2), NET, layer_bytes=(100, 40, 0, 600))
    plan, really = Schedule(problem.bcube), Schedule.transfers
    with patch.object(Schedule, "transfers", autospec=True, side_effect=really) as made:
        layers = [entry.layer for entry in listed(problem, plan, 3)]
    assert made.call_args_list == [call(plan, 3)]
    assert layers == sorted(layers, reverse=True)
    assert set(layers) == {0, 1, 3}
