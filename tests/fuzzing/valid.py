"""Requests that mean something, for each problem, from tiny to large."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

from tests.fuzzing.parts import (
    ROOT,
    Request,
    amount,
    cluster,
    graph,
    limit,
    network,
    profile,
    rate,
    rows,
    size,
)


def ibatch(draw: Random) -> Request:
    """Return layers to batch."""
    layers = size(draw)
    each: Callable[[], int] = draw.choice(
        [lambda: amount(draw), lambda: draw.randrange(20), lambda: 7]
    )
    request: Request = {"problem": "ibatch", "compute_ns": [each() for _ in range(layers)]}
    sizes = [draw.randrange(10**6) for _ in range(layers)]
    if draw.random() < 0.3:
        request |= {"layer_bytes": sizes, "cost_table": rows(draw)}
    elif draw.random() < 0.3:
        request |= {"layer_bytes": sizes, "network": network(draw)}
    else:
        request |= {"startup_ns": amount(draw), "transfer_ns": [each() for _ in range(layers)]}
    if draw.random() < 0.3:
        request["layer_bytes"] = sizes
        if draw.random() < 0.7:
            request["max_batch_bytes"] = draw.randrange(1, 2 * 10**6)
    if draw.random() < 0.4:
        request["direction"] = draw.choice(["pull", "push"])
    if draw.random() < 0.4:
        request["objective"] = draw.choice(["makespan", "eq4"])
    if layers > 40 or draw.random() < 0.3:
        request["time_limit_s"] = limit(draw)
    return request


def caramel(draw: Random) -> Request:
    """Return an iteration whose gradients are to be ordered."""
    request = {"problem": "caramel", **graph(draw), "network": network(draw)}
    if draw.random() < 0.2:
        request["op_order"] = [op["name"] for op in request["ops"]]
    if draw.random() < 0.2:
        request["workers"] = draw.choice([1, 2, 8, 100, 65536])
    if len(request["ops"]) > 16 or draw.random() < 0.5:
        request["time_limit_s"] = limit(draw)
    if draw.random() < 0.2:
        request["target"] = draw.choice(["ddp", "horovod", "deepspeed", "megatron"])
    return request


def yan(draw: Random) -> Request:
    """Return a job to configure."""
    layers: list[dict[str, Any]] = []
    side = draw.choice([1, 6, 24])
    for number in range(draw.choice([1, 2, 3, 5, 8])):
        name = f"l{number}"
        if draw.random() < 0.4 and not any(layer["kind"] == "full" for layer in layers):
            channels, kernel = draw.choice([1, 3, 10]), 3
            neurons = channels * side * side
            layers.append(
                {
                    "name": name,
                    "kind": "conv",
                    "shape": [channels, side, side],
                    "kernel": kernel,
                    "neurons": neurons,
                    "connections": neurons * kernel * kernel,
                    "weights": channels * kernel * kernel,
                }
            )
        else:
            neurons = draw.choice([1, 10, 400])
            inputs = layers[-1]["neurons"] if layers else draw.choice([1, 7, 1000])
            layers.append(
                {
                    "name": name,
                    "kind": "full",
                    "neurons": neurons,
                    "connections": neurons * inputs,
                    "weights": neurons * inputs + draw.choice([0, neurons]),
                }
            )
    threads = draw.choice([1, 2, 4])
    request: Request = {
        "problem": "yan",
        "machines": draw.choice([1, 2, 3, 4, 5, 8, 20, 100, 1000]),
        "cores": draw.choice([1, 2, 4, 16]),
        "samples": draw.choice([1, 100, 60000]),
        "read_every": draw.choice([1, 100]),
        "layers": layers,
        "constants": {
            "muladd_ns": 0.5,
            "activation_ns": 2.0,
            "error_ns": 2.0,
            "latency_ns": [100000 + 1000 * one for one in range(threads)],
            "nic_bits_per_s": rate(draw) * 8,
            "interference": [1.0 + one / 20 for one in range(threads)],
        },
    }
    if draw.random() < 0.1:
        del request["layers"], request["constants"], request["machines"], request["cores"]
        request |= {"profile": profile(draw), "cluster": cluster(draw)}
    elif request["machines"] > 4 or draw.random() < 0.5:
        request["time_limit_s"] = limit(draw)
    if draw.random() < 0.3:
        request["memory_bytes"] = draw.choice([1, 10**4, 10**7, 10**12])
    if "machines" not in request:
        return request | {"time_limit_s": limit(draw)}
    if draw.random() < 0.2:
        request["machine_speeds"] = [draw.choice([0.5, 1, 2]) for _ in range(request["machines"])]
    if draw.random() < 0.2:
        request["partitions"] = "powers_of_two"
    if draw.random() < 0.15 and request["machines"] <= 8:
        request["pareto"] = True
    if draw.random() < 0.15:
        request["fixed"] = [
            {"parameter_servers": 1, "replicas": 1, "workers_per_replica": draw.choice([1, 2])}
        ]
    return request


def bml(draw: Random) -> Request:
    """Return a BCube, with or without failures."""
    small = [(2, 1), (2, 2), (3, 2), (2, 3), (4, 2), (3, 3), (8, 2), (16, 2), (2, 6)]
    large = [(10, 3), (2, 10), (64, 2), (65, 2), (257, 2), (20, 3), (2, 14), (2**10, 2), (700, 2)]
    large += [(2, 16), (16, 4)]
    huge = [(2, 24), (51, 10), (2**30, 2), (2, 40), (2**20, 2), (2**62, 1), (2, 56)]
    n, k = draw.choice(draw.choices([small, large, huge], [90, 5, 5])[0])
    request: Request = {
        "problem": "bml",
        "n": n,
        "k": k,
        "gradient_bytes": amount(draw),
        "link_bytes_per_s": rate(draw) * 10**6,
    }
    if draw.random() < 0.3:
        request["latency_ns"] = draw.choice([0, 1, 5000, 10**9])
    if draw.random() < 0.2:
        request["reduce_ns_per_byte"] = draw.choice([0, 0.1, 3])
    if draw.random() < 0.2:
        del request["gradient_bytes"]
        request["layer_bytes"] = [amount(draw) >> 8 for _ in range(draw.randrange(1, 30))]

    def digits(count: int) -> list[int]:
        return [draw.randrange(n) for _ in range(count)]

    if draw.random() < 0.5:
        request["failed"] = {
            "servers": [digits(k) for _ in range(draw.choice([0, 0, 1, 2]))],
            "nics": [[digits(k), draw.randrange(k)] for _ in range(draw.choice([0, 1, 1, 3]))],
            "switches": [[draw.randrange(k), digits(k - 1)] for _ in range(draw.choice([0, 0, 1]))],
        }
    if draw.random() < 0.4:
        request["schedule"] = draw.choice(["none", "all", {"server": digits(k)}])
    if draw.random() < 0.8 or n**k > 100:
        request["time_limit_s"] = limit(draw)
    return request


def bigdl(draw: Random) -> Request:
    """Return nodes with gradients."""
    request: Request = {
        "problem": "bigdl",
        "elements": max(1, amount(draw)),
        "element_bytes": draw.choice([1, 2, 4, 8]),
        "nodes": draw.choice([1, 2, 3, 4, 5, 7, 8, 16, 16, 30, 60])
        if draw.random() < 0.98
        else draw.choice([200, 1024, 1025, 4096]),
        "partitions_per_node": draw.choice([1, 2, 4, 100, draw.choice([100, 2**20])]),
        "link_bytes_per_s": rate(draw) * 10**6,
        **({"latency_ns": amount(draw) >> 20} if draw.random() < 0.4 else {}),
        **({"reduce_ns_per_byte": draw.choice([0, 0.1, 3])} if draw.random() < 0.4 else {}),
    }
    if draw.random() < 0.5:
        request["time_limit_s"] = limit(draw)
    return request


def drizzle(draw: Random) -> Request:
    """Return an iteration whose tasks are scheduled."""
    request: Request = {
        "problem": "drizzle",
        "compute_ns": amount(draw),
        "task_ns": draw.choice([0, 390000, 0.001, 1e9, amount(draw)]),
        "max_overhead": draw.choice([0.05, 0.5, 1e-9, 0.999999, 1e-300, 0.1]),
    }
    if draw.random() < 0.4:
        request["group_ns"] = draw.choice([0, 1e6, amount(draw)])
    if draw.random() < 0.4:
        request["constant_task_ns"] = draw.choice([0, 10, 1e-6, amount(draw)])
    if draw.random() < 0.5:
        request["max_group_ns"] = max(1, amount(draw))
    if draw.random() < 0.4:
        stages: list[dict[str, Any]] = []
        for number in range(min(size(draw), 400)):
            after = [
                one["name"] for one in draw.sample(stages, min(len(stages), draw.randrange(3)))
            ]
            stages.append({"name": f"s{number}", "tasks": draw.randrange(1, 100), "after": after})
        draw.shuffle(stages)
        request["stages"] = stages
    else:
        request["tasks"] = max(1, amount(draw))
    return request


def fsdp(draw: Random) -> Request:
    """Return layers whose parameters are sharded."""
    layers = min(size(draw), 40)
    kept = [draw.randrange(10**6) for _ in range(layers)]

    def cost() -> Request:
        return {"startup_ns": draw.randrange(10**5), "ns_per_byte": draw.choice([0, 0.02, 3])}

    mesh = {"shards": draw.choice([1, 4, 64]), "all_gather": cost(), "reduce_scatter": cost()}
    request: Request = {
        "problem": "fsdp",
        "forward_ns": [draw.randrange(10**6) for _ in range(layers)],
        "backward_ns": [draw.randrange(10**6) for _ in range(layers)],
        "parameter_bytes": [draw.randrange(1, 10**6) for _ in range(layers)],
        "meshes": [mesh],
        "channels": draw.choice(["one", "two", "shared"]),
    }
    if draw.random() < 0.5:
        request["activation_bytes"] = kept
        if draw.random() < 0.5:
            request["checkpoint_bytes"] = [bytes_ // 2 for bytes_ in kept]
    if draw.random() < 0.7:
        request["memory_bytes"] = sum(request["parameter_bytes"]) * draw.randrange(1, 5)
    if draw.random() < 0.3:
        request["tied"] = [[0, draw.randrange(layers)]]
    if draw.random() < 0.3:
        request["blocks"] = [0, *range(2, layers, 3)]
    if layers > 6 or draw.random() < 0.5:
        request["time_limit_s"] = limit(draw)
    return request


def iteration(draw: Random) -> Request:
    """Return a model and a cluster."""
    request: Request = {"problem": "iteration", "profile": profile(draw), "cluster": cluster(draw)}
    request["time_limit_s"] = limit(draw)
    if draw.random() < 0.2:
        request["epoch_samples"] = draw.choice([1, 1000, 10**6])
    if draw.random() < 0.2:
        request["optimiser_ratio"] = draw.choice([0, 2, 0.5])
    if draw.random() < 0.2:
        request["computation_scale"] = draw.choice([1, 0.02, 1e-9, 3])
    if draw.random() < 0.2:
        request["target"] = draw.choice(["ddp", "horovod", "deepspeed", "megatron"])
    return request


def overlap(draw: Random) -> Request:
    """Return layers that gather what they compute with, and sum up what they make."""
    nodes: list[dict[str, Any]] = []
    collectives: list[dict[str, Any]] = []
    each: Callable[[], int] = draw.choice([lambda: amount(draw), lambda: draw.randrange(20)])
    for layer in range(draw.choice([1, 2, 3, 8, 60])):
        before = [len(nodes) - 1] if nodes else []
        begin = len(nodes)
        nodes += [
            {"name": f"start {layer}", "after": before if draw.random() < 0.3 else []},
            {"name": f"wait {layer}", "after": [begin]},
            {"name": f"use {layer}", "after": [begin + 1, *before], "duration_ns": amount(draw)},
        ]
        row = {"start": begin, "wait": begin + 1, "kind": draw.choice([0, 0, 1])}
        collectives.append({**row, "size_bytes": each(), "pack_ns": draw.choice([0, 5])})
    tensors: list[dict[str, Any]] = []
    for begin in range(0, len(nodes), 3):
        if draw.random() < 0.5:  # what was gathered, and what is computed
            tensors.append({"producer": begin + 1, "readers": [begin + 2], "size_bytes": each()})
            tensors.append({"producer": begin + 2, "size_bytes": each()})
            tensors[-1]["readers"] = [begin + 5] if begin + 5 < len(nodes) else []
    if draw.random() < 0.3:
        readers = sorted({draw.randrange(1, len(nodes)) for _ in range(2)})
        tensors.append({"producer": 0, "readers": readers, "size_bytes": each()})
    times = [[[0, 10]], [[0, 10], [1000, 20]], [[0, amount(draw)]]]
    sizes = [tensor["size_bytes"] for tensor in tensors]
    most = draw.randrange(max(sizes), sum(sizes) + 1) if sizes else 0
    return {
        "problem": "overlap",
        "nodes": nodes,
        "kinds": [
            {"name": "a", "channel": "0", "times": draw.choice(times)},
            {"name": "b", "channel": draw.choice("01"), "times": draw.choice(times)},
        ],
        "collectives": collectives,
        "tensors": tensors,
        **({"memory_limit_bytes": most} if sizes and draw.random() < 0.5 else {}),
        **({"time_limit_s": limit(draw)} if len(nodes) > 9 or draw.random() < 0.5 else {}),
    }


MAKERS: Mapping[str, Callable[[Random], Request]] = {
    "ibatch": ibatch,
    "caramel": caramel,
    "yan": yan,
    "bml": bml,
    "bigdl": bigdl,
    "drizzle": drizzle,
    "fsdp": fsdp,
    "iteration": iteration,
    "overlap": overlap,
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
