"""Every field of an answer, and what becomes of a plan in which it is another one."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from planner.families.bml.program import made
from planner.families.collectives.recipes import Recipe
from planner.jsonio import PROBLEMS
from planner.jsonio.decoding import typed
from planner.model.errors import InvalidInputError
from planner.programs import read_plan
from planner.programs.collectives import summing_program
from planner.programs.from_plans import read_answer, recipes_of
from tests.formats.test_fsdp2_units import REQUEST as FSDP
from tests.jsonio.patches import patched
from tests.jsonio.requests import ITERATION
from tests.test_programs import BIGDL, BML, CARAMEL, IBATCH, solved
from tests.test_summing_programs import MIXED

_made = cache(made)  # of thousands of plans, most name one of a few programs

FAMILIES = ("iteration", "caramel", "ibatch", "fsdp", "bigdl", "bml")

Path = tuple[str, ...]


@cache
def fields(problem: str) -> list[str]:
    """Return the paths of all fields of a problem's answers that hold no further ones.

    `[]` stands for the elements of a list, `*` for the keys of an object.
    """
    kind = msgspec.inspect.type_info(PROBLEMS[problem].answer)
    return list(dict.fromkeys(".".join(path).replace(".[]", "[]") for path in _leaves(kind)))


def _leaves(kind: Any) -> Iterator[Path]:
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


IN_CHUNKS = {"startup_ns": 0, "ns_per_byte": 0.001}
"""What transfers cost in two chunks: little, so that all are."""

SLOWED = {"interference": {"slowdown": 1.5}}
LATER: dict[str, Any] = {"scenarios": [{"startup": 2}]}
SMALL = BML | {"n": 2, "gradient_bytes": 40}
(MESH,) = FSDP["meshes"]


def damaged(failed: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "damaged",
        "source": "a test",
        "machines": 9,
        "topology": {"kind": "bcube", "n": 3, "k": 2},
        "nic": {"bytes_per_s": 1e9, "startup_ns": 20_000, "per_machine": 2},
        "failed": failed,
    }


SAMPLES: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "iteration": [
        (
            ITERATION | {"modes": ["replicated"], "with_plan": True},
            {"algorithms": ["ring", "halving_doubling"]},
        ),
        (ITERATION, {"modes": ["sharded"], "algorithms": ["ring"], "regret": True}),
        (ITERATION, {"target": "ddp"}),
        (ITERATION, {"epoch_samples": 64, "cluster.scheduling": {"task_ns": 390_000}}),
        (MIXED, {}),
        # On rails, transfers in parts, the one in more than the other.
        (
            MIXED,
            {
                f"profile.parameters[{place}].bytes": {"small": 900_000, "large": 16_000_000}[name]
                for place, name in enumerate(one["name"] for one in MIXED["profile"]["parameters"])
            },
        ),
        (ITERATION, {"cluster.interference": {"slowdown": 1.5}}),
        (ITERATION, LATER),
        # Around failures, by one program and by two.
        *(
            (MIXED | {"cluster": damaged(failed)}, {"algorithms": names, "modes": ["replicated"]})
            for failed in ({"nics": [[[0, 0], 1]]}, {"servers": [[2, 2]]}, {"switches": [[1, [0]]]})
            for names in (["bml"], ["bml", "mixed"])
        ),
    ],
    "caramel": [
        (CARAMEL, {"regret": True, "with_plan": True, **LATER}),
        (CARAMEL, {"method": "horovod"}),
        (CARAMEL, {"network.depths": {"2": IN_CHUNKS}}),
        (CARAMEL, {"target": "ddp"}),
        (CARAMEL, {"network.interference": SLOWED["interference"]}),
    ],
    "ibatch": [
        (IBATCH, {"regret": True}),
        (IBATCH, {"direction": "push", "objective": "eq4", "with_plan": True}),
        (IBATCH, {"target": "fsdp2"}),
        (IBATCH, LATER),
        (
            IBATCH,
            {
                **dict.fromkeys(("startup_ns", "transfer_ns"), ...),
                "layer_bytes": [4] * len(IBATCH["compute_ns"]),
                "network": {"startup_ns": 2, "ns_per_byte": 1, **SLOWED},
            },
        ),
    ],
    "fsdp": [
        (FSDP, {"memory_bytes": 9000, "with_plan": True}),
        (FSDP, {"method": "auto", "regret": True, **LATER}),
        (FSDP, {"channels": "two", "method": "no_reshard"}),
        (FSDP, {"method": "one_unit"}),
        (FSDP, {"meshes": [{**MESH, "shards": 2, "replicas": 3, "all_reduce": IN_CHUNKS}]}),
    ],
    "bigdl": [(BIGDL, {"with_plan": True}), (BIGDL, {"method": "same_order"})],
    "bml": [
        (SMALL, {"with_plan": True}),
        (SMALL, {"regret": True, **LATER}),
        (BML, {"k": 1}),
        (SMALL, {"schedule": "all", "layer_bytes": [8, 32]}),
        (SMALL, {"failed": {"nics": [[[0, 0], 0]]}, "schedule": "all", "with_plan": True}),
    ],
}
"""Requests for plans that have all fields between them, and what is changed in the requests."""


@cache
def samples(problem: str) -> list[dict[str, Any]]:
    plans = [solved(patched(request, changes)) for request, changes in SAMPLES[problem]]
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


_SWAPS = (
    ("pull", "push"),
    ("replicated", "sharded"),
    ("all_reduce", "pull"),
    ("makespan", "eq4"),
    ("forward", "backward"),
    ("symmetry", "replay"),
    ("optimal", "feasible"),
    ("aggregate", "broadcast"),
    ("ring", "halving_doubling"),
)
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
    recipes = recipes_of(answer)
    programs = {
        name: _made(it or Recipe("ring", (answer.workers,))) for name, it in recipes.items()
    }
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
            elif not _accepted(other):
                found.add("refused")
            else:
                found.add("ignored")
    return found


@cache
def followed_samples(problem: str) -> list[object]:
    """Return what is followed of each sample."""
    assert all(map(_accepted, samples(problem)))
    return [followed(answer) for answer in samples(problem)]
