"""The price of a plan is what a literal simulation adds up."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.bml import (
    Damage,
    Failures,
    Problem,
    Schedule,
    TreePlan,
    evaluate,
    lower_bound_ns,
)
from planner.families.bml.evaluation import loads
from planner.families.bml.reroute import detour
from planner.families.collectives.layout import EvenLayout, Layout, RangedLayout, by_shares
from planner.model.errors import InvalidInputError
from planner.model.network import Network
from planner.model.topologies import BCube
from tests.bml.plans import all_transfers, detoured, intact, tree_planned
from tests.bml.simulator import carried_in, simulate, sizes_of

Planned = tuple[Problem, Schedule | TreePlan]


@given(intact(rounds=5) | detoured() | tree_planned())
def test_plans_cost_what_a_simulation_says(planned: Planned) -> None:
    assert_priced(*planned)


def assert_priced(problem: Problem, plan: Schedule | TreePlan) -> None:
    simulated, priced = simulate(problem, plan), evaluate(problem, plan)
    assert priced.time_ns == simulated.time_ns
    assert priced.load == simulated.load
    assert [step.pieces for step in priced.steps] == simulated.pieces
    assert [(step.stage, step.step) for step in priced.steps] == [
        (stage, step) for stage in ("aggregate", "broadcast") for step in range(plan.steps)
    ]
    damage = Damage(problem.bcube, problem.failed)
    assert lower_bound_ns(problem, damage) <= priced.time_ns
    assert damage.load_bound() <= priced.load


@given(detoured() | tree_planned() | intact())
def test_every_nic_carries_what_is_sent_over_it(planned: Planned) -> None:
    problem, plan = planned
    elements = problem.size_bytes // problem.element_bytes
    layout, sizes = plan.layout(elements, 1), sizes_of(plan, elements)
    transfers = all_transfers(plan)
    found = list(loads(plan, layout))
    assert len(found) == plan.steps
    for step, one in enumerate(found):
        up = carried_in(plan, transfers, [sizes], step)
        down = carried_in(plan, transfers, [sizes], 2 * plan.steps - 1 - step)
        for level, server in product(range(plan.bcube.k), range(plan.bcube.servers)):
            assert one.sent[level, server] == up[server, level, "sends"]
            assert one.received[level, server] == up[server, level, "receives"]
            assert one.sent[level, server] == down[server, level, "receives"]
            assert one.received[level, server] == down[server, level, "sends"]


@given(st.integers(2, 5), st.integers(1, 4), st.integers(0, 500), st.integers(1, 4))
def test_the_price_by_formula_is_the_price_by_arrays(
    n: int, k: int, elements: int, element_bytes: int
) -> None:
    bcube = BCube(n, k)
    intact = Schedule(bcube)
    assert not intact.changed
    problem = Problem(
        bcube,
        Network(Fraction(10, 3), 5, Fraction(1, 7)),
        elements * element_bytes,
        element_bytes=element_bytes,
    )
    by_arrays = Counted(bcube)
    assert by_arrays.changed
    assert evaluate(problem, by_arrays) == evaluate(problem, intact)


class Counted(Schedule):
    """A schedule that says that it is changed."""

    @property
    def changed(self) -> bool:
        return True


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_no_sum_wraps_around_at_the_edge_of_the_range(rounds: int) -> None:
    """All pieces are left out but one: 15 servers send the whole gradient to the same NIC."""
    bcube, owner = BCube(16, 1), 7
    left_out = tuple(piece for piece in range(16) if piece != owner)
    failed = Failures(nics=frozenset({(0, 0)}))
    size = (2**63 - 2) // 16
    for layers in ((size,), (size // 4,) * 4):
        problem = Problem(bcube, Network(Fraction(2**61)), layer_bytes=layers, failed=failed)
        plan = Schedule(bcube, left_out=left_out, rounds=rounds)
        priced, simulated = evaluate(problem, plan), simulate(problem, plan)
        assert priced.load == 15
        assert [step.pieces for step in priced.steps] == [15, 15]
        assert priced.time_ns == simulated.time_ns
    with pytest.raises(InvalidInputError, match="must fit in 63 bits") as error:
        Problem(bcube, Network(Fraction(2**61)), size + 1, failed=failed)
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
    layout, pieces, size = drawn
    starts = [layout.start(piece) for piece in range(pieces + 1)]
    assert (starts[0], starts[-1]) == (0, size)
    assert starts == sorted(starts)
    assert layout.starts(np.arange(pieces + 1)).tolist() == starts
    first = data.draw(st.integers(0, pieces))
    count = data.draw(st.integers(0, pieces - first))
    assert layout.span(first, count) == starts[first + count] - starts[first]


@given(layouts())
def test_sizes_are_even_and_those_left_out_empty(drawn: tuple[Layout, int, int]) -> None:
    layout, pieces, size = drawn
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
