"""Pareto fronts against their definition."""

from hypothesis import given
from hypothesis import strategies as st

from planner.solving.pareto import nondominated, staircase

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


def front(items: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Those that no other one is at most as large as everywhere, each once."""
    return sorted(
        {
            item
            for item in items
            if not any(
                other != item and all(a <= b for a, b in zip(other, item, strict=True))
                for other in items
            )
        }
    )


@given(PAIRS)
def test_two_criteria(items: list[tuple[int, int]]) -> None:
    found = staircase(items, lambda item: item, lambda item: item[1])
    assert found == front([*items])
    assert staircase(items[::-1], lambda item: item, lambda item: item[1]) == found


def test_of_equal_items_the_first_one_stays() -> None:
    items = [("a", 1, 1), ("b", 1, 1), ("c", 0, 2)]
    found = staircase(items, lambda item: item[1], lambda item: item[2])
    assert found == [("c", 0, 2), ("a", 1, 1)]


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=12), st.integers(1, 5))
def test_more_criteria(items: list[tuple[int, ...]], most: int) -> None:
    assert nondominated(items) == front(items)
    assert nondominated(items, most) == front(items)[:most]
