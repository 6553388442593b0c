"""Where all Hypothesis strategies live."""

from fractions import Fraction

from hypothesis import strategies as st

from planner import AffineCost, Layer, Profile, Provenance, TableCost
from planner.ibatch import Problem

MAX_LAYERS = 8
"""Brute force tries 2^(L-1) plans."""

times = st.one_of(st.integers(0, 30), st.sampled_from([0, 0, 1, 7, 1000]))
"""Small times with many ties and zeros, where algorithms go wrong."""


@st.composite
def affine_costs(draw: st.DrawFn) -> AffineCost:
    return AffineCost(draw(times), Fraction(draw(st.integers(0, 20)), draw(st.integers(1, 7))))


@st.composite
def table_costs(draw: st.DrawFn) -> TableCost:
    """Tables that are neither affine nor monotone, except at the end."""
    sizes = sorted(draw(st.sets(st.integers(0, 120), min_size=2, max_size=5)))
    heights = draw(st.lists(times, min_size=len(sizes), max_size=len(sizes)))
    heights[-1] = max(heights[-2:])
    return TableCost(tuple(zip(sizes, heights, strict=True)))


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
        fields |= {"max_batch_bytes": draw(st.integers(1, 120))}
    return Problem(**fields)  # type: ignore[arg-type]


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    layers = draw(
        st.lists(
            st.builds(
                Layer,
                name=st.text(max_size=8),
                forward_ns=times,
                backward_ns=times,
                parameter_bytes=times,
                gradient_bytes=st.none() | times,
                activation_bytes=times,
                gradient_ready_ns=st.none() | times,
                block=st.none(),
            ),
            min_size=1,
            max_size=10,
        ).filter(lambda layers: any(layer.parameter_bytes for layer in layers))
    )
    return Profile(draw(st.text(max_size=8)), tuple(layers), Provenance("synthetic", "a test"))
