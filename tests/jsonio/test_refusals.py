"""Requests that mean nothing, though each field by itself could: where, and what was expected.

What a schema says of single fields is held by `test_every_problem`.
"""

import time
from typing import Any

import pytest

from planner.jsonio.bigdl import MAX_LISTED
from planner.model.validation import MAX_VALUE
from tests.jsonio.asking import error
from tests.jsonio.bases import AFFINE, BASES, NIC, ROWS, STAGES
from tests.jsonio.patches import patched

MANY = 2**62
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("ibatch", {"transfer_ns": []}, "transfer_ns", "length >= 1, got one of length 0"),
    ("ibatch", {"transfer_ns": [1, 2, -1]}, "transfer_ns[2]", "expected an integer >= 0, got -1"),
    ("ibatch", {"transfer_ns": {"a": 1}}, "transfer_ns", "expected an array, got an object"),
    ("ibatch", {"transfer_ns": [[1], 2, 3]}, "transfer_ns[0]", "got an array"),
    ("ibatch", {"transfer_ns": None}, "transfer_ns", "expected an array, got null"),
    ("ibatch", {"compute_ns": [1, 2.0, 1]}, "compute_ns[1]", "expected an integer >= 0, got 2.0"),
    *(
        ("ibatch", {"startup_ns": value}, "startup_ns", expected)
        for value, expected in (
            (True, "expected an integer >= 0, got true"),
            ("4", "expected an integer >= 0, got '4'"),
            (float("nan"), "got NaN"),
            (float("inf"), "got Infinity"),
            (2**64, f"<= {MAX_VALUE}"),
            (10**4000, "bits"),
        )
    ),
    ("ibatch", {"problem": ...}, "problem", "missing"),
    ("ibatch", {"problem": "ibtach"}, "problem", "did you mean 'ibatch'"),
    ("ibatch", {"problem": 3}, "problem", "got 3"),
    ("ibatch", {"startup": 4}, "startup", "unknown field; did you mean 'startup_ns'?"),
    ("ibatch", {"zzz": 4}, "zzz", "unknown field; known are problem"),
    ("ibatch", {"direction": "pul"}, "direction", "one of pull, push, got 'pul'"),
    ("ibatch", {"direction": ".a[...]"}, "direction", "one of pull, push"),
    ("ibatch", {"direction": "x` - at `$.y"}, "direction", "one of pull, push"),
    ("ibatch", {"time_limit_s": 0}, "time_limit_s", "> 0"),
    ("ibatch", {"time_limit_s": float("nan")}, "time_limit_s", "got NaN"),
    ("ibatch", {"time_limit_s": 10**400}, "time_limit_s", "expected a smaller number"),
    (
        *("ibatch", {"startup_ns": MANY, "transfer_ns": [MANY - 1], "compute_ns": [0]}),
        *("startup_ns", ""),
    ),
    ("ibatch", {"compute_ns": [1, 2]}, "compute_ns", "as many elements as transfer_ns (3), got 2"),
    ("ibatch", {"startup_ns": MANY}, "startup_ns", "63 bits"),
    ("ibatch", {"startup_ns": ...}, "startup_ns", "missing"),
    ("ibatch", {"transfer_ns": ...}, "transfer_ns", "missing"),
    ("ibatch", {"method": "exakt"}, "method", "did you mean 'exact'"),
    ("ibatch", {"method": "ddp"}, "method", "push"),
    ("ibatch", {"method": "ddp", "direction": "push"}, "layer_bytes", "ddp needs it"),
    ("ibatch", {"max_batch_bytes": 5}, "layer_bytes", "missing"),
    ("ibatch", {"layer_bytes": [1]}, "layer_bytes", "as many elements"),
    ("ibatch", {"layer_names": ["a"]}, "layer_names", "as many elements"),
    ("ibatch", {"cost_table": [[0, 1], [1, 2]]}, "startup_ns", "not together"),
    ("ibatch", {"layer_parameters": [["a"], ["b"]]}, "layer_parameters", "as layers (3), got 2"),
    ("ibatch", {"layer_parameters": [["a"], ["b"], ["c"], []]}, "layer_parameters", "(3), got 4"),
    ("ibatch", {"layer_parameters": [["a"], [], ["a"]]}, "layer_parameters[2][0]", "first in"),
    ("ibatch", {"layer_parameters": [[], ["b"] * 2, []]}, "layer_parameters[1][1]", "given twice"),
    ("table", {"cost_table": [[0, 1], [0, 2]]}, "cost_table[1][0]", "> 0"),
    ("table", {"cost_table": [[0, 9], [1, 2]]}, "cost_table[1][1]", ">= 9"),
    ("caramel", {"stages": {"batchin": True}}, "stages.batchin", "did you mean 'batching'?"),
    ("caramel", {"workers": 2, "servers": 3}, "servers", "at most as many as workers (2), got 3"),
    ("caramel", {"workers": 1, "method": "ps"}, "workers", "at least 2"),
    ("caramel", {"op_order": ["b2", "b1", "fx"]}, "op_order[2]", "no op is called 'fx'"),
    ("caramel", {"op_order": ["b2", "b2"]}, "op_order[1]", "'b2' given twice"),
    ("caramel", {"ops[1].after": ["f1", "f2"]}, "ops[1].after", "form a cycle: f2 -> f2"),
    ("caramel", {"ops[0].after": ["f2"]}, "ops[0].after", "f1 -> f2 -> f1"),
    ("caramel", {"ops[1].afer": []}, "ops[1].afer", "did you mean 'after'?"),
    ("caramel", {"parameters[1].read_by": ["f1", "b1"]}, "parameters[1].read_by[1]", "forward op"),
    ("caramel", {"parameters[1].updated_by": "b9"}, "parameters[1].updated_by", "no op is called"),
    ("caramel", {"network": {}}, "network.startup_ns", "missing; or give a table"),
    ("caramel", {"network": {"startup_ns": 5}}, "network.ns_per_byte", "missing"),
    ("caramel", {"network": {"ns_per_byte": 5}}, "network.startup_ns", "missing"),
    ("caramel", {"network.startup_ns": MANY}, "network", "63 bits"),
    ("caramel", {"network.ns_per_byte": 1e300}, "network.ns_per_byte", "from 0 to"),
    ("caramel", {"network.startup": 1}, "network.startup", "did you mean 'startup_ns'?"),
    ("caramel", {"network": {"table": [[0, 9], [1, 2]]}}, "network.table[1][1]", ">= 9"),
    ("caramel", {"network.table": [[0, 1], [1, 2]]}, "network.startup_ns", "not together with"),
    ("caramel", {"network": {"ns_per_byte": 1, **ROWS}}, "network.ns_per_byte", "not together"),
    ("caramel", {"network": {"depths": {"2": AFFINE}}}, "network.depths.1", "missing"),
    ("caramel", {"network.depths": {"1": ROWS}}, "network.depths.1", "not the cost given beside"),
    *(
        ("caramel", {"network.depths": {depth: AFFINE}}, f"network.depths.{depth}", "from 1 to 64")
        for depth in ("65", "0", "08", "٣", "2\n", "deep")
    ),
    ("caramel", {"network.depths": {"8": {"startup_ns": 1}}}, "network.depths.8.ns_per_byte", "mi"),
    ("caramel", {"network.depths": {"1.5": {"table": 3}}}, "network.depths.1.5.table", "got 3"),
    ("caramel", {"network.depths": {"2": AFFINE, "8": 5}}, "network.depths.8", "got 5"),
    (
        "caramel",
        {"network": {"startup_ns": 0, "ns_per_byte": 2**50}, "method": "ps", "workers": 64}
        | {"servers": 1},  # few servers multiply the traffic
        *("network", "63 bits"),
    ),
    *(
        ("caramel", {f"{rows}[{at}].{size}": MANY for at in range(count)}, rows, "")
        for rows, size, count in (("ops", "ns", 5), ("parameters", "bytes", 3))
    ),
    ("bml", {"k": 64}, "k", "expected at most 2^62 NICs, k·n^k, got BCube(3, 64)"),
    ("bml", {"gradient_bytes": ...}, "gradient_bytes", "missing: expected it, or layer_bytes"),
    ("bml", {"layer_bytes": [1, 2]}, "gradient_bytes", "the sum of layer_bytes (3), got 12500000"),
    ("bml", {"element_bytes": 3}, "gradient_bytes", "a multiple of element_bytes (3), got 125"),
    ("bml", {"link_bytes_per_s": ...}, "link_bytes_per_s", "missing (or network)"),
    ("bml", {"link_bytes_per_s": 1e-9}, "link_bytes_per_s", "to send the gradient must fit in"),
    ("bml", {"latency_ns": MANY}, "latency_ns", "the time must fit in 63 bits, got"),
    ("bml", {"schedule": "some"}, "schedule", "expected one of all, none, got 'some'"),
    ("bml", {"schedule": 3}, "schedule", "expected a string or an object, got 3"),
    ("bml", {"schedule": {"server": [0, 3]}}, "schedule.server[1]", "<= 2, got 3"),
    (
        *("bml", {"schedule": {"server": [1, 1]}, "failed": {"servers": [[1, 1]]}}),
        *("schedule.server", "expected one that has not failed"),
    ),
    ("bml", {"failed": {"servers": [[0, 0], [0, 3]]}}, "failed.servers[1][1]", "<= 2, got 3"),
    ("bml", {"failed": {"nics": [[[0, 0], 2]]}}, "failed.nics[0][1]", "<= 1, got 2"),
    ("bml", {"failed": {"nics": [[[0, 0]]]}}, "failed.nics[0]", "length 2, got one of length 1"),
    ("bml", {"failed": {"links": [[[0, 1], 2]]}}, "failed.links[0][1]", "<= 1, got 2"),
    ("bml", {"failed": {"switches": [[0, [3]]]}}, "failed.switches[0][1][0]", "<= 2, got 3"),
    ("bml", {"n": 2, "k": 17, "failed": {"servers": [[0] * 17]}}, "failed", "at most 1048576 NICs"),
    ("bml", {"gradient_bytes": MANY, "failed": NIC}, "gradient_bytes", "63 bits, got"),
    ("bml", {"method": "bml", "failed": NIC}, "method", "which knows no failures"),
    ("bigdl", {"elements": MANY}, "elements", "must fit in 63 bits"),
    ("bigdl", {"nodes": MAX_LISTED + 1}, "nodes", "every pull is listed"),
    ("bigdl", {"link_bytes_per_s": 1e-6}, "elements", "the time of a synchronisation"),
    ("bigdl", {"link_bytes_per_s": 1e-6, "nodes": 1}, "elements", "the time of a full transfer"),
    ("bigdl", {"elements": 2**60, "link_bytes_per_s": MANY}, "elements", "the bytes of a phase"),
    (
        "bigdl",
        {"nodes": 4096, "partitions_per_node": 1024, "link_bytes_per_s": 125_000}
        | {"method": "reduce"},
        *("elements", ""),
    ),
    (
        *("bigdl", {"elements": 1, "partitions_per_node": 1, "latency_ns": MANY}),
        *("elements", ""),
    ),
    *(
        (
            family,
            {"link_bytes_per_s": ..., **gone}
            | {"network": {"startup_ns": 1, "bytes_per_s": 1e9, "interference": {"slowdown": 2}}},
            *("network.interference", "only plans of caramel, ibatch and iteration"),
        )
        for family, gone in (("bml", {"latency_ns": ...}), ("bigdl", {}))
    ),
    ("drizzle", {"max_overhead": 1.5}, "max_overhead", "expected a number > 0 and < 1, got 3/2"),
    ("drizzle", {"tasks": ...}, "tasks", "missing"),
    ("drizzle", {"stages": STAGES}, "tasks", "as the stages have (320), got 256"),
    (
        *("drizzle", {"stages": [{"name": "a", "tasks": 256, "after": ["b"]}]}),
        *("stages[0].after[0]", "no stage is called 'b'"),
    ),
    ("small", {"constants.interference": [1, 1, 1, 0]}, "constants.interference[3]", "> 0, got 0"),
    ("small", {"constants.muladd_ns": 2**63}, "constants.muladd_ns", f"a number <= {MANY}"),
    ("small", {"constants.latency_ns": [1]}, "constants.latency_ns", "up to 2 threads, got 1"),
    ("small", {"constants.muladd_ns": 2**61}, "constants", "63 bits"),
    ("small", {"machine_speeds": [1, 1]}, "machine_speeds", "one a machine (3), got 2"),
    ("small", {"memory_bytes": 2**53 + 1}, "memory_bytes", f"an integer <= {2**53}"),
    ("yan", {"layers[1].weights": 5}, "layers[1].weights", "bias a neuron"),
    ("yan", {"layers[0].kernel": ...}, "layers[0].kernel", "missing"),
    ("yan", {"layers[0].connections": 7}, "layers[0].connections", "for 1 input channels, got 7"),
    ("fixed", {"fixed[1].workers_per_replica": ...}, "fixed[1].workers_per_replica", "missing"),
    ("fixed", {"fixed[1].replicas": 2}, "fixed[1]", "at most machines (3), got 5"),
    ("fixed", {"fixed[1].layers[1].copies": 2}, "fixed[1].layers[1]", "partitions x copies <="),
    (
        *("fixed", {"fixed[1].layers[1].mapping": [[0], [2]]}),
        *("fixed[1].layers[1].mapping[1][0]", "<= 1"),
    ),
    ("iteration", {"profile.ops": []}, "profile.ops", "length >= 1"),
    ("iteration", {"cluster.topology": {"kind": "bcube", "n": 3}}, "cluster.topology.k", "missing"),
    ("iteration", {"cluster.nics": 1}, "cluster.nics", "did you mean 'nic'?"),
    ("iteration", {"cluster.failed": {}, "workers": 3}, "workers", "unknown field"),
    ("iteration", {"cluster.failed": {"servers": [[0]]}}, "cluster.failed", "kind bcube"),
    ("iteration", {"cluster.scheduling": {"task_ns": MANY}}, "cluster.scheduling.task_ns", ""),
    ("iteration", {"cluster.interference": {"slowdown": 0.5}}, "cluster.interference.slowdown", ""),
    ("iteration", {"method": "best"}, "method", "expected one of auto, joint"),
    ("iteration", {"method": "no_reshard"}, "method", "expected one of auto, joint"),
    ("iteration", {"algorithms": ["bml"]}, "algorithms", "bml"),
    ("iteration", {"algorithms": ["rings"]}, "algorithms[0]", "did you mean 'ring'"),
    ("iteration", {"method": "ddp", "modes": ["sharded"]}, "modes", ""),
    ("iteration", {"method": "ps", "modes": ["replicated"]}, "modes", ""),
    ("iteration", {"computation_scale": MANY}, "computation_scale", ""),
    ("iteration", {"op_order": ["a"]}, "op_order[0]", "no op is called"),
    ("iteration", {"optimiser_ratio": 2**58}, "profile", ""),
    ("iteration", {"activation_bytes": MANY}, "profile", ""),
    ("iteration", {"epoch_samples": 60, "method": "ddp"}, "epoch_samples", "not with method ddp"),
    ("iteration", {"max_overhead": 0.1}, "max_overhead", "missing beside it: cluster.scheduling"),
    ("iteration", {"target": "dpp"}, "target", "expected one of ddp"),
    ("iteration", {"target": "fsdp2"}, "target", "shards parameters, which problem fsdp plans"),
    ("targeted", {"epoch_samples": 64}, "epoch_samples", "not with target"),
    ("targeted", {"method": "joint"}, "method", "expected one of auto"),
    ("targeted", {"modes": ["sharded"]}, "modes", "are replicated"),
    ("targeted", {"algorithms": ["ps"]}, "algorithms", "told of ring only"),
    ("target", {"target": "dpp"}, "target", "did you mean 'ddp'"),
    ("target", {"target": "fsdp2"}, "target", "shards parameters, which problem fsdp plans"),
    ("target", {"method": "search"}, "method", "expected one of auto, buckets, ddp"),
    ("target", {"scenarios": [{"startup": 2}]}, "scenarios", "not with target ddp"),
    ("untargeted", {"method": "buckets"}, "method", "expected one of auto, search"),
    (
        "target",
        {
            "network": {"startup_ns": 0, "ns_per_byte": 4 * 10**18}
            | {"depths": {"2": {"startup_ns": 5, "ns_per_byte": 1}}}
        },
        *("network", ""),
    ),
    ("small", {"scenarios": [{}, {"startup": 0}]}, "scenarios[1].startup", ""),
    ("caramel", {"scenarios": [{}, {"weight": 0}]}, "scenarios[1].weight", "> 0"),
    ("caramel", {"scenarios": [{}], "percentile": 0}, "percentile", "> 0"),
    ("caramel", {"percentile": 50}, "percentile", "missing beside it: scenarios"),
    ("caramel", {"scenarios": [{}], "method": "ddp"}, "scenarios", "not with method ddp"),
    ("shard", {"optimiser_ratio": 4.6e18}, "parameter_bytes", "memory of a rank"),
    ("shard", {"parameter_bytes": [MANY - 20]}, "parameter_bytes", "memory of a rank"),
]


@pytest.mark.parametrize(("base", "change", "path", "expected"), REFUSED, ids=str)
def test_what_fields_say_together(
    base: str, change: dict[str, Any], path: str, expected: str
) -> None:
    found_path, message = error(patched(BASES[base], change))
    assert found_path == path
    assert expected in message


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2, "k": 24, "gradient_bytes": 3, "schedule": "all"},
        {"n": 2**20, "k": 2, "schedule": {"server": [0, 0]}},
        {"n": 2, "k": 40, "schedule": "all", "gradient_bytes": ..., "layer_bytes": [0] * 9 + [3]},
    ],
)
def test_more_transfers_than_are_looked_at_are_refused_before_there_is_a_plan(
    change: dict[str, Any],
) -> None:
    begin = time.process_time()
    path, message = error(patched(BASES["bml"], change))
    assert time.process_time() - begin < 1
    assert path == "schedule"
    assert "at most 1000000 transfers" in message
