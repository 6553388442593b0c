"""When a running job is planned anew: never for noise, always for a change that lasts."""

from collections.abc import Iterable
from fractions import Fraction
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InvalidInputError
from planner.replanning import Drift, Hysteresis, Reading, State, noted, worth

NAMES = ("transfers", "readiness")


@st.composite
def rules(draw: st.DrawFn) -> Hysteresis:
    rest = draw(st.integers(1, 4))
    return Hysteresis(
        band=Fraction(draw(st.integers(1, 20)), 20),
        windows=draw(st.integers(1, 4)),
        gain=Fraction(draw(st.integers(0, 9)), 10),
        rest=rest,
        longest_rest=rest * draw(st.integers(1, 8)),
    )


shares = st.fractions(0, 1, max_denominator=20)
"""Where between two bounds a reading lies."""


def between(low: Fraction, high: Fraction, share: Fraction) -> Fraction:
    return low + share * (high - low)


def plans(rule: Hysteresis, readings: Iterable[Reading], state: State | None = None) -> list[int]:
    """Return after which windows it was time to plan."""
    state, times = state or State(), []
    for number, reading in enumerate(readings, 1):
        state, drifts = noted(rule, state, reading)
        assert len(state.recent) < rule.windows
        if drifts:
            times.append(number)
    return times


@given(rules(), st.lists(st.tuples(shares, shares), max_size=30))
def test_noise_within_the_band_changes_nothing(
    rule: Hysteresis, noise: list[tuple[Fraction, Fraction]]
) -> None:
    limit = 1 + rule.band
    readings = [
        {name: between(1 / limit, limit, share) for name, share in zip(NAMES, pair, strict=True)}
        for pair in noise
    ]
    assert plans(rule, readings) == []


@given(rules(), st.data())
def test_what_does_not_last_changes_nothing_however_far_it_is(
    rule: Hysteresis, data: st.DataObject
) -> None:
    """A time is never beyond the band on one side in as many windows as the rule wants."""
    far = st.fractions(Fraction(1, 50), 50, max_denominator=50)
    values: list[Fraction] = []
    for value in data.draw(st.lists(far, max_size=30)):
        sides = [(each > 1 + rule.band) - (each * (1 + rule.band) < 1) for each in values]
        side = (value > 1 + rule.band) - (value * (1 + rule.band) < 1)
        behind = sides[len(sides) + 1 - rule.windows :]
        lasts = len(behind) == rule.windows - 1 and all(other == side for other in behind)
        values.append(Fraction(1) if side and lasts else value)
    assert plans(rule, [{"transfers": value} for value in values]) == []


@given(rules(), st.data(), st.booleans())
def test_a_change_that_lasts_is_seen_in_time(
    rule: Hysteresis, data: st.DataObject, faster: bool
) -> None:
    """Whatever was measured before it, even in the first of its windows."""
    far = st.fractions(Fraction(1, 50), 50, max_denominator=50)
    state = State()
    for value in data.draw(st.lists(far, max_size=12)):
        state, _ = noted(rule, state, {"transfers": value})
    limit = 1 + rule.band
    least = limit * (1 + data.draw(st.fractions(Fraction(1, 100), 3, max_denominator=100)))
    enough = rule.windows + state.unread
    drawn = data.draw(st.lists(shares, min_size=enough, max_size=enough))
    readings = [between(least, least * limit, share) for share in drawn]
    if faster:
        readings = [1 / value for value in readings]
    times = plans(rule, ({"transfers": value} for value in readings), state)
    assert times
    assert times[0] <= enough


@given(rules(), st.integers(1, 80), st.data())
def test_a_job_that_is_never_quiet_is_not_planned_for_all_the_time(
    rule: Hysteresis, windows: int, data: st.DataObject
) -> None:
    high = data.draw(st.fractions(Fraction(5, 2), 5, max_denominator=10))
    times = plans(rule, [{"transfers": high}] * windows)
    longest = rule.longest_rest
    assert len(times) <= 1 + ceil(log2(longest / rule.rest)) + windows / longest


def test_what_was_measured_is_said() -> None:
    rule = Hysteresis()
    quiet, slow = {name: Fraction(1) for name in NAMES}, {"transfers": Fraction(2)}
    state, drifts = noted(rule, State(), quiet | slow)
    assert drifts == ()
    state, drifts = noted(rule, state, quiet | {"transfers": Fraction(21, 10)})
    assert drifts == (Drift("transfers", Fraction(21, 10)),)
    assert state.unread == rule.rest


def test_readings_that_do_not_agree_are_no_change() -> None:
    rising = [{"transfers": Fraction(2) ** power} for power in range(1, 9)]
    assert plans(Hysteresis(), rising) == []


def test_at_the_edge_of_the_band_every_window_counts() -> None:
    edge = [{"transfers": Fraction(value, 100)} for value in (125, 115)] * 5
    assert plans(Hysteresis(), edge) == []
    assert plans(Hysteresis(), [{"transfers": Fraction(121, 100)}] * 2) == [2]


def test_after_some_quiet_the_next_change_is_seen_as_soon_as_the_first() -> None:
    rule, slow = Hysteresis(), {"transfers": Fraction(2)}
    state = State()
    for reading in [slow] * 5 + [{"transfers": Fraction(1)}] * 8:
        state, _ = noted(rule, state, reading)
    assert plans(rule, [slow] * 2, state) == [2]
    assert (state.rest, state.unread) == (rule.rest, 0)


@given(rules(), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_switch_saves_what_it_has_to(rule: Hysteresis, kept_ns: int, new_ns: int) -> None:
    if worth(rule, kept_ns, new_ns):
        assert new_ns < kept_ns
        assert Fraction(kept_ns - new_ns, kept_ns) >= rule.gain
        assert not worth(rule, new_ns, kept_ns)
    else:
        assert new_ns >= kept_ns or kept_ns - new_ns < rule.gain * kept_ns


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"band": 0}, "band"),
        ({"windows": 0}, "windows"),
        ({"gain": 1}, "gain"),
        ({"rest": 0}, "rest"),
        ({"rest": 8, "longest_rest": 4}, "longest_rest"),
    ],
)
def test_rules_that_mean_nothing_are_refused(fields: dict[str, int], path: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        Hysteresis(**fields)  # type: ignore[arg-type]
    assert error.value.path == path


def test_a_reading_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="transfers"):
        noted(Hysteresis(), State(), {"transfers": Fraction(0)})
