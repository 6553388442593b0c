"""What requests of several problems are made of: amounts, costs, graphs, models, clusters.

A request is written as it looks, with a function in the place of what is drawn: `made` calls it.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[2]

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


def shifted(bits: int) -> Make:
    """Return what draws amounts that are smaller by so many bits."""
    return lambda draw: amount(draw) >> bits


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
    """Return a rate above 0."""
    return draw.choice([1e9, 1.25e9, 5e9, 0.5, 1, 3, 1e-3, 123456.789, 10**12, 1 / 3])


def fast(draw: Random) -> float | int:
    """Return the rate of a link."""
    return rate(draw) * 10**6


def limit(draw: Random) -> float:
    """Return a time limit: mostly over before the search begins."""
    return draw.choices([1e-9, 1e-3, 0.01, 0.05, 0.5], [32, 38, 15, 11, 4])[0]


def graph(draw: Random) -> Request:
    """Return ops and parameters."""
    layers = min(size(draw), 400)
    each = draw.choice([shifted(12), below(50)])
    ops, parameters = [], []
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
            parameters.append({"name": f"w{number}", "bytes": max(1, each(draw)), **ends})
    found: Request = made({"ops": ops, "parameters": parameters}, draw)
    return found


def cost(draw: Random) -> Request:
    """Return what a transfer costs."""
    if draw.random() < 0.3:
        return {"table": rows(draw)}
    return {"startup_ns": shifted(10), "ns_per_byte": one_of(0, 0.8, 1, 1e-3, 2.5)}


def rows(draw: Random, least: int = 0) -> list[list[int]]:
    """Return what was measured: sizes from a least one on, and what they took."""
    more = [least + 2 + (amount(draw) >> 12) for _ in range(draw.randrange(3))]
    points = sorted({least, least + 1, *more})
    times = sorted(least + (amount(draw) >> 16) for _ in points)
    return [list(pair) for pair in zip(points, times, strict=True)]


def measured(draw: Random) -> Request:
    """Return what collectives took on a cluster."""
    groups = [(2, 1), (4, 4), (8, 4), (draw.choice([3, 16, 72]), 1)]
    kinds = ["all_reduce", "all_gather", "reduce_scatter"]
    found: Request = {}
    for kind in kinds if draw.random() < 0.7 else draw.sample(kinds, draw.randrange(1, 3)):
        found[kind] = [
            {"ranks": ranks, "ranks_per_host": host, "table": rows(draw, 1)}
            for ranks, host in sorted(draw.sample(groups, draw.randrange(1, 4)))
        ]
    return {"collectives": found}


def network(draw: Random) -> Request:
    """Return a network as requests describe one: what transfers cost, NICs, or measurements."""
    kinds: list[Any] = [
        cost,
        {
            "bytes_per_s": fast,
            "startup_ns": shifted(10),
            "per_machine": maybe(0.3, one_of(1, 2, 8)),
        },
        {"depths": {"1": cost, "2": cost, "8": cost}},
        {"network": cost, "collective": "all_reduce", "ranks": one_of(2, 8)},
        measured,
    ]
    (kind,) = draw.choices(kinds, [60, 15, 10, 8, 7])
    return {**made(kind, draw), "interference": interference}


def interference(draw: Random) -> Any:
    """Return what transfers and computation take from each other, now and then something."""
    found = {
        "startup_ns": amount,
        "ns_per_byte": one_of(0, 0.3, 1e9),
        "slowdown": one_of(1, 1.1, 1000),
        "delay_ns": one_of(0, 5000, 10**12),
    }
    return maybe(0.3, found)


@cache
def _files(folder: str) -> tuple[str, ...]:
    return tuple(path.read_text() for path in sorted((ROOT / "data" / folder).glob("*.json")))


def profile(draw: Random) -> Request:
    """Return a profiled model, seldom a shipped one."""
    if draw.random() < 0.01:
        shipped: Request = json.loads(draw.choice(_files("profiles")))
        return shipped
    found: Request = {
        "name": "a model",
        "provenance": {"kind": "synthetic", "source": "a generator"},
        "batch_size": one_of(1, 2, 32),
    }
    if draw.random() < 0.4:
        return {**found, **graph(draw)}
    layers = [
        {
            "name": f"l{number}",
            "forward_ns": shifted(8),
            "backward_ns": shifted(8),
            "parameter_bytes": (amount(draw) >> 8) + (not number),
            "activation_bytes": shifted(8),
        }
        for number in range(min(size(draw), 100))
    ]
    return {**found, "layers": layers}


NETWORKS: list[tuple[int, Request]] = [
    *((machines, {"kind": "switch"}) for machines in (4, 1, 2, 65536)),
    (4, {"kind": "bcube", "n": 2, "k": 2}),
    (9, {"kind": "bcube", "n": 3, "k": 2}),
    (16, {"kind": "fattree", "ports": 4}),
    (3, {"kind": "fattree", "ports": 16}),
    (4, {"kind": "rails", "accelerators": 8, "link_bytes_per_s": 1e11}),
]


def cluster(draw: Random) -> Request:
    """Return machines on a network: generated, or shipped."""
    if draw.random() < 0.25:
        shipped: Request = json.loads(draw.choice(_files("clusters")))
        return shipped
    machines, topology = draw.choice(NETWORKS)
    nics = topology.get("k", topology.get("accelerators", ...))
    return {
        "name": "a cluster",
        "source": "a generator",
        "machines": machines,
        "topology": topology,
        "nic": {"bytes_per_s": fast, "startup_ns": one_of(0, 100, 10**6), "per_machine": nics},
        "memory_bytes": maybe(0.3, one_of(1, 10**6, 10**9, 2**60)),
        "shared_bytes_per_s": maybe(0.2, fast),
        "scheduling": maybe(0.2, {"task_ns": one_of(0, 10**6), "group_ns": 5}),
        "network": maybe(0.1, measured),
        "interference": interference,
    }
