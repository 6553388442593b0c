"""Where all Hypothesis strategies live."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import reject
from hypothesis import strategies as st

from planner import AffineCost, InvalidInputError, Profile, TableCost
from planner.families.ibatch import Problem
from planner.testing.strategies import affine_costs, table_costs, times
from planner.testing.strategies import profiles as plain_profiles

__all__ = ["affine_costs", "huge", "huge_problems", "problems", "profiles", "table_costs", "times"]

MAX_LAYERS = 8
"""Brute force tries 2^(L-1) plans."""


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    max_layers: int = MAX_LAYERS,
    objective: str | None = None,
    direction: str | None = None,
    additive: bool = False,
    capped: bool | None = None,
) -> Problem:
    count = draw(st.integers(1, max_layers))

    def values() -> list[int]:
        return draw(st.lists(times, min_size=count, max_size=count))

    fields: dict[str, object] = {
        "compute_ns": values(),
        "direction": direction or draw(st.sampled_from(["pull", "push"])),
        "objective": objective or draw(st.sampled_from(["makespan", "eq4"])),
        "layer_bytes": values(),
    }
    if additive or draw(st.booleans()):
        fields |= {"startup_ns": draw(times), "transfer_ns": values()}
    else:
        fields |= {"cost": draw(st.one_of(affine_costs(), table_costs()))}
    if draw(st.booleans()) if capped is None else capped:
        largest = max(fields["layer_bytes"])  # type: ignore[call-overload]
        near = st.integers(max(1, largest), max(2, 2 * largest))
        fields |= {"max_batch_bytes": draw(st.integers(1, 120) | near)}
    return Problem(**fields)  # type: ignore[arg-type]


huge = st.integers(40, 62).flatmap(lambda bits: st.sampled_from([2**bits - 1, 2**bits])) | times
"""Times and sizes up to the largest that are allowed."""


@st.composite
def huge_problems(draw: st.DrawFn) -> Problem:
    """Problems whose sums just fit in 63 bits, in every form."""
    count = draw(st.integers(1, 4))

    def values() -> list[int]:
        return draw(st.lists(huge, min_size=count, max_size=count))

    fields: dict[str, object] = {
        "compute_ns": values(),
        "objective": draw(st.sampled_from(["makespan", "eq4"])),
        "direction": draw(st.sampled_from(["pull", "push"])),
    }
    kind = draw(st.sampled_from(["additive", "affine", "table"]))
    try:
        if kind == "additive":
            fields |= {"startup_ns": draw(huge), "transfer_ns": values()}
        elif kind == "affine":
            rate = Fraction(draw(st.integers(1, 2**70)), draw(st.integers(1, 2**70)))
            fields |= {"layer_bytes": values(), "cost": AffineCost(draw(huge), rate)}
        else:
            low, high = sorted([draw(huge), draw(huge)])
            points = ((0, low), (draw(st.integers(1, 2**62)), high))
            fields |= {"layer_bytes": values(), "cost": TableCost(points)}
        return Problem(**fields)  # type: ignore[arg-type]
    except InvalidInputError:
        reject()


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Profiles that also say when gradients are ready, and some of them blocks."""
    made, block, blocks = draw(plain_profiles(layers=10)), 0, draw(st.booleans())
    layers = []
    for layer in made.layers:
        block += draw(st.integers(0, 1))
        ready = draw(st.none() | times)
        known = block if blocks else None
        layers.append(replace(layer, gradient_ready_ns=ready, block=known))
    return replace(made, layers=tuple(layers))
