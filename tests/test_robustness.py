"""The second criterion by itself: what a plan lasts under strains, and fronts of labels."""

from hypothesis import given
from hypothesis import strategies as st

from planner.solving.deadline import NEVER
from planner.solving.simulator import TimedTransfer, simulate
from planner.solving.tie_break import (
    NOMINAL,
    STRAINS,
    Limit,
    Step,
    Strain,
    end_under,
    most_robust,
    strained,
)

times = st.integers(0, 20)


@given(
    st.lists(times, min_size=1, max_size=4),
    st.lists(times, min_size=1, max_size=4),
    st.lists(st.tuples(times, times, st.integers(0, 3)), max_size=5),
    st.sampled_from([NOMINAL, *STRAINS, Strain(5, 1)]),
)
def test_a_strain_multiplies_what_the_simulator_is_given(
    backward: list[int],
    forward: list[int],
    sent: list[tuple[int, int, int]],
    strain: Strain,
) -> None:
    slower, longer = strain
    needed = [min(by, len(forward) - 1) for *_, by in sent]
    iteration = simulate(
        [longer * time for time in backward],
        [longer * time for time in forward],
        [
            TimedTransfer(0, slower * duration, by, not_before_ns=longer * ready)
            for (ready, duration, _), by in zip(sent, needed, strict=True)
        ],
    )
    steps = [
        Step(ready, duration, sum(forward[by:]))
        for (ready, duration, _), by in zip(sent, needed, strict=True)
    ]
    computed = sum(backward) + sum(forward)
    assert end_under(strain, steps, computed) == iteration.end_ns
    assert strained(steps, computed) == tuple(end_under(one, steps, computed) for one in STRAINS)


def test_slow_transfers_count_before_slow_computation() -> None:
    assert strained([Step(0, 10, 0)], 0) == (30, 20)
    assert strained([], 10) == (20, 30)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=8), st.integers(0, 7))
def test_the_search_ends_at_the_best_of_the_plans_there_are(
    plans: list[tuple[int, int]], start: int
) -> None:
    """Plans are what they last under the two strains; whoever is asked tries all of them."""
    value = 3
    known = [(2 * value + first, 2 * value + second) for first, second in plans]

    def lasts(plan: tuple[int, int], strain: Strain) -> int:
        return plan[STRAINS.index(strain)]

    def attempt(limits: list[Limit], last: Limit) -> tuple[tuple[int, int] | None, int]:
        fitting = [
            plan
            for plan in known
            if all(lasts(plan, strain) <= most for strain, most in limits[1:])
        ]
        best = min(fitting, key=lambda plan: lasts(plan, last.strain))
        reached = lasts(best, last.strain)
        return (best, reached) if reached <= last.most_ns else (None, reached)

    begin = known[start % len(known)]
    assert most_robust(begin, value, lasts, attempt, NEVER) == min(known)  # type: ignore[arg-type]
