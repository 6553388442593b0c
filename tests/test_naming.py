"""Names of parameters in a row of a picture: in whole words, and short enough."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.model.layers import module_range

GPT = [f"transformer.h.{i}.attn.c_attn.{kind}" for i in (11, 10, 9) for kind in ("weight", "bias")]


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (60, "transformer.h.11.attn.c_attn – 9.attn.c_attn"),
        (40, "transformer.h.11.attn – 9.attn"),
        (20, "transformer.h.11 – 9"),
        (12, "…h.11 – 9"),
        (5, "6 parameters"),
    ],
)
def test_ranges_leave_out_inner_modules_then_outer_ones(length: int, text: str) -> None:
    assert module_range(GPT, length) == text


@pytest.mark.parametrize(
    ("names", "length", "text"),
    [
        (["features.0.weight"], 20, "features.0.weight"),
        (["features.0.weight"], 10, "…0.weight"),
        (["features.0.weight"], 3, "1 parameter"),
        (["a.weight", "a.bias"], 20, "a.weight, a.bias"),
        (["classifier.fc1.weight", "classifier.fc1.bias"], 30, "classifier.fc1 (2 parameters)"),
        (["classifier.fc1.weight", "classifier.fc1.bias"], 15, "classifier.fc1"),
        (["w0", "w1", "w2", "w3"], 20, "w0 – w3"),
    ],
)
def test_one_module_is_named_once(names: list[str], length: int, text: str) -> None:
    assert module_range(names, length) == text


words = st.text("abc123_", min_size=1, max_size=8)
dotted = st.lists(words, min_size=1, max_size=6).map(".".join)


@given(st.lists(dotted, min_size=1, max_size=12), st.integers(0, 60))
def test_nothing_is_cut_and_nothing_is_too_long(names: list[str], length: int) -> None:
    text = module_range(names, length)
    count = re.fullmatch(r"\d+ parameters?", text)
    assert count or len(text) <= length
    known = {part for name in names for part in name.split(".")}
    if not count:
        bare = re.sub(r" \(\d+ parameters\)$", "", text)
        assert set(re.split(r"[.…]| – |, ", bare)) - {""} <= known
