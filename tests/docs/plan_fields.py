"""Every field of an answer, and what becomes of a plan in which it is another one."""

from collections.abc import Iterator
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
from tests.jsonio.test_iteration import CLUSTER
from tests.jsonio.test_iteration import REQUEST as ITERATION
from tests.test_programs import BIGDL, BML, CARAMEL, IBATCH, solved
from tests.test_summing_programs import MIXED

_made = cache(made)  # of thousands of plans, most name one of a few programs

FAMILIES = ("iteration", "caramel", "ibatch", "fsdp", "bigdl", "bml")

Path = tuple[str, ...]

IN_CHUNKS = {"startup_ns": 0, "ns_per_byte": 0.001}
"""What transfers cost in two chunks: little, so that all are."""


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


@cache
def samples(problem: str) -> list[dict[str, Any]]:
    """Return plans that have all fields between them."""
    scheduling = {
        "group_ns": 0,
        "task_ns": 390_000,
        "constant_task_ns": 0,
    }
    failed = {"nics": [[[0, 0], 0]]}
    small = BML | {"n": 2, "gradient_bytes": 40}
    (mesh,) = FSDP["meshes"]
    return {
        "iteration": lambda: [
            solved(
                ITERATION,
                modes=["replicated"],
                algorithms=["ring", "halving_doubling"],
                with_plan=True,
            ),
            solved(ITERATION, modes=["sharded"], algorithms=["ring"], regret=True),
            solved(ITERATION, target="ddp"),
            solved(ITERATION, epoch_samples=64, cluster={**CLUSTER, "scheduling": scheduling}),
            solved(MIXED),
            solved(MIXED, profile=in_parts()),
            solved(ITERATION, cluster={**CLUSTER, "interference": {"slowdown": 1.5}}),
            solved(ITERATION, scenarios=[{"startup": 2}]),
            *damaged(),
        ],
        "caramel": lambda: [
            solved(CARAMEL, regret=True, scenarios=[{"startup": 2}], with_plan=True),
            solved(CARAMEL, method="horovod"),
            solved(CARAMEL, network={**CARAMEL["network"], "depths": {"2": IN_CHUNKS}}),
            solved(CARAMEL, target="ddp"),
            solved(CARAMEL, network={**CARAMEL["network"], "interference": {"slowdown": 1.5}}),
        ],
        "ibatch": lambda: [
            {**solved(IBATCH, regret=True), "ranks": 4},
            solved(IBATCH, direction="push", objective="eq4", with_plan=True),
            solved(IBATCH, target="fsdp2"),
            solved(IBATCH, scenarios=[{"startup": 2}]),
            disturbed(),
        ],
        "fsdp": lambda: [
            solved(FSDP, memory_bytes=9000, with_plan=True),
            solved(FSDP, method="auto", regret=True, scenarios=[{"startup": 2}]),
            solved(FSDP, channels="two", method="no_reshard"),
            solved(FSDP, method="one_unit"),
            solved(FSDP, meshes=[{**mesh, "shards": 2, "replicas": 3, "all_reduce": IN_CHUNKS}]),
        ],
        "bigdl": lambda: [solved(BIGDL, with_plan=True), solved(BIGDL, method="same_order")],
        "bml": lambda: [
            solved(small, with_plan=True),
            solved(small, regret=True, scenarios=[{"startup": 2}]),
            solved(BML, k=1),
            solved(small, schedule="all", layer_bytes=[8, 32]),
            solved(small, failed=failed, schedule="all", with_plan=True),
        ],
    }[problem]()


def disturbed() -> dict[str, Any]:
    """Return batches beside which computation is slower."""
    network = {"startup_ns": 2, "ns_per_byte": 1, "interference": {"slowdown": 1.5}}
    known = {name: IBATCH[name] for name in ("problem", "compute_ns", "layer_parameters")}
    sizes = [4] * len(known["compute_ns"])
    return solved({**known, "layer_bytes": sizes, "network": network})


def in_parts() -> dict[str, Any]:
    """Return a profile on rails whose transfers go in parts, the one in more than the other."""
    sizes = {"small": 900_000, "large": 16_000_000}
    profile: dict[str, Any] = MIXED["profile"]
    parameters = [
        {**parameter, "bytes": sizes[parameter["name"]]} for parameter in profile["parameters"]
    ]
    return {**profile, "parameters": parameters}


def damaged() -> Iterator[dict[str, Any]]:
    """Yield plans around failures, by one program and by two."""
    for failed in ({"nics": [[[0, 0], 1]]}, {"servers": [[2, 2]]}, {"switches": [[1, [0]]]}):
        cluster = {
            "name": "damaged",
            "source": "a test",
            "machines": 9,
            "topology": {"kind": "bcube", "n": 3, "k": 2},
            "nic": {"bytes_per_s": 1e9, "startup_ns": 20_000, "per_machine": 2},
            "failed": failed,
        }
        for algorithms in (["bml"], ["bml", "mixed"]):
            yield solved(MIXED, cluster=cluster, algorithms=algorithms, modes=["replicated"])


def _changed(answer: dict[str, Any], path: str) -> Iterator[dict[str, Any]]:
    """Yield answers in which a field is another one, or is there though it was not: each once."""
    names = path.replace("[]", ".[]").split(".")
    text = msgspec.json.encode(answer)
    known = {text}
    for number in (0, -1) if {"[]", "*"} & {*names} else (0,):
        for change in (_other, _less, _twice):
            copy = msgspec.json.decode(text)
            place: Any = copy
            for name in names[:-1]:
                if name in {"[]", "*"}:
                    keys: Any = list(place) if isinstance(place, dict) else range(len(place))
                    place = place[keys[number]] if keys else None
                else:
                    place = place.get(name)
                if place is None:
                    break
            if place is not None:
                change(place, names[-1])
                changed = msgspec.json.encode(copy)
                if changed not in known:
                    known.add(changed)
                    yield copy


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


def _other(place: Any, name: str) -> None:
    value = place.get(name)
    if isinstance(value, bool):
        place[name] = not value
    elif isinstance(value, int | float):
        place[name] = value + 1
    elif isinstance(value, str):
        others = {one: other for pair in _SWAPS for one, other in (pair, pair[::-1])}
        place[name] = others.get(value, f"{value}?")
    elif isinstance(value, list) and value:
        place[name] = value[::-1] if value != value[::-1] else [*value, value[-1]]
    elif isinstance(value, dict) and value:
        key = next(iter(value))
        place[name] = {**value, key: _moved(value[key])}
    else:
        place[name] = _VALUES.get(name, 1)


def _moved(value: Any) -> Any:
    if isinstance(value, list):
        return [_moved(one) for one in value]
    return value + 1 if isinstance(value, int) else f"{value}?"


def _less(place: Any, name: str) -> None:
    value = place.get(name)
    if isinstance(value, list):
        place[name] = value[:-1]
    elif isinstance(value, dict):
        place[name] = dict(list(value.items())[1:])
    elif isinstance(value, int | float) and not isinstance(value, bool) and value:
        place[name] = value - 1


def _twice(place: Any, name: str) -> None:
    value = place.get(name)
    if isinstance(value, list | int | float) and not isinstance(value, bool):
        place[name] = value * 2


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
