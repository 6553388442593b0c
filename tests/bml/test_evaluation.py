"""The price of a plan is what a literal simulation adds up, and what is listed what is sent."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.bml import Damage, Failures, Plan, Problem, Schedule, evaluate, lower_bound_ns
from planner.families.bml.evaluation import Listed, listed, loads
from planner.families.bml.problem import Transfer
from planner.families.bml.reroute import detour
from planner.families.bml.schedule import FULL_WEIGHT
from planner.families.collectives.layout import EvenLayout, Layout, RangedLayout, by_shares
from planner.model.errors import InvalidInputError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.solving.deadline import Deadline, TimeUpError
from tests.bml.plans import NET, Planned, planned
from tests.bml.simulator import carried_in, parts_of, simulate, sizes_of


def assert_priced(problem: Problem, plan: Plan) -> None:
    simulated, priced = simulate(problem, plan), evaluate(problem, plan)
    assert priced.time_ns == simulated.time_ns
    assert priced.load == simulated.load
    assert [step.pieces for step in priced.steps] == simulated.pieces
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
    sizes = sizes_of(plan, elements)
    found = list(loads(plan, plan.layout(elements, 1)))
    assert len(found) == plan.steps
    for step, one in enumerate(found):
        up = carried_in(plan, sizes, step)
        down = carried_in(plan, sizes, 2 * plan.steps - 1 - step)
        for level, server in product(range(plan.bcube.k), range(plan.bcube.servers)):
            sent, received = one.sent[level, server], one.received[level, server]
            assert sent == up[server, level, "sends"] == down[server, level, "receives"]
            assert received == up[server, level, "receives"] == down[server, level, "sends"]


class Counted(Schedule):
    """A schedule that says that it is changed."""

    @property
    def changed(self) -> bool:
        return True


@given(st.integers(2, 5), st.integers(1, 4), st.integers(0, 500), st.integers(1, 4))
def test_the_price_by_formula_is_the_price_by_arrays(
    n: int, k: int, elements: int, element_bytes: int
) -> None:
    bcube, network = BCube(n, k), Network(Fraction(10, 3), 5, Fraction(1, 7))
    problem = Problem(bcube, network, elements * element_bytes, element_bytes=element_bytes)
    assert not Schedule(bcube).changed
    assert evaluate(problem, Counted(bcube)) == evaluate(problem, Schedule(bcube))


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
        assert priced.time_ns == simulate(problem, plan).time_ns
    with pytest.raises(InvalidInputError, match="must fit in 63 bits") as error:
        Problem(bcube, network, size + 1, failed=failed)
    assert error.value.path == "gradient_bytes"


@given(st.integers(0, (2**63 - 2) // 16), st.sampled_from([1, 2, 3, 5]))
def test_huge_gradients_around_failures(elements: int, rounds: int) -> None:
    bcube, failed = BCube(4, 2), Failures(nics=frozenset({(0, 0), (7, 1)}))
    plan = replace(detour(Damage(bcube, failed)), rounds=rounds)
    problem = Problem(bcube, Network(Fraction(2**40)), elements, failed=failed)
    assert_priced(problem, plan)
    whole = Problem(bcube, problem.network, 2**62 - elements)
    assert_priced(whole, Schedule(bcube, rounds=rounds))


# --- where pieces start


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Layout, int, int]:
    """Draw a layout, the number of its pieces, and the bytes there are."""
    elements = draw(st.integers(0, 20) | st.integers(0, 2**40))
    element_bytes = draw(st.integers(1, 8))
    threads, each = draw(st.integers(1, 4)), draw(st.integers(1, 10))
    pieces = threads * each
    if draw(st.booleans()):
        left_out = draw(st.frozensets(st.integers(0, pieces - 1), max_size=pieces - 1))
        even = EvenLayout(threads, each, tuple(sorted(left_out)), elements, element_bytes)
        return even, pieces, elements * element_bytes
    weights = draw(st.lists(st.integers(0, 64), min_size=pieces, max_size=pieces).filter(any))
    shares = tuple(Fraction(weight, sum(weights)) for weight in weights)
    return by_shares(shares, elements, element_bytes), pieces, elements * element_bytes


@given(layouts(), st.data())
def test_pieces_tile_the_gradient(drawn: tuple[Layout, int, int], data: st.DataObject) -> None:
    """Sizes are even, or as the weights say, and pieces left out are empty."""
    layout, pieces, size = drawn
    starts = [layout.start(piece) for piece in range(pieces + 1)]
    assert (starts[0], starts[-1]) == (0, size)
    assert starts == sorted(starts)
    assert layout.starts(np.arange(pieces + 1)).tolist() == starts
    first = data.draw(st.integers(0, pieces))
    count = data.draw(st.integers(0, pieces - first))
    assert layout.span(first, count) == starts[first + count] - starts[first]
    sizes = [layout.span(piece, 1) for piece in range(pieces)]
    if isinstance(layout, EvenLayout):
        used = [one for piece, one in enumerate(sizes) if piece not in layout.left_out]
        assert sum(used) == size == sum(sizes)
        assert max(used) - min(used) <= layout.element_bytes
        assert all(one % layout.element_bytes == 0 for one in used)
        # No pieces in a row have more than as many at the start of their thread, nor that
        # thread more than the first, if none is left out.
        for count in range(1, layout.pieces + 1) if not layout.left_out else ():
            rows = [
                [layout.span(thread * layout.pieces + place, count) for place in range(left)]
                for thread in range(layout.threads)
                for left in [layout.pieces - count + 1]
            ]
            assert all(max(row) == row[0] <= rows[0][0] for row in rows)
    elif isinstance(layout, RangedLayout):
        for one, weight in zip(sizes, layout.weights, strict=True):
            assert one % layout.element_bytes == 0
            share = Fraction(weight, sum(layout.weights))
            assert abs(one - share * size) < layout.element_bytes


def test_products_beyond_64_bits_do_not_wrap() -> None:
    layout = RangedLayout((0, 2**19, 2**20), (64, 63), 2**60, 1)
    pieces = np.array([0, 1, 2**19, 2**20 - 1, 2**20])
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


HUGE = [BCube(2, 30), BCube(46341, 2), BCube(2, 40), BCube(4096, 3)]


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


def test_transfers_of_many_layers_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the same for each; only where the bytes are differs."""
    made = []
    before = Schedule.transfers

    def counted(plan: Schedule, server: int) -> Iterator[Transfer]:
        made.append(server)
        return before(plan, server)

    monkeypatch.setattr(Schedule, "transfers", counted)
    problem = Problem(BCube(2, 2), NET, layer_bytes=(100, 40, 0, 600))
    plan = Schedule(problem.bcube)
    layers = [entry.layer for entry in listed(problem, plan, 3)]
    assert made == [3]
    assert layers == sorted(layers, reverse=True)
    assert set(layers) == {0, 1, 3}
