"""Loads sent together with their neighbours, against pricing the whole list at each attempt."""

from collections.abc import Sequence
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from planner import AffineCost, TableCost
from planner.families.caramel.pricing import Load, LoadPricer, merged_loads
from planner.families.caramel.windows import Windows
from tests.caramel.window_strategies import windows_strategy
from tests.strategies import affine_costs, table_costs


def literal(pricer: LoadPricer, loads: Sequence[Load], most_ns: int) -> list[Load]:
    """Return the same by trying each pair, from the first on."""
    made, place = list(loads), 0
    while place + 1 < len(made):
        together: dict[int, int] = {}
        for j, size in (*made[place], *made[place + 1]):
            together[j] = together.get(j, 0) + size
        tried = [*made[:place], tuple(together.items()), *made[place + 2 :]]
        if pricer.iteration_ns(tried) <= most_ns:
            made = tried
        else:
            place += 1
    return made


@st.composite
def transfers(draw: st.DrawFn, known: Windows) -> list[Load]:
    """Parameters, some in two pieces, in any order, some together."""
    pieces: list[tuple[int, int]] = []
    for j, size in enumerate(known.sizes):
        first = draw(st.integers(1, size))
        pieces += [(j, first)] if first == size else [(j, first), (j, size - first)]
    loads: list[Load] = []
    for j, size in draw(st.permutations(pieces)):
        if loads and all(j != other for other, _ in loads[-1]) and draw(st.booleans()):
            loads[-1] = (*loads[-1], (j, size))
        else:
            loads.append(((j, size),))
    return loads


@settings(max_examples=600)
@given(st.data(), windows_strategy(6), st.one_of(affine_costs(), table_costs()))
def test_neighbours_are_sent_together_as_by_trying(
    data: st.DataObject, known: Windows, cost: AffineCost | TableCost
) -> None:
    pricer, loads = LoadPricer(known, cost), data.draw(transfers(known))
    most = pricer.iteration_ns(loads) + data.draw(st.sampled_from([0, 0, 1, 5, 40]))
    assert merged_loads(pricer, loads, most) == literal(pricer, loads, most)


def test_neighbours_are_not_sent_together_if_that_delays_later_transfers() -> None:
    """The second gradient waits for nobody; with the first it would end as the third is due."""
    known = Windows((1, 1, 1), (0, 5, 6), (0, 0, 50), 6, 50)
    pricer = LoadPricer(known, AffineCost(0, Fraction(1)))
    loads: list[Load] = [((0, 1),), ((1, 1),), ((2, 1),)]
    assert pricer.iteration_ns(loads) == 57
    assert merged_loads(pricer, loads, 57) == loads
    assert merged_loads(pricer, loads, 58) == [((0, 1), (1, 1)), ((2, 1),)]
