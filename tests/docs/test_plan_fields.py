"""The table of what becomes of every field of a plan has all fields, and is true of each."""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from plan_table import Row, rows

from planner.families.bml.program import made
from planner.families.collectives.recipes import Recipe
from planner.jsonio import PROBLEMS
from planner.jsonio.decoding import typed
from planner.model.errors import InvalidInputError
from planner.programs import read_plan
from planner.programs.collectives import summing_program
from planner.programs.from_plans import read_answer, recipes_of
from tests.formats.test_fsdp2_units import REQUEST as FSDP
from tests.jsonio.requests import BASES as CLUSTERS
from tests.jsonio.requests import CARAMEL, ITERATION, patched, table
from tests.test_programs import BIGDL, BML, IBATCH, solved
from tests.test_summing_programs import MIXED

_made = cache(made)  # of thousands of plans, most name one of a few programs


@cache
def fields(problem: str) -> list[str]:
    """Return the paths of all fields of a problem's answers that hold no further ones.

    `[]` stands for the elements of a list, `*` for the keys of an object.
    """
    kind = msgspec.inspect.type_info(PROBLEMS[problem].answer)
    return list(dict.fromkeys(".".join(path).replace(".[]", "[]") for path in _leaves(kind)))


def _leaves(kind: Any) -> Iterator[tuple[str, ...]]:
    inspect = msgspec.inspect
    if isinstance(kind, inspect.Metadata):
        yield from _leaves(kind.type)
    elif isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from ((field.encode_name, *path) for path in _leaves(field.type))
    elif isinstance(kind, inspect.UnionType):
        found = list(dict.fromkeys(path for one in kind.types for path in _leaves(one)))
        yield from [path for path in found if path] or [()]
    elif isinstance(kind, inspect.VarTupleType):
        found = list(_leaves(kind.item_type))
        yield from [("[]", *path) for path in found if path] or [()]
    elif isinstance(kind, inspect.DictType) and isinstance(kind.value_type, inspect.StructType):
        yield from (("*", *path) for path in _leaves(kind.value_type))
    else:
        yield ()


SQUARE = {"machines": 9, "topology.n": 3, "nic.bytes_per_s": 1e9, "nic.startup_ns": 20_000}
DAMAGED = {**MIXED, "cluster": patched(CLUSTERS["bcube"], SQUARE), "modes": ["replicated"]}
SIMPLE: tuple[dict[str, Any], ...] = (ITERATION, CARAMEL, IBATCH, FSDP, BIGDL, BML)
FAMILIES = [one["problem"] for one in SIMPLE]
BASES = {**dict(zip(FAMILIES, SIMPLE, strict=True)), "mixed": MIXED, "damaged": DAMAGED}


@cache
def samples(problem: str) -> list[dict[str, Any]]:
    """Return plans that have all fields between them."""
    asked = [request for request, _ in table(Path(__file__).with_name("samples.json"), BASES)]
    plans = [solved(request) for request in asked if request["problem"] == problem]
    if problem == "ibatch":
        plans[0]["ranks"] = 4
    return plans


def _changed(answer: dict[str, Any], path: str) -> Iterator[dict[str, Any]]:
    """Yield answers in which a field is another one, or is there though it was not: each once."""
    *outer, name = path.replace("[]", ".[]").split(".")
    text = msgspec.json.encode(answer)
    known = {text}
    found = _places(answer, outer)
    for at in {0, len(found) - 1} if found else ():
        for value in _others(found[at].get(name), name):
            copy = msgspec.json.decode(text)
            _places(copy, outer)[at][name] = value
            changed = msgspec.json.encode(copy)
            if changed not in known:
                known.add(changed)
                yield copy


def _places(answer: Any, names: Sequence[str]) -> list[Any]:
    """Return all objects of an answer that are reached by some names."""
    found = [answer]
    for name in names:
        if name in ("[]", "*"):
            found = [one for it in found for one in (it.values() if name == "*" else it)]
        else:
            found = [it[name] for it in found if it.get(name) is not None]
    return found


_PAIRS = (
    "pull push, replicated sharded, all_reduce pull, makespan eq4, forward backward, "
    "symmetry replay, optimal feasible, aggregate broadcast, ring halving_doubling"
)
_SWAPS = [pair.split() for pair in _PAIRS.split(", ")]
_SWAPPED = {one: other for pair in _SWAPS for one, other in (pair, pair[::-1])}
_VALUES: dict[str, Any] = {
    "depth": 2,
    "reason": "there is none",
    "binding": ["memory"],
    "layers": [0],
    "left_out": {"bml": "no"},
    "layer_names": ["a"],
    "warnings": ["noisy"],
    "profile_threads": 1,
    "failed": {},
    "servers": [[0, 1]],
    "nics": [[[0, 1], 0]],
    "links": [[[0, 2], 0]],
    "switches": [[0, [1]]],
}


def _others(value: Any, name: str) -> Iterator[Any]:
    """Yield other values of a field: another one, less, twice as much."""
    match value:
        case bool():
            yield not value
        case int() | float():
            yield from (value + 1, value - bool(value), value * 2)
        case str():
            yield _SWAPPED.get(value, f"{value}?")
        case [*_, last]:
            yield value[::-1] if value != value[::-1] else [*value, last]
            yield from (value[:-1], value * 2)
        case dict() if value:
            key, *others = value
            yield {**value, key: _moved(value[key])}
            yield {one: value[one] for one in others}
        case _:
            yield _VALUES.get(name, 1)


def _moved(value: Any) -> Any:
    if isinstance(value, list):
        return [_moved(one) for one in value]
    return value + 1 if isinstance(value, int) else f"{value}?"


def _accepted(answer: dict[str, Any]) -> bool:
    """Whether what a plan says of itself agrees, and somebody follows it."""
    try:
        read = read_plan(msgspec.json.encode(answer))
        (summing_program if read.problem == "bml" else read_answer)(read)
    except InvalidInputError:
        return False
    return True


def _programs_of_transfers(answer: Any) -> list[str]:
    if answer.transfers is msgspec.UNSET:
        return [summing_program(answer).program.name]
    ring = Recipe("ring", (answer.workers,))
    programs = {name: _made(it or ring) for name, it in recipes_of(answer).items()}
    return [programs[transfer.algorithm or None].name for transfer in answer.transfers]


def followed(answer: dict[str, Any]) -> object:
    """Return what is followed of an answer, whether or not it agrees; None: nothing is."""
    read: list[object] = []
    try:
        unchecked: Any = typed(answer, PROBLEMS[answer["problem"]].answer)
        if answer["problem"] != "bml":
            read.append(read_answer(unchecked))
        if answer["problem"] == "iteration":
            read += _programs_of_transfers(unchecked)
        elif answer["problem"] in ("bml", "bigdl"):
            program, depth, size = summing_program(unchecked)
            read += [list(program.messages()), depth, size, program.layout(size or 720).span(0, 1)]
    except (InvalidInputError, KeyError):
        return None
    return read


def fates(problem: str, path: str) -> set[str]:
    """Return what becomes of plans in which a field is another one.

    "followed": something else is done; "refused"; "ignored": neither.
    """
    found = set()
    for answer, before in zip(samples(problem), followed_samples(problem), strict=True):
        for other in _changed(answer, path):
            after = followed(other)
            if after is not None and after != before:
                found.add("followed")
            else:
                found.add("ignored" if _accepted(other) else "refused")
    return found


@cache
def followed_samples(problem: str) -> list[object]:
    """Return what is followed of each sample."""
    assert all(map(_accepted, samples(problem)))
    return [followed(answer) for answer in samples(problem)]


LOOSELY = {"all lower_bound_ns", "all objective_ns"}
"""Checked, but as far as an answer holds the costs: those of bml and bigdl do not."""

ROW_BY_ROW = {
    "bml rounds",
    *(f"caramel groups[].{time}" for time in ("ready_ns", "start_ns", "end_ns")),
    *(f"iteration transfers[].{time}" for time in ("ready_ns", "start_ns", "end_ns")),
    *(
        f"iteration synchronisation.{way}program.failed.{what}"
        for way in ("", "others[].")
        for what in ("servers", "nics", "links", "switches")
    ),
}
"""Executed, but where transfers say it row by row, their order in time stays the same, or the same
part fails twice."""


ROWS = list(rows())


def covers(name: str, path: str) -> bool:
    return path == name or path.startswith((f"{name}.", f"{name}[]"))


def row_of(family: str, path: str) -> Row:
    """Return the only row about a field."""
    about = [
        row
        for row in ROWS
        if row.family in (family, "all") and any(covers(name, path) for name in row.names)
    ]
    assert len(about) == 1, (family, path, about)
    return about[0]


def test_every_row_is_about_fields_that_there_are() -> None:
    for row in ROWS:
        for family in FAMILIES if row.family == "all" else (row.family,):
            for name in row.names:
                known = any(covers(name, path) for path in fields(family))
                assert known or row.family == "all", (row.family, name)


def values(answer: Any, path: str) -> str:
    """Return what an answer says in a field, wherever it does."""
    *outer, name = path.replace("[]", ".[]").split(".")
    return json.dumps([one[name] for one in _places(answer, outer) if name in one])


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_table_is_true(family: str) -> None:
    """Each field is changed in plans that have it, and what is followed is looked at."""
    for path in fields(family):
        row = row_of(family, path)
        what = fates(family, path)
        where = family, path, row.word, what
        assert what, where
        if row.word == "executed":
            assert "ignored" not in what or f"{family} {path}" in ROW_BY_ROW, where
            if "followed" not in what:  # by itself it contradicts others: plans that differ in it
                known = list(zip(samples(family), followed_samples(family), strict=True))
                assert any(
                    values(one, path) != values(other, path) and done != otherwise
                    for one, done in known
                    for other, otherwise in known
                ), where
        elif row.word == "checked":
            assert what == {"refused"} or f"{row.family} {path}" in LOOSELY, where
        else:
            assert "followed" not in what, where
            assert row.word == "reported" or "because" in row.how, where
