"""Requests that mean something, for each problem, from tiny to large.

Most are requests of other tests with other sizes, times and options. A request is written as it
looks, with a function in the place of what is drawn: `made` calls it.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

from tests import large
from tests.jsonio.requests import BASES, ROOT
from tests.large import Request

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
    """Return measured times of collectives on a cluster."""
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


def _file(folder: str, draw: Random) -> Request:
    path = draw.choice(sorted((ROOT / "data" / folder).glob("*.json")))
    return large.shipped(f"{folder}/{path.name}")


def profile(draw: Random) -> Request:
    """Return a profiled model, seldom a shipped one."""
    if draw.random() < 0.01:
        return _file("profiles", draw)
    about = {**BASES["layers"], "batch_size": one_of(1, 2, 32)}
    if draw.random() < 0.4:
        return {**about, **graph(draw), "layers": ...}
    layer = {**BASES["layers"]["layers"][0], "activation_bytes": 10**4}
    names = [f"l{number}" for number in range(min(size(draw), 100))]
    return {**about, "layers": [{**layer, "name": name} for name in names]}


def cluster(draw: Random) -> Request:
    """Return machines on a network: generated, or shipped."""
    if draw.random() < 0.25:
        return _file("clusters", draw)
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


LIMITS = ("memory_bytes", "memory_limit_bytes", "max_group_ns")

COUNTS: list[Make] = [amount, below(20), below(10**6), lambda _: 7]
WAYS: dict[str, list[Make]] = {
    "ns": COUNTS,
    "bytes": COUNTS,
    "per_s": [rate],
    "per_byte": [one_of(0, 0.8, 1, 1e-3, 2.5)],
}
"""What is drawn, by how the name of a field ends."""


def varied(value: Any, kinds: dict[str, Any], draw: Random, name: str = "") -> Any:
    """Return a request with other times, sizes and rates: those of a field are alike, or stay."""
    if isinstance(value, dict):
        return {key: varied(item, kinds, draw, key) for key, item in value.items()}
    if isinstance(value, list):
        if name in ("table", "cost_table", "times"):
            return rows(draw, value[0][0]) if draw.random() < 0.7 else value
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
    costs = large.spread_ibatch(layers, network=network, spread_ns=..., outlook=...)
    sums, table = large.ibatch_sums(layers), large.ibatch_table(layers)
    return {
        **draw.choice([sums, sums, table, costs, costs, BASES["table"]]),
        "direction": maybe(0.4, one_of("pull", "push")),
        "objective": maybe(0.4, one_of("makespan", "eq4")),
        "time_limit_s": limit if layers > 40 else maybe(0.3, limit),
    }


def caramel(draw: Random) -> Request:
    """Return an iteration whose gradients are to be ordered."""
    found = graph(draw)
    names = [op["name"] for op in found["ops"]]
    return {
        **found,
        "network": network,
        "op_order": maybe(0.2, names),
        "time_limit_s": limit if len(names) > 16 else maybe(0.5, limit),
    }


def yan(draw: Random) -> Request:
    """Return a job to configure."""
    bases = (BASES["small"], BASES["yan"], BASES["fixed"], large.yan_deep(draw.randrange(1, 5)))
    base: Request = draw.choice(bases)
    machines = draw.choice([3, 4, 5, 8, 20, 100, 1000, *([] if "fixed" in base else [1, 2])])
    layers, weights = base["layers"], 10 * base["layers"][-1]["neurons"]
    more = {"name": "more", "kind": "full", "neurons": 10, "connections": weights}
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
    [(2, 1), (2, 2), (3, 2), (2, 3), (4, 2), (3, 3), (8, 2), (16, 2), (2, 6)],
    [(10, 3), (2, 10), (64, 2), (65, 2), (257, 2), (20, 3), (2, 14), (2**10, 2), (16, 4)],
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
    return {"profile": profile, "cluster": cluster, "time_limit_s": limit}


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
