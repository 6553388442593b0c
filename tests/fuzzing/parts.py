"""What requests of several problems are made of: amounts, costs, graphs, models, clusters."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[2]

Request = dict[str, Any]


def size(draw: Random) -> int:
    """Return how many layers or ops there are: mostly few, sometimes hundreds."""
    if draw.random() < 0.02:
        return draw.choice([40, 100, 400, 1500])
    return draw.choice([1, 1, 2, 2, 3, 3, 4, 5, 6, 8, draw.choice([8, 12, 20])])


def amount(draw: Random) -> int:
    """Return a time or a size: 0, small, real or huge."""
    return draw.choice(
        [
            0,
            1,
            draw.randrange(10),
            draw.randrange(10**3),
            draw.randrange(10**6),
            draw.randrange(10**9),
            draw.randrange(2 ** draw.randrange(1, 60)),
        ]
    )


def rate(draw: Random) -> float | int:
    """Return a rate above 0."""
    return draw.choice([1e9, 1.25e9, 5e9, 0.5, 1, 3, 1e-3, 123456.789, 10**12, 1 / 3])


def limit(draw: Random) -> float:
    """Return a time limit: mostly over before the search begins."""
    return draw.choices([1e-9, 1e-3, 0.01, 0.05, 0.5], [32, 38, 15, 11, 4])[0]


def graph(draw: Random) -> Request:
    """Return ops and parameters."""
    layers = min(size(draw), 400)
    each: Callable[[], int] = draw.choice([lambda: amount(draw) >> 12, lambda: draw.randrange(50)])
    ops: list[dict[str, Any]] = []
    for number in range(layers):
        before = [f"f{number - 1}"] if number else []
        if number > 1 and draw.random() < 0.2:
            before.append(f"f{draw.randrange(number - 1)}")
        ops.append({"name": f"f{number}", "ns": each(), "pass": "forward", "after": before})
    for number in reversed(range(layers)):
        before = [f"b{number + 1}"] if number + 1 < layers else [f"f{number}"]
        ops.append({"name": f"b{number}", "ns": each(), "pass": "backward", "after": before})
    parameters = []
    for number in range(layers):
        if draw.random() < 0.8 or number == 0:
            one: dict[str, Any] = {
                "name": f"w{number}",
                "bytes": max(1, each()),
                "updated_by": f"b{number}",
            }
            one["read_by"] = f"f{number}"
            if number and draw.random() < 0.1:
                one |= {"updated_by": [f"b{number}", "b0"], "read_by": [f"f{number}", "f0"]}
            parameters.append(one)
    return {"ops": ops, "parameters": parameters}


def cost(draw: Random) -> Request:
    """Return what a transfer costs."""
    if draw.random() < 0.3:
        return {"table": rows(draw)}
    return {"startup_ns": amount(draw) >> 10, "ns_per_byte": draw.choice([0, 0.8, 1, 1e-3, 2.5])}


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
    kind = draw.random()
    if kind < 0.6:
        found = cost(draw)
    elif kind < 0.75:
        found = {"bytes_per_s": rate(draw) * 10**6, "startup_ns": amount(draw) >> 10}
        found |= {"per_machine": draw.choice([1, 2, 8])} if draw.random() < 0.3 else {}
    elif kind < 0.85:
        found = {"depths": {"1": cost(draw), "2": cost(draw), "8": cost(draw)}}
    elif kind < 0.93:
        found = {"network": cost(draw), "collective": "all_reduce", "ranks": draw.choice([2, 8])}
    else:
        found = measured(draw)
    return found | interference(draw)


def interference(draw: Random) -> Request:
    """Return what transfers and computation take from each other, now and then something."""
    if draw.random() < 0.7:
        return {}
    found = {
        "startup_ns": amount(draw),
        "ns_per_byte": draw.choice([0, 0.3, 1e9]),
        "slowdown": draw.choice([1, 1.1, 1000]),
        "delay_ns": draw.choice([0, 5000, 10**12]),
    }
    return {"interference": found}


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
        "batch_size": draw.choice([1, 2, 32]),
    }
    if draw.random() < 0.4:
        return {**found, **graph(draw)}
    found["layers"] = [
        {
            "name": f"l{number}",
            "forward_ns": amount(draw) >> 8,
            "backward_ns": amount(draw) >> 8,
            "parameter_bytes": (amount(draw) >> 8) + (not number),
            "activation_bytes": amount(draw) >> 8,
        }
        for number in range(min(size(draw), 100))
    ]
    return found


def cluster(draw: Random) -> Request:
    """Return machines on a network: generated, or shipped."""
    if draw.random() < 0.25:
        shipped: Request = json.loads(draw.choice(_files("clusters")))
        return shipped
    networks: list[tuple[int, dict[str, Any]]] = [
        (4, {"kind": "switch"}),
        (1, {"kind": "switch"}),
        (2, {"kind": "switch"}),
        (4, {"kind": "bcube", "n": 2, "k": 2}),
        (9, {"kind": "bcube", "n": 3, "k": 2}),
        (16, {"kind": "fattree", "ports": 4}),
        (3, {"kind": "fattree", "ports": 16}),
        (4, {"kind": "rails", "accelerators": 8, "link_bytes_per_s": 1e11}),
        (65536, {"kind": "switch"}),
    ]
    machines, topology = draw.choice(networks)
    found: Request = {
        "name": "a cluster",
        "source": "a generator",
        "machines": machines,
        "topology": topology,
        "nic": {"bytes_per_s": rate(draw) * 10**6, "startup_ns": draw.choice([0, 100, 10**6])},
    }
    if topology["kind"] == "bcube":
        found["nic"]["per_machine"] = topology["k"]
    if topology["kind"] == "rails":
        found["nic"]["per_machine"] = topology["accelerators"]
    if draw.random() < 0.3:
        found["memory_bytes"] = draw.choice([1, 10**6, 10**9, 2**60])
    if draw.random() < 0.2:
        found["shared_bytes_per_s"] = rate(draw) * 10**6
    if draw.random() < 0.2:
        found["scheduling"] = {"task_ns": draw.choice([0, 10**6]), "group_ns": 5}
    if draw.random() < 0.1:
        found["network"] = measured(draw)
    return found | interference(draw)
