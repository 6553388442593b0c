"""Profiles and their chains."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInputError, Layer, Profile, Provenance
from planner.profiles import chain_blocks
from tests.strategies import profiles

MADE_UP = Provenance("synthetic", "a test")


def layer(name: str, size: int, block: int | None = None, time: int = 1) -> Layer:
    return Layer(name, time, 2 * time, size, block=block, gradient_ready_ns=time)


@given(profiles(), st.sampled_from(["block", "layer"]))
def test_a_chain_keeps_all_sums_and_leaves_no_unit_without_parameters(
    profile: Profile, granularity: str
) -> None:
    chain = profile.chain(granularity)  # type: ignore[arg-type]
    assert all(unit.parameter_bytes for unit in chain.layers)
    for total in ("forward_ns", "backward_ns", "parameter_bytes"):
        assert getattr(chain, total) == getattr(profile, total)
    sent = sum(unit.pushed_bytes for unit in chain.layers)
    assert sent == sum(one.pushed_bytes for one in profile.layers)
    assert chain.chain("block") == chain.chain("layer") == chain


def test_layers_without_parameters_join_the_preceding_one_leading_ones_the_next() -> None:
    profile = Profile(
        "m",
        (layer("pad", 0), layer("conv", 8), layer("pool", 0), layer("fc", 4), layer("out", 0)),
        MADE_UP,
    )
    chain = profile.chain()
    assert [(unit.name, unit.forward_ns) for unit in chain.layers] == [("conv", 3), ("fc", 2)]


def test_branches_form_one_unit_unless_layers_are_asked_for() -> None:
    profile = Profile(
        "m",
        (layer("stem", 8, 0), layer("mixed.a", 4, 1), layer("mixed.b", 4, 1), layer("fc", 2, 2)),
        MADE_UP,
    )
    assert [unit.name for unit in profile.chain().layers] == ["stem", "mixed", "fc"]
    assert len(profile.chain("layer").layers) == 4


def test_a_model_without_parameters_has_no_chain() -> None:
    with pytest.raises(InvalidInputError, match="parameters"):
        Profile("m", (layer("a", 0),), MADE_UP).chain()


@given(st.integers(1, 8), st.data())
def test_blocks_are_what_lies_between_clean_cuts(count: int, data: st.DataObject) -> None:
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = data.draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    blocks = chain_blocks(count, edges)
    assert blocks[0] == 0
    for node, (one, other) in enumerate(pairwise(blocks)):
        clean = all(not (a < node < b) for a, b in edges)
        assert (other == one + 1) if clean else (other == one)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"forward_ns": -1}, "forward_ns"),
        ({"parameter_bytes": 1.5}, "parameter_bytes"),
        ({"block": True}, "block"),
        ({"name": 3}, "name"),
    ],
)
def test_bad_layers(change: dict[str, object], path: str) -> None:
    good = {"name": "a", "forward_ns": 1, "backward_ns": 1, "parameter_bytes": 1}
    with pytest.raises(InvalidInputError) as caught:
        Layer(**{**good, **change})  # type: ignore[arg-type]
    assert caught.value.path == path


def test_sums_beyond_the_range_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="sum of"):
        Profile("m", (layer("a", 2**62), layer("b", 2**62)), MADE_UP)
    with pytest.raises(InvalidInputError, match="sum of"):
        Profile("m", (layer("a", 1, time=2**61), layer("b", 1, time=2**61)), MADE_UP)
    with pytest.raises(InvalidInputError):
        Profile("m", (), MADE_UP)
    with pytest.raises(InvalidInputError):
        Provenance("guessed", "")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        Profile("m", (layer("a", 1),), MADE_UP).chain("op")  # type: ignore[arg-type]
