"""Typed plans go to JSON and come back as they were."""

import json
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache, reduce
from operator import getitem
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families import bml, caramel
from planner.jsonio import PROBLEMS, decode_plan, decode_request, encode_plan
from planner.jsonio.results import _kinds
from planner.model.errors import InvalidInputError
from tests.jsonio.patches import places
from tests.jsonio.test_plan_files import METHODS


@cache
def plans() -> tuple[Any, ...]:
    """Return plans of all methods of all families."""
    found = []
    for name, (request, _) in METHODS.items():
        made, family = decode_request(json.dumps(request)).to_problem(), PROBLEMS[name].family
        for method in family.methods:
            with suppress(InvalidInputError):  # not a method for this problem
                found.append(family.solve(getattr(made, "problem", made), method=method).plan)
    return tuple(found)


def test_every_kind_of_plan_comes_back_and_nothing_else_is_written() -> None:
    kinds = set()
    for plan in plans():
        text = encode_plan(plan)
        assert decode_plan(text) == decode_plan(text.encode()) == plan
        kinds.add(json.loads(text)["kind"])
    assert kinds == {*_kinds()}
    for other in (None, {}, METHODS):
        with pytest.raises(InvalidInputError):
            encode_plan(other)


def test_what_a_plan_has_cached_is_not_written() -> None:
    plan = next(plan for plan in plans() if type(plan) is bml.TreePlan)
    fresh = encode_plan(replace(plan))
    assert plan.steps
    assert encode_plan(plan) == fresh


@given(st.fractions(), st.integers(-(2**200), 2**200))
def test_numbers_of_any_length_come_back(share: Fraction, size: int) -> None:
    plan = caramel.Plan((caramel.Group((caramel.Part(0, 0, size),)),), ((0,),), (0,), traffic=share)
    assert decode_plan(encode_plan(plan)) == plan


@given(st.data())
def test_what_is_left_out_or_added_is_refused_with_its_place(data: st.DataObject) -> None:
    document = json.loads(encode_plan(data.draw(st.sampled_from(plans()))))
    inner = [reduce(getitem, path, document) for path in ((), *places(document, most=2))]
    changed = data.draw(st.sampled_from([one for one in inner if isinstance(one, dict)]))
    name = data.draw(st.sampled_from([*changed, "other"]))
    if name in changed:
        del changed[name]
    else:
        changed[name] = 1
    with pytest.raises(InvalidInputError) as caught:
        decode_plan(json.dumps(document))
    assert name in caught.value.path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[]", ""),
        ('{"kind": "bml.Schedul", "plan": {}}', "kind"),
        ('{"kind": "ibatch.Plan", "plan": []}', "plan"),
        ('{"kind": "ibatch.Plan", "plan": {"batches": [[0, "1"]]}}', "plan.batches[0][1]"),
        ('{"kind": "drizzle.Plan", "plan": {"group_size": 1.5, "stages": []}}', "plan.group_size"),
        (
            '{"kind": "bigdl.Exchange", "plan": {"elements": 1, "nodes": 1, "order": "x"}}',
            "plan.order",
        ),
    ],
)
def test_what_is_no_plan_is_refused_with_its_place(text: str, path: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        decode_plan(text)
    assert caught.value.path == path


@pytest.mark.parametrize("share", ["1/0", "1/00", "0.5", "1e9", 0.5, "1/" + "9" * 9999, None])
def test_what_is_no_fraction_is_refused(share: object) -> None:
    plan = caramel.Plan((), ((),), ())
    document = json.loads(encode_plan(plan))
    document["plan"]["traffic"] = share
    with pytest.raises(InvalidInputError, match="a fraction such as") as caught:
        decode_plan(json.dumps(document))
    assert caught.value.path == "plan.traffic"
