"""The requests that tests of requests and answers change, by name."""

from typing import Any

from tests.jsonio.asking import Request, contract
from tests.test_programs import CARAMEL

FREE = {"startup_ns": 0, "ns_per_byte": 0}
AFFINE = {"startup_ns": 5, "ns_per_byte": 0.1}
ROWS = {"table": [[0, 5], [100, 20], [1000, 90]]}
DEPTHS = {**AFFINE, "depths": {"2": {"startup_ns": 9, "ns_per_byte": 0.05}, "8": ROWS}}
NIC = {"nics": [[[0, 1], 0]]}
STAGES: list[dict[str, Any]] = [
    {"name": "gradients", "tasks": 256},
    {"name": "aggregation", "tasks": 64, "after": ["gradients"]},
]
LAYERS = [
    {"name": "a", "forward_ns": 400, "backward_ns": 900, "parameter_bytes": 4000},
    {"name": "b", "forward_ns": 500, "backward_ns": 800, "parameter_bytes": 800},
    {"name": "c", "forward_ns": 300, "backward_ns": 700, "parameter_bytes": 8000},
]
ITERATION: Request = {
    "problem": "iteration",
    "profile": {
        "name": "tiny",
        "provenance": {"kind": "synthetic", "source": "a test"},
        "batch_size": 2,
        "layers": [{**layer, "activation_bytes": 1000} for layer in LAYERS],
    },
    "cluster": {
        "name": "four",
        "source": "a test",
        "machines": 4,
        "topology": {"kind": "switch"},
        "nic": {"bytes_per_s": 1e9, "startup_ns": 100},
    },
}
SMALL: Request = {
    **contract("yan"),
    "machines": 3,
    "layers": [
        {"name": "a", "kind": "full", "neurons": 4, "connections": 12, "weights": 12},
        {"name": "b", "kind": "full", "neurons": 2, "connections": 8, "weights": 10},
    ],
}
TRIPLE = {"parameter_servers": 1, "replicas": 1, "workers_per_replica": 2}
CHOICES = [
    {"partitions": 1, "threads": 1, "copies": 2},
    {"partitions": 2, "threads": 2, "copies": 1},
]
BASES: dict[str, Request] = {
    "ibatch": {"problem": "ibatch", "direction": "pull", "startup_ns": 4, "transfer_ns": [3, 1, 5]}
    | {"compute_ns": [2, 6, 1], "method": "exact", "objective": "makespan"},
    "table": {"problem": "ibatch", "layer_bytes": [10, 0, 30], "compute_ns": [2, 6, 1]}
    | {"cost_table": [[0, 5], [10, 9], [20, 30]]},
    "caramel": {
        "problem": "caramel",
        "ops": [
            {"name": "f1", "ns": 10, "pass": "forward"},
            {"name": "f2", "ns": 20, "pass": "forward", "after": ["f1"]},
            {"name": "b2", "ns": 30, "pass": "backward", "after": ["f2"]},
            {"name": "b1", "ns": 20, "pass": "backward", "after": ["b2", "f1"]},
            {"name": "b0", "ns": 20, "pass": "backward", "after": ["b2"]},
        ],
        "parameters": [
            {"name": "w1", "bytes": 400, "updated_by": ["b1", "b0"], "read_by": ["f1"]},
            {"name": "w2", "bytes": 300, "updated_by": "b2", "read_by": ["f2", "f1"]},
            {"name": "w3", "bytes": 100, "updated_by": "b2", "read_by": "f2"},
        ],
        "network": AFFINE,
    },
    "one": contract("caramel"),
    "bml": contract("bml"),
    "bigdl": contract("bigdl"),
    "drizzle": contract("drizzle"),
    "yan": contract("yan"),
    "small": SMALL,
    "fixed": {**SMALL, "fixed": [TRIPLE, {**TRIPLE, "layers": CHOICES}]},
    "iteration": ITERATION,
    "shard": {"problem": "fsdp", "forward_ns": [0], "backward_ns": [0], "parameter_bytes": [159]}
    | {"meshes": [{"shards": 4, "all_gather": FREE, "reduce_scatter": FREE}]},
    "target": {**CARAMEL, "target": "ddp"},
    "untargeted": CARAMEL,
    "targeted": {**ITERATION, "target": "ddp"},
}
