"""Plans from files: whatever is changed in one, every reader refuses it, in the same words."""

import json
import re
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from functools import cache, reduce
from operator import getitem
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.families import bml, caramel
from planner.jsonio import PROBLEMS, decode_answer, decode_plan, decode_request, encode_plan
from planner.jsonio.results import _kinds
from planner.model.errors import InvalidInputError
from planner.programs import Answer, program_of, read_plan
from planner.programs.collectives import summing_program
from tests.formats.refused import refused
from tests.jsonio.requests import BASES, patched, places, text_of
from tests.jsonio.requests import CARAMEL as GRADIENTS
from tests.test_programs import BIGDL as SLICES
from tests.test_programs import BML as SUMS
from tests.test_programs import IBATCH as BATCHES

IBATCH = BATCHES
CARAMEL = {**GRADIENTS, "network": {"startup_ns": 30, "ns_per_byte": 0.05}}
BML = {**SUMS, "n": 2, "latency_ns": 10, "schedule": "all"}
BIGDL = {**SLICES, "elements": 10, "nodes": 3, "partitions_per_node": 2, "latency_ns": 10}
DRIZZLE, OVERLAP, FSDP = (BASES[name] for name in ("drizzle, stages", "overlap", "fsdp"))

METHODS: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "ibatch": (
        IBATCH,
        (
            {"direction": "pull"},
            {"direction": "push", "method": "greedy"},
            {"direction": "pull", "method": "layer_by_layer"},
            {"direction": "push", "method": "ddp"},
            {"objective": "eq4"},
        ),
    ),
    "caramel": (
        CARAMEL,
        tuple({"method": one} for one in ("auto", "exact", "caramel", "ddp", "layer_by_layer")),
    ),
    "iteration": (
        BASES["iteration"],
        ({}, {"method": "ddp"}, {"modes": ["sharded"]}, {"method": "ibatch"}),
    ),
    "bml": (
        {**BML, "with_plan": True},
        ({}, {"method": "trees"}, {"failed": {"nics": [[[0, 0], 0]]}, "method": "detour"}),
    ),
    "bigdl": (BIGDL, ({}, {"method": "same_order"}, {"method": "tree_aggregate"})),
    "drizzle": (DRIZZLE, ({},)),
    "overlap": (OVERLAP, ({}, {"method": "own_order"})),
    "fsdp": (
        FSDP,
        (
            {},
            {"method": "fsdp2"},
            {"method": "one_unit", "memory_bytes": 10**5},
            {"channels": "shared"},
            {"channels": "two", "method": "no_reshard", "memory_bytes": 10**5},
        ),
    ),
    "yan": (BASES["small"], ({}, {"method": "greedy"}, {"pareto": True})),
}
"""By problem: a request, and what else it may ask for plans of different kinds."""

LISTS = {
    "batches", "groups", "transfers", "schedule", "steps", "slices", "pull_order", "levels",
    "units", "stages", "layers", "mapping", "op_order", "order", "parameters",
    "trees", "detours",
}  # fmt: skip
"""Lists whose elements say what is done, and when."""

NO_MEANING = re.compile(
    r"\w+ (?:groups|transfers)\[\d+\]\.parameters\[\d+\] swap"  # parameters of a message,
    r"|\w+ order\[\d+\] swap"  # ... of a plan, and what goes its own way stands in any order
    r"|bml plan\.plan\.\w+\[\d+\] swap"
    r"|bml (?:transfers|steps).*|fsdp levels.*"  # nobody follows them
    r"|bigdl levels\[\d+\] drop"  # a tree of fewer levels
    r"|\w+ .*mapping\[\d+\] swap|\w+ (?:top|pareto)\[\d+\].*"
    r"|\w+ pull_order\[\d+\] swap"  # another exchange without hot spots
)
"""Changes that leave a plan one, or that nothing else in the answer contradicts."""


@cache
def answer_of(problem: str, variant: int = 0) -> str:
    request, variants = METHODS[problem]
    answer = planner.solve({**request, **variants[variant]})
    assert answer.get("objective_ns") is not None, (variants[variant], answer)
    return json.dumps(answer)


def changed(document: Any, path: tuple[Any, ...], kind: str) -> Any:
    """Return the document with one thing changed; None where that changes nothing."""
    new = deepcopy(document)
    parent, key = reduce(getitem, path[:-1], new), path[-1]
    if kind == "drop":
        del parent[key]
    elif kind == "duplicate":
        parent.insert(key, deepcopy(parent[key]))
    else:
        parent[key : key + 2] = parent[key : key + 2][::-1]
    return None if new == document else new


def mutations(document: Any) -> list[tuple[tuple[Any, ...], str]]:
    rows = [path for path in places(document) if isinstance(path[-1], int) and path[-2] in LISTS]
    return [(path, kind) for path in rows for kind in ("drop", "duplicate", "swap")]


def refusal(reader: Any, text: bytes) -> str | None:
    try:
        reader(text)
    except InvalidInputError as error:
        return str(error)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("problem", METHODS)
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_what_is_changed_in_a_plan_is_refused_by_all_readers_alike(
    problem: str, data: st.DataObject
) -> None:
    variant = data.draw(st.integers(0, len(METHODS[problem][1]) - 1))
    document = json.loads(answer_of(problem, variant))
    path, kind = data.draw(st.sampled_from(mutations(document)))
    broken = changed(document, path, kind)
    if broken is None:
        return
    text = json.dumps(broken).encode()
    said = refusal(decode_answer, text)
    executed = refusal(lambda data: summing_program(read_plan(data)), text)
    if not NO_MEANING.fullmatch(f"{problem} {text_of(path)} {kind}"):
        refused = executed if problem == "bml" else said
        assert refused is not None, (text_of(path), kind)
    if issubclass(PROBLEMS[problem].answer, Answer):
        assert refusal(read_plan, text) == said
        if said is not None:
            assert refusal(program_of, text) == said


TOOLS = ("ddp", "fsdp2", "horovod", "deepspeed")


@cache
def plans() -> tuple[Any, ...]:
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
        if isinstance(plan, bml.TreePlan):  # which keeps its steps in mind
            assert plan.steps
            assert encode_plan(plan) == text == encode_plan(replace(plan))
    assert kinds == {*_kinds()}
    for other in (None, {}, METHODS):
        with pytest.raises(InvalidInputError):
            encode_plan(other)


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
    ("kind", "plan", "path"),
    [
        ("bml.Schedul", {}, "kind"),
        ("ibatch.Plan", [], "plan"),
        ("ibatch.Plan", {"batches": [[0, "1"]]}, "plan.batches[0][1]"),
        ("drizzle.Plan", {"group_size": 1.5, "stages": []}, "plan.group_size"),
        ("bigdl.Exchange", {"elements": 1, "nodes": 1, "order": "x"}, "plan.order"),
    ],
)
def test_what_is_no_plan_is_refused_with_its_place(kind: str, plan: object, path: str) -> None:
    with refused(path, ""):
        decode_plan(json.dumps({"kind": kind, "plan": plan}))


@pytest.mark.parametrize("share", ["1/0", "1/00", "0.5", "1e9", 0.5, "1/" + "9" * 9999, None])
def test_what_is_no_fraction_is_refused(share: object) -> None:
    document = json.loads(encode_plan(caramel.Plan((), ((),), ())))
    with refused("plan.traffic", "a fraction such as"):
        decode_plan(json.dumps(patched(document, {"plan.traffic": share})))
