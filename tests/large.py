"""Large requests of every family, and what it takes to ask them within a time limit."""

import json
import resource
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from msgspec import to_builtins

import planner
from planner import Layer, Profile, Provenance
from planner.jsonio.graphs import documents_of

Request = dict[str, Any]

ROOT = Path(__file__).parents[1]

SWITCH = {"kind": "switch"}
COST = {"startup_ns": 30_000, "ns_per_byte": 0.7}
TABLE = {"table": [[0, 1000], [100, 5000], [10**5, 90_000], [10**6, 500_000], [10**7, 8 * 10**6]]}
DISTURBING = {"startup_ns": 20_000, "ns_per_byte": 0.1, "slowdown": 1.3, "delay_ns": 5000}
NETWORKS = {
    "affine": COST,
    "table": TABLE,
    "interference": {**COST, "interference": DISTURBING},
    "table, interference": {**TABLE, "interference": DISTURBING},
}


def used_s() -> float:
    """Processor time of this process and the solvers it has started."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def drawn(seed: int, count: int, most: int, least: int = 1) -> list[int]:
    return Random(seed).choices(range(least, most), k=count)


def ibatch_sums(layers: int, **more: Any) -> Request:
    costs = {"transfer_ns": drawn(1, layers, 10**6), "compute_ns": drawn(2, layers, 10**6)}
    return {"problem": "ibatch", "startup_ns": 10**4, **costs, **more}


def ibatch_table(layers: int) -> Request:
    """Costs of a table that fall somewhere."""
    rows = [[10**4 * place, 4000 + 9000 * place + place % 2 * 20_000] for place in range(1, 60)]
    return {
        "problem": "ibatch",
        "direction": "push",
        "layer_bytes": drawn(1, layers, 10**5),
        "cost_table": [[0, 1000], [100, 5000], *rows],
        "compute_ns": drawn(2, layers, 10**6),
    }


def yan(machines: int, **more: Any) -> Request:
    return {**shipped("yan/imagenet22k.json"), "machines": machines, **more}


def yan_deep(layers: int) -> Request:
    """No two layers are alike, so that nothing is shared."""
    full = []
    for before, after in pairwise(range(4096, 4097 + layers)):
        shape = {"neurons": after, "connections": before * after, "weights": before * after}
        full.append({"name": str(after), "kind": "full", **shape})
    return yan(60, layers=full)


def caramel(parameters: int, **more: Any) -> Request:
    rows = zip(*(drawn(seed, parameters, 10**6) for seed in (1, 2, 3)), strict=True)
    layers = [
        Layer(str(place), forward, backward, 4 * size)
        for place, (forward, backward, size) in enumerate(rows)
    ]
    profile = Profile("p", tuple(layers), Provenance("synthetic", "a test"))
    ops, sizes = to_builtins(documents_of(profile.dataflow()))
    network = {"startup_ns": 50_000, "ns_per_byte": 0.8}
    return {"problem": "caramel", "ops": ops, "parameters": sizes, "network": network, **more}


def bml(**more: Any) -> Request:
    request = {"problem": "bml", "n": 4, "k": 3, "gradient_bytes": 10**8, "link_bytes_per_s": 5e9}
    return {**request, **more}


def shipped_iteration(profile: str, cluster: str) -> Request:
    return {
        "problem": "iteration",
        "profile": shipped(f"profiles/{profile}.json"),
        "cluster": shipped(f"clusters/{cluster}.json"),
        "computation_scale": 0.05,
    }


def synthetic_iteration(
    rows: list[Request], machines: int, *, topology: Request = SWITCH, **more: Any
) -> Request:
    """Layers on machines with one NIC, or one at each level of a BCube."""
    provenance = {"kind": "synthetic", "source": "a test"}
    nic = {"bytes_per_s": 1e9, "startup_ns": 30_000, "per_machine": topology.get("k", 1)}
    cluster = {"name": "c", "source": "a test", "machines": machines, "topology": topology}
    return {
        "problem": "iteration",
        "profile": {"name": "p", "provenance": provenance, "batch_size": 4, "layers": rows},
        "cluster": {**cluster, "nic": nic, **more},
    }


def tiny_iteration(machines: int, **more: Any) -> Request:
    """Two layers on many machines, or cut in many pieces."""
    rows = [
        {"name": "a", "forward_ns": 400, "backward_ns": 900, "parameter_bytes": 4000},
        {"name": "b", "forward_ns": 500, "backward_ns": 800, "parameter_bytes": 800},
    ]
    nic = {"bytes_per_s": 1e9, "startup_ns": 100}
    return {**synthetic_iteration(rows, machines, nic=nic), **more}


def spread_ibatch(layers: int, **more: Any) -> Request:
    return {
        "problem": "ibatch",
        "direction": "push",
        "compute_ns": drawn(1, layers, 10**6),
        "spread_ns": drawn(2, layers, 10**5),
        "layer_bytes": drawn(3, layers, 10**6),
        "outlook": "nominal",
        **more,
    }


def spread_caramel(layers: int, **more: Any) -> Request:
    request = caramel(layers)
    for op, spread in zip(request["ops"], drawn(1, 2 * layers, 10**5, 0), strict=True):
        op["spread_ns"] = spread
    return {**request, "outlook": "nominal", **more}


def spread_iteration(
    layers: int, machines: int = 8, topology: Request = SWITCH, **cluster: Any
) -> Request:
    """As many ops as layers are asked for, in two passes."""
    draw = Random(layers // 2)
    most = {"forward_ns": 10**6, "backward_ns": 10**6, "activation_bytes": 10**6}
    most |= {"forward_spread_ns": 10**5, "backward_spread_ns": 10**5}
    rows = [
        {
            "name": f"l{place}",
            "parameter_bytes": 4 * draw.randrange(1, 10**6),
            **{field: draw.randrange(end) for field, end in most.items()},
        }
        for place in range(layers // 2)
    ]
    request = synthetic_iteration(rows, machines, topology=topology, **cluster)
    return {**request, "outlook": "nominal"}


def fsdp(layers: int, **more: Any) -> Request:
    cost = {"startup_ns": 30_000, "ns_per_byte": 0.02}
    return {
        "problem": "fsdp",
        "forward_ns": drawn(1, layers, 10**7, 10**6),
        "backward_ns": drawn(2, layers, 10**7, 10**6),
        "parameter_bytes": drawn(3, layers, 10**8, 10**6),
        "activation_bytes": drawn(4, layers, 10**8, 10**6),
        "meshes": [{"shards": 64, "all_gather": cost, "reduce_scatter": cost}],
        "memory_bytes": 30 * 10**9,
        **more,
    }


def overlap(layers: int, **more: Any) -> Request:
    """Gathers and sums of layers whose memory is what the order as listed takes."""
    draw = Random(5)
    nodes: list[Request] = []
    collectives: list[Request] = []
    for number in range(2 * layers):
        begin, kind = 3 * number, number % 2
        before = [begin - 1] if begin else []
        nodes += [
            {"name": f"start {begin}", "after": before if kind else []},
            {"name": f"wait {begin}", "after": [begin]},
            {
                "name": f"use {begin}",
                "after": [begin + 1, *before],
                "duration_ns": draw.randrange(10**5, 10**6),
            },
        ]
        size = draw.randrange(10**6, 10**7)
        collectives.append({"start": begin, "wait": begin + 1, "kind": kind, "size_bytes": size})
    times = [[0, 20_000], [10**7, 900_000]]
    return {
        "problem": "overlap",
        "nodes": nodes,
        "kinds": [{"name": name, "channel": name, "times": times} for name in ("gather", "sum")],
        "collectives": collectives,
        "tensors": [
            {"size_bytes": it["size_bytes"], "producer": it["start"], "readers": [it["wait"] + 1]}
            for it in collectives
        ],
        "memory_limit_bytes": 3 * 10**7,
        **more,
    }


def shipped(path: str) -> Request:
    request: Request = json.loads((ROOT / "data" / path).read_text())
    return request


YAN = sorted(set(planner.yan.METHODS) - {"auto", "brute_force"})


@cache
def warm() -> None:
    """Load what methods load when they are used: that is before their time begins."""
    for method in ("milp", "cpsat", "exact"):
        planner.solve(ibatch_sums(2, method=method))
    for method in YAN:
        planner.solve(yan(3, method=method))
