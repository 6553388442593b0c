"""What requests of several problems are made of: amounts, costs, graphs, models, clusters.

A request is written as it looks, with a function in the place of what is drawn: `made` calls it.
"""

import json
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from tests import large
from tests.jsonio.requests import BASES, ROOT

Request = dict[str, Any]
Make = Callable[[Random], Any]


def made(value: Any, draw: Random) -> Any:
    """Return a value in which every function is replaced by what it draws, and `...` left out."""
    if callable(value):
        return made(value(draw), draw)
    if isinstance(value, dict):
        found = {key: made(item, draw) for key, item in value.items()}
        return {key: item for key, item in found.items() if item is not ...}
    return [made(item, draw) for item in value] if isinstance(value, list) else value


def one_of(*values: Any) -> Make:
    return lambda draw: draw.choice(values)


def maybe(share: float, value: Any) -> Make:
    return lambda draw: value if draw.random() < share else ...


def below(end: int, start: int = 0) -> Make:
    return lambda draw: draw.randrange(start, end)


def size(draw: Random) -> int:
    """Return how many layers or ops there are: mostly few, sometimes hundreds."""
    if draw.random() < 0.02:
        return draw.choice([40, 100, 400, 1500])
    return draw.choice([1, 1, 2, 2, 3, 3, 4, 5, 6, 8, draw.choice([8, 12, 20])])


def amount(draw: Random) -> int:
    """Return a time or a size: 0, small, real or huge."""
    ends = [1, 10, 10**3, 10**6, 10**9, 2 ** draw.randrange(1, 60)]
    return draw.choice([1, *map(draw.randrange, ends)])


def rate(draw: Random) -> float | int:
    """Return the rate of a link."""
    return draw.choice([1e15, 1.25e15, 5e9, 5e5, 1e6, 3e6, 1e3, 123456.789, 10**18, 1e6 / 3])


def limit(draw: Random) -> float:
    """Return a time limit: mostly over before the search begins."""
    return draw.choices([1e-9, 1e-3, 0.01, 0.05, 0.5], [32, 38, 15, 11, 4])[0]


def rows(draw: Random, least: int) -> list[list[int]]:
    """Return a measured table: sizes of at least `least` bytes, with rising times."""
    more = [least + 2 + (amount(draw) >> 12) for _ in range(draw.randrange(3))]
    points = sorted({least, least + 1, *more})
    times = sorted(least + (amount(draw) >> 16) for _ in points)
    return [list(pair) for pair in zip(points, times, strict=True)]


def graph(draw: Random) -> Request:
    """Return ops and parameters."""
    layers = min(size(draw), 400)
    ops, parameters, each = [], [], below(50)
    for number in range(layers):
        after = [f"f{number - 1}"] if number else []
        if number > 1 and draw.random() < 0.2:
            after.append(f"f{draw.randrange(number - 1)}")
        ops.append({"name": f"f{number}", "ns": each, "pass": "forward", "after": after})
    for number in reversed(range(layers)):
        after = [f"b{number + 1}"] if number + 1 < layers else [f"f{number}"]
        ops.append({"name": f"b{number}", "ns": each, "pass": "backward", "after": after})
    for number in range(layers):
        if draw.random() < 0.8 or number == 0:
            ends: Request = {"updated_by": f"b{number}", "read_by": f"f{number}"}
            if number and draw.random() < 0.1:
                ends = {"updated_by": [f"b{number}", "b0"], "read_by": [f"f{number}", "f0"]}
            parameters.append({"name": f"w{number}", "bytes": below(50, 1), **ends})
    return {"ops": ops, "parameters": parameters}


INTERFERENCE = maybe(0.3, {**large.DISTURBING, "slowdown": one_of(1, 1.1, 1000)})
TABLES = [{"ranks": 2, "ranks_per_host": 1}, {"ranks": 8, "ranks_per_host": 4}, {"ranks": 72}]
"""The groups whose collectives were timed."""


def measured(draw: Random) -> Request:
    """Return what collectives took on a cluster."""
    kinds = ["all_reduce", "all_gather", "reduce_scatter"]
    chosen = kinds if draw.random() < 0.7 else draw.sample(kinds, 2)
    groups = TABLES[: draw.randrange(1, 4)]
    table = [{**group, "table": [[1, 5], [10, 20]]} for group in groups]
    return {"collectives": dict.fromkeys(chosen, table)}


def network(draw: Random) -> Request:
    """Return a network as requests describe one: what transfers cost, NICs, or measurements."""
    nic = {"bytes_per_s": 1e9, "startup_ns": 100, "per_machine": maybe(0.3, one_of(1, 2, 8))}
    depths = {"depths": {"1": large.COST, "2": large.TABLE, "8": large.COST}}
    timed = {"network": large.COST, "collective": "all_reduce", "ranks": one_of(2, 8)}
    kinds: list[Any] = [large.COST, large.TABLE, nic, depths, timed, measured]
    (kind,) = draw.choices(kinds, [40, 20, 15, 10, 8, 7])
    return {**made(kind, draw), "interference": INTERFERENCE}


@cache
def _files(folder: str) -> tuple[str, ...]:
    return tuple(path.read_text() for path in sorted((ROOT / "data" / folder).glob("*.json")))


def profile(draw: Random) -> Request:
    """Return a profiled model, seldom a shipped one."""
    if draw.random() < 0.01:
        shipped: Request = json.loads(draw.choice(_files("profiles")))
        return shipped
    about = {**BASES["layers"], "batch_size": one_of(1, 2, 32)}
    if draw.random() < 0.4:
        return {**about, **graph(draw), "layers": ...}
    layer = {**BASES["layers"]["layers"][0], "activation_bytes": 10**4}
    names = [f"l{number}" for number in range(min(size(draw), 100))]
    return {**about, "layers": [{**layer, "name": name} for name in names]}


def cluster(draw: Random) -> Request:
    """Return machines on a network: generated, or shipped."""
    if draw.random() < 0.25:
        shipped: Request = json.loads(draw.choice(_files("clusters")))
        return shipped
    square = {"machines": 9, "topology": {"kind": "bcube", "n": 3, "k": 2}}
    known = [
        {**BASES["switch"], "machines": one_of(4, 1, 2, 65536)},
        *(BASES[name] for name in ("full", "rails", "bcube", "fattree")),
        {**BASES["bcube"], **square},
        {**BASES["fattree"], "machines": 3, "topology": {"kind": "fattree", "ports": 16}},
    ]
    more = {"memory_bytes": maybe(0.3, one_of(1, 10**6, 10**9, 2**60))}
    more |= {"shared_bytes_per_s": maybe(0.2, rate), "interference": INTERFERENCE}
    more |= {"scheduling": maybe(0.2, BASES["full"]["scheduling"]), "network": maybe(0.1, measured)}
    return {**draw.choice(known), **more}
