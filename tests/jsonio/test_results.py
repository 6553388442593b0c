"""Typed plans go to JSON and come back as they were."""

import json
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import read_cluster, read_profile
from planner.families import bigdl, bml, caramel, drizzle, fsdp, ibatch, iteration, overlap, yan
from planner.jsonio import (
    decode_plan,
    decode_request,
    encode_plan,
)
from planner.jsonio.bml import problem_of as bml_problem
from planner.jsonio.results import _kinds
from planner.jsonio.yan import problem_of as yan_problem
from planner.model.errors import InvalidInputError
from planner.solving.result import Result
from tests.jsonio.test_plan_files import BIGDL, BML, CARAMEL, DRIZZLE, FSDP, IBATCH, OVERLAP
from tests.jsonio.test_yan import SMALL

LENET = Path(__file__).parents[2] / "data" / "profiles" / "lenet5.json"


def asked(document: dict[str, Any]) -> Any:
    return decode_request(json.dumps(document))


@cache
def problems() -> tuple[tuple[Any, Any], ...]:
    lenet = read_profile(LENET)
    return (
        (ibatch, asked(IBATCH).to_problem()),
        (caramel, asked(CARAMEL).to_problem()),
        (yan, yan_problem(asked(SMALL))),
        (bml, bml_problem(asked(BML))),
        (bml, bml_problem(asked({**BML, "failed": {"links": [[[0, 0], 1]]}}))),
        (bigdl, asked(BIGDL).to_problem()),
        (overlap, asked(OVERLAP).to_problem()),
        (drizzle, asked(DRIZZLE).to_problem()),
        (fsdp, asked(FSDP).to_problem()),
        (drizzle, replace(asked(DRIZZLE).to_problem(), max_group_ns=1)),  # has no plan
        (iteration, iteration.Problem.from_profile(lenet, read_cluster("caramel-16"))),
        (iteration, iteration.Problem.from_profile(lenet, read_cluster("bml-bcube"))),
    )


@cache
def results() -> tuple[tuple[Any, Any, Result[Any, Any]], ...]:
    solved = []
    for family, problem in problems():
        for method in family.METHODS:
            try:
                solved.append((family, problem, family.solve(problem, method=method)))
            except InvalidInputError:  # not a method for this problem
                continue
    return tuple(solved)


def test_every_plan_of_every_method_comes_back() -> None:
    seen = set()
    for family, problem, result in results():
        if result.plan is None:
            continue
        text = encode_plan(result.plan)
        plan = decode_plan(text)
        assert decode_plan(text.encode()) == plan == result.plan
        assert type(plan) is type(result.plan)
        evaluate = yan.estimate if family is yan else family.evaluate
        assert evaluate(problem, plan.configuration if family is yan else plan) == result.evaluation
        seen.add(json.loads(text)["kind"])
    assert seen == {*_kinds()}


def test_what_a_plan_has_cached_is_not_written() -> None:
    plan = next(result.plan for _, _, result in results() if type(result.plan) is bml.TreePlan)
    fresh = encode_plan(replace(plan))
    assert plan.steps
    assert encode_plan(plan) == fresh


@given(st.fractions(), st.integers(-(2**200), 2**200))
def test_numbers_of_any_length_come_back(share: Fraction, size: int) -> None:
    plan = caramel.Plan((caramel.Group((caramel.Part(0, 0, size),)),), ((0,),), (0,), traffic=share)
    assert decode_plan(encode_plan(plan)) == plan


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value[:2])
    for key, item in items:
        if isinstance(item, dict | list):
            found += places(item, (*path, key))
    return found


@given(st.data())
def test_what_is_left_out_or_added_is_refused_with_its_place(data: st.DataObject) -> None:
    plans = [result.plan for _, _, result in results() if result.plan is not None]
    document = json.loads(encode_plan(data.draw(st.sampled_from(plans))))
    objects = []
    for path in places(document):
        inner = document
        for key in path:
            inner = inner[key]
        if isinstance(inner, dict):
            objects.append(inner)
    changed = data.draw(st.sampled_from(objects))
    name = data.draw(st.sampled_from([*changed, "other"]))
    if name in changed:
        del changed[name]
    else:
        changed[name] = 1
    with pytest.raises(InvalidInputError) as caught:
        decode_plan(json.dumps(document))
    assert name in caught.value.path


def test_no_plan_lacks_a_field_that_has_a_default() -> None:
    for _, _, result in results():
        if result.plan is None:
            continue
        document = json.loads(encode_plan(result.plan))
        for name in document["plan"]:
            changed = {key: value for key, value in document["plan"].items() if key != name}
            with pytest.raises(InvalidInputError, match="missing") as caught:
                decode_plan(json.dumps({**document, "plan": changed}))
            assert caught.value.path == f"plan.{name}"


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


def test_nothing_else_is_written() -> None:
    others: tuple[Any, ...] = (None, {}, results()[0][1])
    for other in others:
        with pytest.raises(InvalidInputError):
            encode_plan(other)
