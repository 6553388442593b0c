"""What answers say: the contract's examples, every family's options, the ends of the ranges.

Each answer fits its schema and is read again. Errors: `test_refusals`; what families have alike:
`test_every_problem`.
"""

import json
import re
from functools import reduce
from itertools import product
from operator import getitem
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

import planner
from planner.families import bigdl, bml, caramel
from planner.jsonio import decode_answer, reply
from planner.jsonio.bigdl import MAX_NODES
from planner.model.errors import InvalidInputError
from planner.solving.timeline import Timeline
from planner.view.chart import Chart
from planner.view.drawing import DRAWINGS
from tests.jsonio.asking import ROOT, Request, answered, ask, told
from tests.jsonio.bases import AFFINE, BASES, DEPTHS, FREE, NIC, ROWS, STAGES
from tests.jsonio.patches import patched, steps_of

MANY = 2**62
EVERYBODY = [list(server) for server in product(range(3), repeat=2)]
NAMES = [["a.weight", "a.bias"], [], ["c.weight"]]
IDLE = {"ops": [{**op, "ns": 0} for op in BASES["one"]["ops"]]}
FORKED = {
    "ops": [
        {"name": "f", "ns": 1, "pass": "forward"},
        {"name": "long", "ns": 9, "pass": "backward", "after": ["f"]},
        {"name": "short", "ns": 2, "pass": "backward", "after": ["f"]},
    ],
    "parameters": [
        {"name": "w", "bytes": 5, "updated_by": "long", "read_by": "f"},
        {"name": "v", "bytes": 5, "updated_by": "short", "read_by": "f"},
    ],
}
FREE_FORK = {**FORKED, "ops": [{**op, "ns": int(op["name"] == "f")} for op in FORKED["ops"]]}
LONG_FIRST = {"op_order": ["long", "short", "f"]}
CUTTING_OFF: list[tuple[Request, str, list[str]]] = [
    (
        {"nics": [[[0, 1], 1]], "switches": [[0, [0]]], "servers": [[2, 2]]},
        "the failures cut off server [0, 1] from the other 7 that work",
        ["failed.servers", "failed.nics", "failed.switches"],
    ),
    (
        {"switches": [[1, [0]], [1, [1]], [1, [2]]], "servers": [[0, 0], [1, 1], [1, 2]]},
        "the failures cut off servers [0, 1], [0, 2], [1, 0] from the other 3 that work",
        ["failed.servers", "failed.switches"],
    ),
    ({"servers": EVERYBODY}, "every server has failed", ["failed.servers"]),
]


class Having(str):
    """Equals every text that it is a part of."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str(self) in other


def near(value: float) -> Any:
    return pytest.approx(value)


NO_THIRD = {"groups[2]": ...}
Row = tuple[dict[str, Any], dict[str, Any]]

IBATCH: list[Row] = [
    (
        {},
        {"problem": "ibatch", "method": "exact", "status": "optimal"}
        | {"objective_ns": 18, "lower_bound_ns": 18, "makespan_ns": 18}
        | dict.fromkeys(("layer_parameters", "layer_bytes", "layer_names"), ...),
    ),
    ({"layer_bytes": [1, 2, 3]}, {"layer_bytes": [1, 2, 3]}),
    ({"direction": "push", "method": "layer_by_layer"}, {"batches": [[2, 3], [1, 2], [0, 1]]}),
    (
        {"layer_bytes": [1, 20, 1], "max_batch_bytes": 10},
        {"status": "infeasible", "binding": ["max_batch_bytes"], "layers": [1]},
    ),
    *(
        (
            {"startup_ns": MANY, "transfer_ns": [MANY - 2], "compute_ns": [0]}
            | {"objective": objective},
            {"objective_ns": 2**63 - 2, "status": "optimal"},
        )
        for objective in ("makespan", "eq4")
    ),
]
TABLE: list[Row] = [
    *(
        (
            {**cap, "direction": direction, "layer_parameters": NAMES},
            {"status": status, "layer_parameters": NAMES, "layer_bytes": [10, 0, 30]},
        )
        for cap, status in (({}, "optimal"), ({"max_batch_bytes": 1}, "infeasible"))
        for direction in ("pull", "push")
    ),
]
DRIZZLE: list[Row] = [
    (
        {},
        {"method": "exact", "status": "optimal", "group_size": 3, "largest_group_size": 22}
        | dict.fromkeys(("objective_ns", "lower_bound_ns"), 3 * 900000000 + 256 * 390000)
        | {"iteration_ns": 933280000, "overhead": near(33.28 / 933.28)}
        | {"overhead_of_compute": near(33.28 / 900), "speedup": near(999.84 / 933.28)}
        | {f"curve[{at}].group_size": size for at, size in ((0, 1), (1, 2), (2, 3), (6, 22))}
        | {"stages": ...},
    ),
    *(
        (
            {**tasks, "stages": STAGES[::-1]},
            {
                f"stages[{at}].{field}": value
                for field, values in (
                    ("name", ("gradients", "aggregation")),
                    ("triggers", (0, 256)),
                    ("triggers_previous", (64, 0)),
                )
                for at, value in enumerate(values)
            },
        )
        for tasks in ({"tasks": ...}, {"tasks": 320})
    ),
    (
        dict.fromkeys(("group_ns", "constant_task_ns", "max_group_ns"), ...),
        {"group_size": 3, "max_group_ns": ..., "largest_group_size": ...},
    ),
    (
        {"max_group_ns": ..., "compute_ns": 0, "task_ns": 0},
        {"overhead_of_compute": None, "overhead": 0},
    ),
    *(
        (
            change,
            {"status": "infeasible", "reason": Having(reason), "binding": list(change)[-count:]},
        )
        for change, reason, count in (
            ({"constant_task_ns": 10000, "max_overhead": 0.001}, "always above 0.0", 1),
            ({"max_group_ns": 10**8}, "even a group of one", 1),
            ({"max_overhead": 0.0001, "max_group_ns": 2 * 10**10}, "at least 1110", 2),
        )
    ),
]
COSTS = {"reduce": 80, "tree_aggregate": 31, "tree_aggregate_torrent": 16.9375}
BIGDL: list[Row] = [
    (
        {},
        {"problem": "bigdl", "method": "rotated", "status": "optimal"}
        | {"objective_ns": 858000000, "lower_bound_ns": 858000000}
        | {"slices[0]": [0, 8937500], "slices[1]": [8937500, 17875000]}
        | {"slices[15][1]": 143000000, "pull_order[0]": list(range(16))}
        | {"pull_order[3]": [*range(3, 16), 0, 1, 2]}
        | {"phases[1].start_ns": 0, "phases[2].start_ns": 429_000_000}
        | {
            f"comparison.{name}.times_full_transfer": times
            for name, times in {"rotated": 1.875, "same_order": 30, **COSTS}.items()
        }
        | {
            "comparison.reduce.driver_bytes": (64 + 16) * 572000000,
            "comparison.reduce.driver_added_bytes": 63 * 572000000,
        },
    ),
    # The time of `reduce` is no number of 63 bits here; nor are the bytes of a driver below.
    (
        {"nodes": 4096, "partitions_per_node": 1024, "link_bytes_per_s": 125000}
        | {"method": "tree_aggregate"},
        {f"comparison.{name}": ANY for name in ("rotated", "tree_aggregate")}
        | {"comparison.reduce": ...},
    ),
    (
        {"elements": MANY, "element_bytes": 1, "nodes": 1, "partitions_per_node": 1},
        {"comparison.rotated": ANY, "comparison.same_order": ANY}
        | {f"comparison.{name}": ... for name in COSTS},
    ),
    *(
        (
            {"nodes": nodes, "elements": 29, "latency_ns": 7, "reduce_ns_per_byte": 0.1}
            | {"method": method},
            {"levels": ANY if method in COSTS else ..., "phases[0].start_ns": 0},
        )
        for method in bigdl.METHODS
        for nodes in (1, 7)
    ),
    *(
        ({"partitions_per_node": 2, **change}, {})
        for change in (
            {"nodes": 2, "latency_ns": 2**61, "link_bytes_per_s": MANY, "elements": 1},
            {"nodes": 3, "elements": MANY, "element_bytes": 1, "link_bytes_per_s": MANY},
            {"nodes": 1, "elements": 3, "reduce_ns_per_byte": 2**52},
            {"nodes": 4096, "elements": 1, "partitions_per_node": 2**20, "method": "reduce"},
        )
    ),
    ({"nodes": MAX_NODES, "method": "reduce"}, {"levels": ANY}),
]
BML: list[Row] = [
    (
        {},
        {"method": "bml", "n": 3, "k": 2, "servers": 9, "switches": 6, "pieces": 18}
        | {"pieces_left_out": 0, "rounds": 1, "full_transfer_ns": 2500000}
        | dict.fromkeys(("ideal_ns", "lower_bound_ns"), -(-8 * 2500000 // 9))
        | {"objective_ns": 2222224, "status": "feasible"}  # pieces of whole bytes
        | {
            "steps": [
                {"stage": "aggregate", "step": 0, "pieces": 6},
                {"stage": "aggregate", "step": 1, "pieces": 2},
                {"stage": "broadcast", "step": 0, "pieces": 2},
                {"stage": "broadcast", "step": 1, "pieces": 6},
            ],
            "times_full_transfer": near(8 / 9),
            "comparison.bml_bcube.times_full_transfer": near(8 / 9),
            "comparison.bml_bcube.switches": 6,
            "comparison.ps_bcube": ANY,
        }
        | {
            f"comparison.{name}_fattree": ANY
            for name in ("ring", "ps", "hierarchical", "halving_doubling", "shuffle", "k_nics")
        }
        | dict.fromkeys(("transfers", "failed", "reason", "binding"), ...),
    ),
    *(
        (
            {"failed": failed, "method": method, "schedule": "all"},
            {"status": "infeasible", "method": method, "reason": reason, "binding": binding}
            | dict.fromkeys(("steps", "pieces", "transfers", "comparison"), ...),
        )
        for failed, reason, binding in CUTTING_OFF
        for method in bml.METHODS
    ),
    ({"method": "auto"}, {"method": "bml"}),
    *(
        ({"method": method, **failed}, {"method": method})
        for method in ("detour", "trees")
        for failed in ({}, {"failed": NIC})
    ),
    # 0.3 bytes a second, as written: no nanosecond more than 10 bytes take.
    (
        {"n": 2, "k": 1, "gradient_bytes": 2, "link_bytes_per_s": 0.3},
        {"objective_ns": -(-2 * 10**10 // 3)},
    ),
    (
        {"n": 2, "k": 1, "gradient_bytes": 2, "link_bytes_per_s": 1e9}
        | {"reduce_ns_per_byte": 0.1},
        {"objective_ns": 3},
    ),
    (
        {"k": 1, "gradient_bytes": ..., "layer_bytes": [5, 1]},
        {"comparison.ps_tensors_fattree": ANY},
    ),
    ({"k": 1}, {"comparison.ps_tensors_fattree": ...}),
    (
        {"n": 2, "k": 56},
        {"servers": 2**56, "switches": 56 * 2**55, "comparison.bml_bcube.switches": 56 * 2**55},
    ),
    (
        {"latency_ns": MANY, "failed": {"servers": EVERYBODY[1:]}},
        {"objective_ns": 0, "ideal_ns": None, "status": "optimal"},
    ),
    ({"n": MANY, "k": 1, "gradient_bytes": 0, "schedule": "all"}, {"transfers": []}),
]
ONE: list[Row] = [
    (
        {},
        {"problem": "caramel", "method": "caramel", "status": "optimal", "overlap": 0}
        | {"order": ["w1"], "op_order": ["b1", "f1"], "control_edges": []}
        | {
            "threshold_bytes": 93751,  # 1.5·α/β, and one
            "groups": [
                {"parameters": ["w1"], "bytes": 4096, "depth": 1, "ready_ns": 20}
                | {"start_ns": 20, "startup_end_ns": 50020, "end_ns": 53297, "due_ns": 20}
            ],
        }
        | dict.fromkeys(("iteration_ns", "objective_ns", "lower_bound_ns"), 53307)
        | {"communication_ns": 53277, "computation_ns": 30, "stall_ns": 53277}
        | {"rho": 53277 / 30, "utilisation": 30 / 53307}
        | {
            "schedule": [
                {"op": "b1", "pass": "backward", "start_ns": 0, "end_ns": 20},
                {"op": "f1", "pass": "forward", "start_ns": 53297, "end_ns": 53307},
            ],
            "workers": ...,
        },
    ),
    *(({**IDLE, "method": method}, {"rho": None}) for method in caramel.METHODS),
    ({**IDLE, "network": FREE}, {"iteration_ns": 0, "utilisation": 1}),
]
CARAMEL: list[Row] = [
    ({"network": {"startup_ns": 5, "ns_per_byte": 0}}, {"threshold_bytes": None}),
    *(
        (
            {"network": {"startup_ns": 2**58, "ns_per_byte": 1e-300}, "method": one},
            {"threshold_bytes": None},
        )
        for one in caramel.METHODS
    ),
    (
        {"network": {"startup_ns": 2**58, "ns_per_byte": 1e-300}, "threshold_bytes": 7},
        {"threshold_bytes": 7},
    ),
    ({"network": {**ROWS, "depths": {"64": AFFINE}}}, {"status": "optimal"}),
    (
        {"network": DEPTHS, "method": "exact"},
        {"groups[0].depth": 2, "groups[1].depth": 2, "groups[2]": ...},
    ),
    *(
        ({"element_bytes": size, "method": method}, {})
        for size in (7, 1000)
        for method in caramel.METHODS
    ),
    *(
        (
            {"method": method, "network": network, "op_order": ["f1", "f2", "b2", "b0", "b1"]}
            | {"stages": {"serialization": False, "batching": True}, "threshold_bytes": 200}
            | {"element_bytes": 4, "workers": 4, "servers": 2, "seed": 7}
            | {"time_limit_s": 1000},
            {"op_order": ["f1", "f2", "b2", "b0", "b1"]},
        )
        for method in caramel.METHODS
        for network in (ROWS, DEPTHS)
    ),
    *(
        (
            {"network": {"startup_ns": 5, "ns_per_byte": 0.01}}
            | {"method": "caramel", "stages": stages},
            found,
        )
        for stages, found in (
            ({}, NO_THIRD),
            ({"batching": False}, {"groups[2]": ANY, "groups[3]": ...}),
            ({"scheduling": False}, {f"groups[{at}].due_ns": 70 for at in (0, 1)} | NO_THIRD),
        )
    ),
    ({"method": "caramel", "stages": {"serialization": False}}, {"workers": ANY}),
    ({"method": "caramel"}, {"order": ["w2", "w3", "w1"], "op_order[0]": "b2"}),
    ({"method": "ddp", "workers": 3, "seed": 5}, {"control_edges": [], "workers": 3, "seed": 5}),
    ({"method": "ddp", "workers": 1}, {"workers": 1}),
    (
        {"method": "ddp", "op_order": ["b2", "b0", "b1", "f1", "f2"]},
        {"workers": ..., "order": ["w2", "w3", "w1"]},
    ),
    (FORKED, {"order": ["v", "w"], "control_edges": [["short", "long"]]}),
    *(
        ({**fork, **LONG_FIRST}, {"order": ["w", "v"], "control_edges": [["long", "short"]]})
        for fork in (FORKED, FREE_FORK)
    ),
    (
        {"parameters": [{**BASES["caramel"]["parameters"][0], "bytes": 10_000_001}]}
        | {"method": "bytescheduler", "element_bytes": 4},
        {
            "groups[0].part.w1": [0, 4_000_000],
            "groups[1].part.w1": [4_000_000, 8_000_000],
            "groups[2].part.w1": [8_000_000, 10_000_001],
            "groups[3]": ...,
        },
    ),
    *(
        ({"method": method}, {"barrier": barrier, "traffic": 1})
        for methods, barrier in (
            (("caramel", "exact", "bytescheduler"), False),
            (("ddp", "horovod", "mg_wfbp"), True),
        )
        for method in methods
    ),
    (
        {"method": "ps", "workers": 4, "servers": 2},
        {"barrier": False, "traffic": near(4 * 4 / (2 * 3))},
    ),
]
ITERATION: list[Row] = [
    ({"computation_scale": 0.1}, {"computation_ns": 360}),
    ({"computation_scale": 3}, {"computation_ns": 10800}),
    *(
        (
            {"algorithms": [algorithm], "modes": [mode]},
            {"synchronisation.algorithm": algorithm, "synchronisation.mode": mode}
            | {"alternatives[0]": ANY, "alternatives[1]": ...},
        )
        for algorithm in ("ring", "halving_doubling", "ps", "shuffle")
        for mode in ("replicated", "sharded")
    ),
    ({"cluster.interference": {"slowdown": 1}}, {"slowed_ns": ...}),
    (
        {"cluster.memory_bytes": 5, "regret": True},
        {"status": "infeasible", "advice": ..., "regret": ...},
    ),
    ({"max_transfer_bytes": 2, "element_bytes": 4}, {"binding": ["max_transfer_bytes"]}),
]
# A plan of chunks is short where whole messages take longer than can be said.
CHUNKS = {
    "network": {"startup_ns": 0, "ns_per_byte": 4 * 10**18}
    | {"depths": {"2": {"startup_ns": 5, "ns_per_byte": 1}}}
}
UNTARGETED: list[Row] = [(CHUNKS, {"targets": ..., "objective_ns": ANY})]
YAN: list[Row] = [
    (
        {},
        {"problem": "yan", "method": "exact", "status": "optimal", "pareto": ...}
        | {"explored": {"triples": ANY, "triples_cut": ANY}, "top[7]": ANY, "top[8]": ...},
    )
]


ANSWERS = {
    "ibatch": IBATCH,
    "table": TABLE,
    "drizzle": DRIZZLE,
    "bigdl": BIGDL,
    "bml": BML,
    "one": ONE,
    "caramel": CARAMEL,
    "iteration": ITERATION,
    "untargeted": UNTARGETED,
    "yan": YAN,
}
"""By base: what is changed in it, and what the answer says at some places; `...`: nothing."""


@pytest.mark.parametrize(
    ("base", "change", "found"),
    [(base, *row) for base, rows in ANSWERS.items() for row in rows],
    ids=str,
)
def test_an_answer_says(base: str, change: dict[str, Any], found: dict[str, Any]) -> None:
    answer = answered(patched(BASES[base], change))
    for place, value in found.items():
        steps = steps_of(place)
        if value is ...:
            with pytest.raises(LookupError):
                reduce(getitem, steps, answer)
        else:
            assert reduce(getitem, steps, answer) == value, place
    if answer["objective_ns"] is not None:
        _, content = decode_answer(json.dumps(answer))
        assert not isinstance(content, Timeline) or content.end_ns == answer["objective_ns"]


SAME: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *(
        ("caramel", {"network": DEPTHS, "method": "exact"}, {"network": network, "method": "exact"})
        for inside in [{"depths": {**DEPTHS["depths"], "1": AFFINE}}]
        for network in (inside, {**DEPTHS, **inside})
    ),
    ("drizzle", {"tasks": ..., "stages": STAGES}, {"tasks": 320, "stages": STAGES}),
    (
        *("small", {}),
        {"constants.bits_per_activation": ..., "constants.bits_per_weight": ...},  # they are 32
    ),
    ("untargeted", {}, {"target": "planner"}),
]
"""Requests that say the same, otherwise."""


@pytest.mark.parametrize(("base", "change", "other"), SAME, ids=str)
def test_requests_that_say_the_same_have_the_same_answer(
    base: str, change: dict[str, Any], other: dict[str, Any]
) -> None:
    assert told(ask(patched(BASES[base], change))) == told(ask(patched(BASES[base], other)))


@pytest.mark.parametrize(
    ("rate", "size", "expected"),
    [
        ("1e-1", 30, 3),
        ("3", 7, 21),
        (str(2**53 + 1), 1, 2**53 + 1),
        ("9007199254740993.0", 100, 900719925474099300),
        ("0.333333333333333333", 3 * 10**18, 10**18 - 1),
        ("0.3333333333333333331", 3 * 10**18, 10**18),
        ("0.1", 10**18, 10**17),
        ("1e-400", 10, 1),
        ("4611686018427387904.0", 1, MANY),
    ],
)
def test_rates_are_exactly_the_decimals_written(rate: str, size: int, expected: int) -> None:
    change = {"parameters[0].bytes": size, "network": FREE, "method": "layer_by_layer"}
    text = json.dumps(patched(BASES["one"], change))
    text = text.replace('"ns_per_byte": 0', f'"ns_per_byte": {rate}')
    answer = json.loads(reply(text.encode()).data)
    if expected == MANY:
        assert "four times" in answer["error"]["message"]
    else:
        assert answer["communication_ns"] == expected


def test_an_answer_whose_plan_is_the_start_plan_can_be_read_again() -> None:
    sizes = {"elements": 10, "nodes": 5, "partitions_per_node": 2, "link_bytes_per_s": 3e6}
    request = {**BASES["bigdl"], **sizes}
    plan = ask({**request, "with_plan": True})["plan"]
    answer = ask({**request, "method": "reduce", "start_plan": plan})
    assert answer["method"] == "replan"
    assert decode_answer(json.dumps(answer))
    with pytest.raises(InvalidInputError, match="comparison"):
        decode_answer(json.dumps({**answer, "method": "reduce"}))


def test_no_method_may_be_left_to_compare_where_a_start_plan_does_not_fit() -> None:
    plan = ask({**BASES["bigdl"], "with_plan": True})["plan"]
    large = {"elements": 1, "partitions_per_node": 1, "latency_ns": MANY}
    answer = answered({**BASES["bigdl"], **large}, method="replan", start_plan=plan)
    assert (answer["status"], answer["comparison"]) == ("infeasible", {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "limit", "echo"),
    [
        ({"compute_ns": 10, "task_ns": 1}, "0." + "9" * 26, 1),
        ({"compute_ns": 10, "task_ns": 0}, "1e-400", 0),
        ({"compute_ns": 0, "task_ns": 0}, "1e-400", 0),
    ],
)
def test_limits_that_are_rounded_to_an_end_are_read_again(
    change: dict[str, Any], limit: str, echo: int, tmp_path: Path
) -> None:
    """As a float the limit would already be 0 or 1 in the request."""
    text = json.dumps({**BASES["drizzle"], **change, "max_overhead": 0.5}).replace("0.5", limit)
    answer, content = decode_answer(reply(text.encode()).data)
    assert answer.max_overhead == content.max_overhead == echo
    chart = Chart("limits", content)
    assert "█ chosen" in DRAWINGS["drizzle"].text(chart, 80)
    DRAWINGS["drizzle"].save(chart, tmp_path / "p.svg")


def test_numbers_of_numpy_are_what_they_print() -> None:
    plain = {"task_ns": 390000.5, "max_overhead": 0.05}
    wrapped = {name: np.float64(value) for name, value in plain.items()}
    found = planner.solve({**BASES["drizzle"], **wrapped})
    assert told(found) == told(ask({**BASES["drizzle"], **plain}))


def test_the_example_of_the_page_on_drizzle() -> None:
    text = (ROOT / "docs" / "drizzle.md").read_text(encoding="utf-8")
    request, shown = map(json.loads, re.findall(r"```json\n(.*?)```", text, re.DOTALL))
    assert request == json.loads((ROOT / "data/drizzle/inception64.json").read_bytes())
    assert told(ask(request), "curve") == shown
