"""Merging rules shared by the families."""

from itertools import accumulate, product

from hypothesis import given
from hypothesis import strategies as st

from planner.solving.bucketing import ddp_buckets, earliest_end, mg_wfbp_groups


def test_ddp_buckets_close_once_they_reach_their_limit() -> None:
    """Exactly at the limit is enough."""
    assert ddp_buckets([4, 6, 10, 15, 24, 1], first_limit=10, limit=25) == [2, 2, 2]
    assert ddp_buckets([9, 1, 24], first_limit=10, limit=25) == [2, 1]
    assert ddp_buckets([1, 1], first_limit=10, limit=25) == [2]
    assert ddp_buckets([]) == []


@given(st.lists(st.integers(0, 50)), st.integers(1, 60), st.integers(1, 60))
def test_ddp_buckets_hold_everything_and_fill_up_before_they_close(
    sizes: list[int], first: int, limit: int
) -> None:
    buckets = ddp_buckets(sizes, first, limit)
    assert sum(buckets) == len(sizes)
    assert all(buckets)
    begin = 0
    for number, members in enumerate(buckets):
        bound = first if number == 0 else limit
        held = sizes[begin : begin + members]
        assert sum(held[:-1]) < bound
        if number < len(buckets) - 1:
            assert sum(held) >= bound
        begin += members


def test_mg_wfbp_merges_what_becomes_ready_within_a_startup() -> None:
    def duration(first: int, stop: int) -> int:
        return 10 + (stop - first)

    # 9 after the first could begin: merge; 10 after: do not.
    assert mg_wfbp_groups([5, 14], duration, 10) == [2]
    assert mg_wfbp_groups([5, 15], duration, 10) == [1, 1]
    # The second group can begin only when the first has left, at 16: 25 is 9 later.
    assert mg_wfbp_groups([5, 15, 25], duration, 10) == [1, 2]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=6),
    st.integers(0, 9),
)
def test_the_earliest_end_is_that_of_the_best_batches(
    parts: list[tuple[int, int]], startup: int
) -> None:
    parts.sort(reverse=True)
    moments, sizes = zip(*parts, strict=True)
    sent = list(accumulate(sizes))
    ends = []
    for cuts in product((False, True), repeat=len(parts) - 1):
        first = [0, *(place for place, cut in enumerate(cuts, start=1) if cut)]
        last = [*first[1:], len(parts)]
        ends.append(
            max(
                startup * number + sent[stop - 1] + moments[start]
                for number, (start, stop) in enumerate(zip(first, last, strict=True), start=1)
            )
        )
    assert earliest_end(moments, sent, startup) == min(ends)
