"""Requests that mean something, for each problem, from tiny to large.

Most are requests of other tests with other sizes, times and options.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

from tests import large
from tests.fuzzing import parts
from tests.fuzzing.parts import Make, Request, amount, below, limit, made, maybe, one_of, size
from tests.jsonio.requests import BASES, ROOT

LIMITS = ("memory_bytes", "memory_limit_bytes", "max_group_ns")

COUNTS: list[Make] = [amount, below(20), below(10**6), lambda _: 7]
WAYS: dict[str, list[Make]] = {
    "ns": COUNTS,
    "bytes": COUNTS,
    "per_s": [parts.rate],
    "per_byte": [one_of(0, 0.8, 1, 1e-3, 2.5)],
}
"""What is drawn, by how the name of a field ends."""


def varied(value: Any, kinds: dict[str, Any], draw: Random, name: str = "") -> Any:
    """Return a request with other times, sizes and rates: those of a field are alike, or stay."""
    if isinstance(value, dict):
        return {key: varied(item, kinds, draw, key) for key, item in value.items()}
    if isinstance(value, list):
        if name in ("table", "cost_table", "times"):
            return parts.rows(draw, value[0][0]) if draw.random() < 0.7 else value
        return [varied(item, kinds, draw, name) for item in value]
    end = re.search("(?:^|_)(ns|bytes|per_(?:s|byte))$", name)
    wanted = (int, float) if end and end[1].startswith("per") else (int,)
    if type(value) not in wanted or not end or name == "element_bytes":
        return value
    if name in LIMITS:
        return value << draw.choice([0, 0, 5, 10])
    if name not in kinds:
        kinds[name] = draw.choice([None, *WAYS[end[1]]])
    least = min(value, 1) if name.endswith("bytes") or name == "latency_ns" else 0
    return value if kinds[name] is None else max(least, kinds[name](draw))


def ibatch(draw: Random) -> Request:
    """Return layers to batch."""
    layers = size(draw)
    costs = large.spread_ibatch(layers, network=parts.network, spread_ns=..., outlook=...)
    sums, table = large.ibatch_sums(layers), large.ibatch_table(layers)
    return {
        **draw.choice([sums, sums, table, costs, costs, BASES["table"]]),
        "direction": maybe(0.4, one_of("pull", "push")),
        "objective": maybe(0.4, one_of("makespan", "eq4")),
        "time_limit_s": limit if layers > 40 else maybe(0.3, limit),
    }


def caramel(draw: Random) -> Request:
    """Return an iteration whose gradients are to be ordered."""
    found = parts.graph(draw)
    names = [op["name"] for op in found["ops"]]
    return {
        **found,
        "network": parts.network,
        "op_order": maybe(0.2, names),
        "time_limit_s": limit if len(names) > 16 else maybe(0.5, limit),
    }


def yan(draw: Random) -> Request:
    """Return a job to configure."""
    bases = (BASES["small"], BASES["yan"], BASES["fixed"], large.yan_deep(draw.randrange(1, 5)))
    base: Request = draw.choice(bases)
    machines = draw.choice([3, 4, 5, 8, 20, 100, 1000, *([] if "fixed" in base else [1, 2])])
    layers, neurons = base["layers"], draw.choice([1, 10, 400])
    weights = neurons * layers[-1]["neurons"]
    more = {"name": "more", "kind": "full", "neurons": neurons, "connections": weights}
    deeper = draw.random() < 0.5 and "fixed" not in base
    return {
        **base,
        "layers": [*layers, {**more, "weights": weights}] if deeper else layers,
        "machines": machines,
        "samples": one_of(1, 100, 60000),
        "cores": one_of(2, 4, 16),
        "machine_speeds": maybe(0.2, [one_of(0.5, 1, 2)] * machines),
        "time_limit_s": limit if machines > 4 else maybe(0.5, limit),
    }


BCUBES = (
    *([(2, 1), (2, 2), (3, 2), (2, 3), (4, 2), (3, 3), (8, 2), (16, 2), (2, 6)],),
    [
        *((10, 3), (2, 10), (64, 2), (65, 2), (257, 2), (20, 3), (2, 14), (2**10, 2), (700, 2)),
        *((2, 16), (16, 4)),
    ],
    [(2, 24), (51, 10), (2**30, 2), (2, 40), (2**20, 2), (2**62, 1), (2, 56)],
)
"""Small ones, large ones, and those too large to plan in."""


def bml(draw: Random) -> Request:
    """Return a BCube, with or without failures."""
    n, k = draw.choice(draw.choices(BCUBES, [90, 5, 5])[0])
    server = [below(n)] * k
    some = {"layer_bytes": lambda draw: [amount] * draw.randrange(1, 30), "gradient_bytes": ...}
    failed = {
        "servers": lambda draw: [server] * draw.choice([0, 0, 1, 2]),
        "nics": lambda draw: [[server, below(k)]] * draw.choice([0, 1, 1, 3]),
        "switches": lambda draw: [[below(k), [below(n)] * (k - 1)]] * draw.choice([0, 0, 1]),
    }
    return {
        **BASES["bml"],
        **({"n": n, "k": k} | (some if draw.random() < 0.2 else {})),
        "failed": maybe(0.5, failed),
        "schedule": maybe(0.4, one_of("none", "all", {"server": server})),
        "time_limit_s": limit if n**k > 100 else maybe(0.8, limit),
    }


def bigdl(draw: Random) -> Request:
    """Return nodes with gradients."""
    nodes = [1, 2, 3, 4, 5, 7, 8, 16, 16, 30, 60]
    return {
        **BASES["bigdl"],
        "elements": max(1, amount(draw)),
        "element_bytes": one_of(1, 2, 4, 8),
        "nodes": one_of(*(nodes if draw.random() < 0.98 else (200, 1024, 1025, 4096))),
        "partitions_per_node": one_of(1, 2, 4, 100, one_of(100, 2**20)),
        "time_limit_s": maybe(0.5, limit),
    }


def drizzle(draw: Random) -> Request:
    """Return an iteration whose tasks are scheduled."""
    tasks: Request = {"tasks": max(1, amount(draw)), "stages": ...}
    if draw.random() < 0.4:
        stages: list[Request] = []
        for number in range(min(size(draw), 400)):
            before = draw.sample(stages, min(len(stages), draw.randrange(3)))
            after = [stage["name"] for stage in before]
            stages.append({"name": f"s{number}", "tasks": below(100, 1), "after": after})
        tasks = {"tasks": ..., "stages": draw.sample(stages, len(stages))}
    bases = (BASES["drizzle"], BASES["drizzle, stages"])
    limits = {"max_overhead": one_of(0.05, 0.5, 1e-9, 0.999999, 1e-300, 0.1)}
    return {**draw.choice(bases), **limits, **tasks}


def fsdp(draw: Random) -> Request:
    """Return layers whose parameters are sharded."""
    layers = min(size(draw), 40)
    return {
        **(large.fsdp(layers) if draw.random() < 0.9 else BASES["fsdp"]),
        "channels": one_of("one", "two", "shared"),
        "tied": maybe(0.3, [[0, below(layers)]]),
        "blocks": maybe(0.3, [0, *range(2, layers, 3)]),
        "time_limit_s": limit if layers > 6 else maybe(0.5, limit),
    }


def iteration(draw: Random) -> Request:
    """Return a model and a cluster."""
    return {"profile": parts.profile, "cluster": parts.cluster, "time_limit_s": limit}


def overlap(draw: Random) -> Request:
    """Return layers that gather what they compute with, and sum up what they make."""
    layers = draw.choice([1, 2, 3, 8, 30])
    base = draw.choice([large.overlap(layers), large.overlap(layers), BASES["overlap"]])
    return {**base, "time_limit_s": limit if layers > 3 else maybe(0.5, limit)}


def _maker(of: Make) -> Make:
    return lambda draw: varied(made({"problem": of.__name__, **of(draw)}, draw), {}, draw)


MAKERS: Mapping[str, Make] = {
    of.__name__: _maker(of)
    for of in (ibatch, caramel, yan, bml, bigdl, drizzle, fsdp, iteration, overlap)
}


@cache
def shipped(problem: str) -> tuple[str, ...]:
    """Return the requests that are in the data and in the documentation, as JSON text."""
    found = [path.read_text() for path in sorted((ROOT / "data").glob("*/*.json"))]
    for path in sorted((ROOT / "docs").glob("**/*.md")):
        found += re.findall(r"```json\n(.*?)```", path.read_text(), re.DOTALL)
    requests = []
    for text in found:
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            continue
        if isinstance(value, dict) and value.get("problem") == problem and "status" not in value:
            requests.append(json.dumps(value))
    return tuple(requests)
