"""Rows for NCCL's example tuner plugin, read again by its documented grammar."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInputError
from planner.formats.exporters.nccl_tuner import Rule, encode_rules, rules_of
from planner.model.measured import Measured, MeasuredNetwork

Points = tuple[tuple[int, int], ...]
CHOICES = (("ring", "simple"), ("tree", "ll"), ("nvls", "ll128"))
rows = st.lists(
    st.tuples(st.integers(8, 10**6), st.integers(1, 10**6)),
    min_size=2,
    max_size=8,
    unique_by=lambda row: row[0],
).map(lambda found: tuple(sorted(found)))


def network(points: Points, ranks: int = 16) -> MeasuredNetwork:
    return MeasuredNetwork((Measured("all_reduce", ranks, 8, points),))


def read_again(text: str) -> tuple[Rule, ...]:
    lines = (line.split(",") for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        Rule("all_reduce", int(least), int(most), algorithm, protocol, int(hosts), int(ranks))
        for _, least, most, algorithm, protocol, _, hosts, ranks, *_ in lines
    )


@given(st.lists(rows, min_size=2, max_size=3), st.data())
def test_every_size_takes_what_costs_least(tables: list[Points], data: st.DataObject) -> None:
    networks = dict(zip(CHOICES, map(network, tables), strict=False))
    costs = {choice: known.tables[0].cost for choice, known in networks.items()}
    first = max(cost.points[0][0] for cost in costs.values())
    last = min(cost.points[-1][0] for cost in costs.values())
    if first > last:
        with pytest.raises(InvalidInputError, match="nothing to tune"):
            rules_of(networks)
        return
    rules = rules_of(networks)
    assert read_again(encode_rules(rules, "a test")) == rules
    assert rules[0].least_bytes == first
    assert rules[-1].most_bytes == last
    assert all(one.most_bytes + 1 == two.least_bytes for one, two in pairwise(rules))
    for _ in range(10):
        size = data.draw(st.integers(first, last))
        (rule,) = [one for one in rules if one.least_bytes <= size <= one.most_bytes]
        taken = costs[rule.algorithm, rule.protocol].cost_ns(size)
        assert taken <= min(cost.cost_ns(size) for cost in costs.values()) + 2  # rounding


def test_the_last_size_may_have_a_choice_of_its_own() -> None:
    falls, rises = network(((80, 3), (117, 244))), network(((10, 1), (123, 253)))
    rules = rules_of({("ring", "simple"): falls, ("tree", "ll"): rises})
    assert [(rule.most_bytes, rule.algorithm) for rule in rules] == [(116, "ring"), (117, "tree")]


def test_the_switch_is_where_the_tables_cross() -> None:
    networks = {
        ("tree", "ll"): network(((0, 100), (1000, 1100))),
        ("ring", "simple"): network(((0, 500), (1000, 700))),
    }
    low, high = rules_of(networks)
    assert (low.algorithm, high.algorithm) == ("tree", "ring")
    assert low.most_bytes in (499, 500)  # where both cost the same
    assert low.line == f"allreduce,0,{low.most_bytes},tree,ll,-1,2,16,-1,-1"


def test_unknown_names_and_single_choices_are_refused() -> None:
    known = network(((1, 1), (2, 2)))
    with pytest.raises(InvalidInputError, match="star"):
        rules_of({("star", "ll"): known, ("ring", "ll"): known})
    with pytest.raises(InvalidInputError, match="nothing to tune"):
        rules_of({("ring", "ll"): known})
