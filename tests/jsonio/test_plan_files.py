"""Plans from files: whatever is changed in one, every reader refuses it, in the same words."""

import json
import re
from copy import deepcopy
from functools import cache, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.cli import main
from planner.jsonio import PROBLEMS, decode_answer
from planner.model.errors import InvalidInputError
from planner.programs import Answer, program_of, read_plan
from planner.programs.collectives import summing_program
from tests.jsonio.patches import places, text_of
from tests.jsonio.requests import BASES
from tests.test_programs import BIGDL as SLICES
from tests.test_programs import BML as SUMS
from tests.test_programs import CARAMEL as GRADIENTS
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
def answers(problem: str) -> tuple[str, ...]:
    request, variants = METHODS[problem]
    found = []
    for fields in variants:
        answer = planner.solve({**request, **fields})
        assert answer.get("objective_ns") is not None, (fields, answer)
        found.append(json.dumps(answer))
    return tuple(found)


def changed(document: Any, path: tuple[Any, ...], kind: str) -> Any:
    """Return the document with one thing changed; None where that changes nothing."""
    new = deepcopy(document)
    parent, key = reduce(getitem, path[:-1], new), path[-1]
    if kind == "drop":
        del parent[key]
    elif kind == "duplicate":
        parent.insert(key, deepcopy(parent[key]))
    else:
        if key + 1 >= len(parent):
            return None
        parent[key], parent[key + 1] = parent[key + 1], parent[key]
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
    document = json.loads(data.draw(st.sampled_from(answers(problem))))
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


@pytest.mark.slow
@pytest.mark.parametrize("problem", [method for method in METHODS if method != "bml"])
def test_all_commands_refuse_a_plan_in_the_same_words(
    problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    for text in answers(problem):
        document = json.loads(text)
        where = next(where for where, kind in mutations(document) if kind == "duplicate")
        path.write_text(json.dumps(changed(document, where, "duplicate")))
        said = refusal(decode_answer, path.read_bytes())
        assert said is not None
        commands = [["draw", str(path)]]
        if issubclass(PROBLEMS[problem].answer, Answer):
            commands += [["export", tool, str(path)] for tool in TOOLS]
            assert refusal(program_of, path.read_bytes()) == said
        for command in commands:
            assert main(command) == 2
            assert capsys.readouterr().err == f"planner: error: {path}: {said}\n", command


def test_batches_and_their_schedule_are_compared() -> None:
    document = planner.solve({**IBATCH, "method": "layer_by_layer"})
    other = planner.solve({**IBATCH, "method": "one_batch"})
    assert document["batches"] != other["batches"]
    text = json.dumps(document | {"batches": other["batches"]}).encode()
    said = refusal(decode_answer, text)
    assert said is not None
    assert said.startswith("schedule")
    assert refusal(program_of, text) == said
