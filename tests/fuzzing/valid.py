"""Requests that mean something, for each problem, from tiny to large."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from random import Random

from tests.fuzzing.parts import (
    ROOT,
    Request,
    amount,
    below,
    cluster,
    fast,
    graph,
    limit,
    made,
    maybe,
    network,
    one_of,
    profile,
    rate,
    rows,
    shifted,
    size,
)

TARGET = maybe(0.2, one_of("ddp", "horovod", "deepspeed", "megatron"))


def ibatch(draw: Random) -> Request:
    """Return layers to batch."""
    layers = size(draw)
    times = [draw.choice([amount, below(20), 7])] * layers
    sizes = made([below(10**6)] * layers, draw)
    costs: list[Request] = [
        {"layer_bytes": sizes, "cost_table": rows},
        {"layer_bytes": sizes, "network": network},
        {"startup_ns": amount, "transfer_ns": times},
    ]
    capped = {"layer_bytes": sizes, "max_batch_bytes": maybe(0.7, below(2 * 10**6, 1))}
    return {
        "compute_ns": times,
        **draw.choices(costs, [30, 21, 49])[0],
        **(capped if draw.random() < 0.3 else {}),
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
        "workers": maybe(0.2, one_of(1, 2, 8, 100, 65536)),
        "time_limit_s": limit if len(names) > 16 else maybe(0.5, limit),
        "target": TARGET,
    }


def _neurons(draw: Random) -> list[Request]:
    layers: list[Request] = []
    side, kernel = draw.choice([1, 6, 24]), 3
    for number in range(draw.choice([1, 2, 3, 5, 8])):
        if draw.random() < 0.4 and not any(layer["kind"] == "full" for layer in layers):
            channels = draw.choice([1, 3, 10])
            neurons = channels * side * side
            shape = {"shape": [channels, side, side], "kernel": kernel}
            weights, more = channels * kernel**2, 0
            connections = neurons * kernel**2
        else:
            neurons = draw.choice([1, 10, 400])
            inputs = layers[-1]["neurons"] if layers else draw.choice([1, 7, 1000])
            connections = weights = neurons * inputs
            shape, more = {}, draw.choice([0, neurons])
        sizes = {"neurons": neurons, "connections": connections, "weights": weights + more}
        layers.append({"name": f"l{number}", "kind": "conv" if shape else "full", **shape, **sizes})
    return layers


def yan(draw: Random) -> Request:
    """Return a job to configure."""
    machines = draw.choice([1, 2, 3, 4, 5, 8, 20, 100, 1000])
    threads = draw.choice([1, 2, 4])
    request: Request = {
        "samples": one_of(1, 100, 60000),
        "read_every": one_of(1, 100),
        "memory_bytes": maybe(0.3, one_of(1, 10**4, 10**7, 10**12)),
    }
    if draw.random() < 0.1:
        return {**request, "profile": profile, "cluster": cluster, "time_limit_s": limit}
    alone = {"parameter_servers": 1, "replicas": 1, "workers_per_replica": one_of(1, 2)}
    return request | {
        "machines": machines,
        "cores": one_of(1, 2, 4, 16),
        "layers": _neurons,
        "constants": {
            "muladd_ns": 0.5,
            "activation_ns": 2.0,
            "error_ns": 2.0,
            "latency_ns": [100000 + 1000 * one for one in range(threads)],
            "nic_bits_per_s": rate(draw) * 8,
            "interference": [1.0 + one / 20 for one in range(threads)],
        },
        "time_limit_s": limit if machines > 4 else maybe(0.5, limit),
        "machine_speeds": maybe(0.2, [one_of(0.5, 1, 2)] * machines),
        "partitions": maybe(0.2, "powers_of_two"),
        "pareto": maybe(0.15 if machines <= 8 else 0, True),
        "fixed": maybe(0.15, [alone]),
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
    sizes: Request = {"gradient_bytes": amount}
    if draw.random() < 0.2:
        sizes = {"layer_bytes": lambda draw: [shifted(8)] * draw.randrange(1, 30)}
    failed = {
        "servers": lambda draw: [server] * draw.choice([0, 0, 1, 2]),
        "nics": lambda draw: [[server, below(k)]] * draw.choice([0, 1, 1, 3]),
        "switches": lambda draw: [[below(k), [below(n)] * (k - 1)]] * draw.choice([0, 0, 1]),
    }
    return {
        "n": n,
        "k": k,
        **sizes,
        "link_bytes_per_s": fast,
        "latency_ns": maybe(0.3, one_of(0, 1, 5000, 10**9)),
        "reduce_ns_per_byte": maybe(0.2, one_of(0, 0.1, 3)),
        "failed": maybe(0.5, failed),
        "schedule": maybe(0.4, one_of("none", "all", {"server": server})),
        "time_limit_s": limit if n**k > 100 else maybe(0.8, limit),
    }


def bigdl(draw: Random) -> Request:
    """Return nodes with gradients."""
    nodes = [1, 2, 3, 4, 5, 7, 8, 16, 16, 30, 60]
    return {
        "elements": max(1, amount(draw)),
        "element_bytes": one_of(1, 2, 4, 8),
        "nodes": one_of(*(nodes if draw.random() < 0.98 else (200, 1024, 1025, 4096))),
        "partitions_per_node": one_of(1, 2, 4, 100, one_of(100, 2**20)),
        "link_bytes_per_s": fast,
        "latency_ns": maybe(0.4, shifted(20)),
        "reduce_ns_per_byte": maybe(0.4, one_of(0, 0.1, 3)),
        "time_limit_s": maybe(0.5, limit),
    }


def drizzle(draw: Random) -> Request:
    """Return an iteration whose tasks are scheduled."""
    tasks: Request = {"tasks": max(1, amount(draw))}
    if draw.random() < 0.4:
        stages: list[Request] = []
        for number in range(min(size(draw), 400)):
            before = draw.sample(stages, min(len(stages), draw.randrange(3)))
            after = [stage["name"] for stage in before]
            stages.append({"name": f"s{number}", "tasks": below(100, 1), "after": after})
        draw.shuffle(stages)
        tasks = {"stages": stages}
    return {
        "compute_ns": amount,
        "task_ns": one_of(0, 390000, 0.001, 1e9, amount),
        "max_overhead": one_of(0.05, 0.5, 1e-9, 0.999999, 1e-300, 0.1),
        "group_ns": maybe(0.4, one_of(0, 1e6, amount)),
        "constant_task_ns": maybe(0.4, one_of(0, 10, 1e-6, amount)),
        "max_group_ns": maybe(0.5, max(1, amount(draw))),
        **tasks,
    }


def fsdp(draw: Random) -> Request:
    """Return layers whose parameters are sharded."""
    layers = min(size(draw), 40)
    kept, sizes = (made([below(10**6, least)] * layers, draw) for least in (0, 1))
    collective = {"startup_ns": below(10**5), "ns_per_byte": one_of(0, 0.02, 3)}
    mesh = {"all_gather": collective, "reduce_scatter": collective}
    activations = {
        "activation_bytes": kept,
        "checkpoint_bytes": maybe(0.5, [each // 2 for each in kept]),
    }
    return {
        "forward_ns": [below(10**6)] * layers,
        "backward_ns": [below(10**6)] * layers,
        "parameter_bytes": sizes,
        "meshes": [{"shards": one_of(1, 4, 64), **mesh}],
        "channels": one_of("one", "two", "shared"),
        **(activations if draw.random() < 0.5 else {}),
        "memory_bytes": maybe(0.7, sum(sizes) * draw.randrange(1, 5)),
        "tied": maybe(0.3, [[0, below(layers)]]),
        "blocks": maybe(0.3, [0, *range(2, layers, 3)]),
        "time_limit_s": limit if layers > 6 else maybe(0.5, limit),
    }


def iteration(draw: Random) -> Request:
    """Return a model and a cluster."""
    return {
        "profile": profile,
        "cluster": cluster,
        "time_limit_s": limit,
        "epoch_samples": maybe(0.2, one_of(1, 1000, 10**6)),
        "optimiser_ratio": maybe(0.2, one_of(0, 2, 0.5)),
        "computation_scale": maybe(0.2, one_of(1, 0.02, 1e-9, 3)),
        "target": TARGET,
    }


def overlap(draw: Random) -> Request:
    """Return layers that gather what they compute with, and sum up what they make."""
    nodes: list[Request] = []
    collectives: list[Request] = []
    tensors: list[Request] = []
    each = draw.choice([amount, below(20)])
    layers = draw.choice([1, 2, 3, 8, 60])
    for layer in range(layers):
        begin = 3 * layer
        before = [begin - 1] if layer else []
        nodes += [
            {"name": f"start {layer}", "after": before if draw.random() < 0.3 else []},
            {"name": f"wait {layer}", "after": [begin]},
            {"name": f"use {layer}", "after": [begin + 1, *before], "duration_ns": amount},
        ]
        row = {"start": begin, "wait": begin + 1, "kind": one_of(0, 0, 1)}
        collectives.append({**row, "size_bytes": each, "pack_ns": one_of(0, 5)})
        if draw.random() < 0.5:  # what was gathered, and what is computed
            read = [begin + 5] if layer + 1 < layers else []
            tensors += [
                {"producer": begin + 1, "readers": [begin + 2], "size_bytes": each(draw)},
                {"producer": begin + 2, "readers": read, "size_bytes": each(draw)},
            ]
    if draw.random() < 0.3:
        readers = sorted({draw.randrange(1, len(nodes)) for _ in range(2)})
        tensors.append({"producer": 0, "readers": readers, "size_bytes": each(draw)})
    times = one_of([[0, 10]], [[0, 10], [1000, 20]], [[0, amount]])
    sizes = [tensor["size_bytes"] for tensor in tensors]
    most = below(sum(sizes) + 1, max(sizes)) if sizes else ...
    return {
        "nodes": nodes,
        "kinds": [
            {"name": "a", "channel": "0", "times": times},
            {"name": "b", "channel": one_of("0", "1"), "times": times},
        ],
        "collectives": collectives,
        "tensors": tensors,
        "memory_limit_bytes": maybe(0.5, most),
        "time_limit_s": limit if layers > 3 else maybe(0.5, limit),
    }


def _maker(parts: Callable[[Random], Request]) -> Callable[[Random], Request]:
    return lambda draw: made({"problem": parts.__name__, **parts(draw)}, draw)


MAKERS: Mapping[str, Callable[[Random], Request]] = {
    parts.__name__: _maker(parts)
    for parts in (ibatch, caramel, yan, bml, bigdl, drizzle, fsdp, iteration, overlap)
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
