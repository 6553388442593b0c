"""Answers that are read again and contradict themselves: where, by every reader.

What a schema says of single fields, and heads of answers: `test_every_problem`.
"""

import json
from functools import cache
from typing import Any

import pytest

import planner
from planner.jsonio import decode_answer
from tests.formats.refused import refused
from tests.jsonio.requests import BASES, NIC, patched

ORDER = ["b2", "b1", "b0", "f1", "f2"]
FEW = {**BASES["bigdl"], "nodes": 3, "elements": 7}
NAMES = [["a.weight", "a.bias"], [], ["c.weight"]]
ROWS = [
    {
        "machines_used": machines,
        "epoch_ns": epoch,
        "workers_per_replica": 1,
        "replicas": machines - 1,
        "parameter_servers": 1,
        "layers": [{"partitions": 1, "threads": 1, "copies": 1}],
    }
    for machines, epoch in ((2, 10**13), (3, 10**12))
]
REQUESTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ibatch": ({**BASES["ibatch"], "method": "layer_by_layer"}, {}),
    "names": ({**BASES["table"], "layer_parameters": NAMES}, {}),
    "caramel": ({**BASES["caramel"], "method": "layer_by_layer", "op_order": ORDER}, {}),
    "one": (BASES["one"], {}),
    "iteration": (
        {**BASES["iteration"], "method": "ddp", "algorithms": ["ring"]},
        {"lower_bound_ns": 1, "status": "feasible"},
    ),
    "yan": (BASES["small"], {"pareto": ROWS}),
    "bigdl": (FEW, {}),
    "driven": ({**FEW, "method": "reduce"}, {}),
    "bml": ({**BASES["bml"], "gradient_bytes": 7}, {}),
    "damaged": ({**BASES["bml"], "failed": NIC, "method": "detour"}, {}),
    "drizzle": (BASES["drizzle"], {}),
}
"""Requests whose answers are changed, and what is changed in them first."""

CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("ibatch", {"error": {}}, "error"),
    ("ibatch", {"schedule": ...}, "schedule"),
    ("ibatch", {"schedule[1].transfer_start_ns": 0}, "schedule[1].transfer_start_ns"),
    ("ibatch", {"batches": [[0, 3]]}, "schedule"),
    ("ibatch", {"makespan_ns": 1}, "makespan_ns"),
    ("names", {"layer_parameters": NAMES[:2]}, "layer_parameters"),
    ("names", {"layer_parameters": [*NAMES, []]}, "layer_parameters"),
    ("names", {"layer_parameters": [["a"], [], ["a"]]}, "layer_parameters[2][0]"),
    ("names", {"layer_bytes": [1, 2]}, "layer_bytes"),
    ("caramel", {"groups[0].start_ns": 29}, "groups[0].start_ns"),
    ("caramel", {"groups[0].startup_end_ns": 1}, "groups[0].startup_end_ns"),
    ("caramel", {"groups[0].end_ns": 1}, "groups[0].end_ns"),
    ("caramel", {"groups[1].end_ns": 10**6}, "groups[2].start_ns"),
    ("caramel", {"groups[0].parameters": ["w2", "w2"]}, "groups[0].parameters"),
    ("caramel", {"groups[0].part": {"w9": [0, 1]}}, "groups[0].part.w9"),
    ("caramel", {"groups[0].part": {"w2": [1, 1]}}, "groups[0].part.w2"),
    ("caramel", {"schedule[0].op": "b1"}, "schedule[0].op"),
    ("caramel", {"schedule[0].end_ns": 10**6}, "schedule[1].start_ns"),
    ("caramel", {"schedule[1].start_ns": 29}, "schedule[1].start_ns"),
    ("caramel", {"op_order": ["b2"]}, "schedule"),
    ("caramel", {"iteration_ns": 5}, "objective_ns"),
    ("one", {"order": ["w2"]}, "order"),
    ("one", {"control_edges": [["b1", "b9"]]}, "control_edges[0]"),
    ("one", {"op_order": ["b1", "b1"], "schedule[1].op": "b1"}, "op_order[1]"),
    ("iteration", {"transfers[0].start_ns": 0}, "transfers[0].start_ns"),
    ("iteration", {"transfers[0].end_ns": 10**6}, "iteration_ns"),
    ("iteration", {"transfers[0].kind": "push"}, "transfers[0].kind"),
    ("iteration", {"transfers[0].algorithm": "ps"}, "transfers[0].algorithm"),
    ("iteration", {"schedule[1].start_ns": 0}, "schedule[1].start_ns"),
    *(
        ("iteration", {f"synchronisation.{place}": value}, f"synchronisation.program.{path}")
        for place, value, path in (
            ("program.generator", "direct", "generator"),
            ("program.shape", [5], "shape"),
            ("program.shape", [2, 2], "shape"),
            ("algorithm", "ps", "generator"),
        )
    ),
    ("yan", {"machines": 1}, "machines"),
    ("yan", {"configuration.machines_used": 1}, "configuration.machines_used"),
    ("yan", {"breakdown.layers[0].name": "z"}, "breakdown.layers[0].name"),
    ("yan", {"breakdown.layers[0].weight_update_ns": 10**9}, "breakdown"),
    ("yan", {"top[0].epoch_ns": 1}, "top"),
    ("yan", {"top[1].machines_used": 1}, "top[1].machines_used"),
    ("yan", {"pareto[1].machines_used": 9}, "pareto[1].machines_used"),
    ("yan", {"breakdown": ...}, "breakdown"),
    ("bigdl", {"phases[1].end_ns": 10**12}, "phases[2].start_ns"),
    ("bigdl", {"phases[2].end_ns": 10**12}, "objective_ns"),
    ("bigdl", {"phases": ...}, "phases"),
    ("bigdl", {"comparison": {}}, "comparison.rotated"),
    ("bigdl", {"method": "same"}, "comparison.same"),
    ("bigdl", {"gradient_bytes": 29}, "gradient_bytes"),
    ("bigdl", {"slices": [[0, 7]]}, "slices"),
    ("bigdl", {"slices[1]": [2, 5]}, "slices[1]"),
    ("bigdl", {"slices": ...}, "slices"),
    ("bigdl", {"nodes": 4}, "slices"),
    ("bigdl", {"pull_order[1]": [0, 1, 2]}, "pull_order[1][0]"),
    ("bigdl", {"pull_order": ...}, "pull_order"),
    ("driven", {"levels": []}, "levels"),
    ("driven", {"levels": ...}, "pull_order"),
    ("bml", {"comparison": {}}, "comparison.bml_bcube"),
    ("damaged", {"comparison": {}}, "comparison.bml_bcube"),
    ("bml", {"comparison.bml_bcube.switches": 2**80}, "comparison.bml_bcube.switches"),
    ("bml", {"servers": 10}, "servers"),
    ("bml", {"switches": 7}, "switches"),
    ("bml", {"k": 80}, "k"),
    ("drizzle", {"overhead": 0.5}, "curve"),
    ("drizzle", {"group_size": 5}, "curve"),
    ("drizzle", {"curve": ...}, "curve"),
    ("drizzle", {"max_overhead": 0.03}, "max_overhead"),
    ("drizzle", {"max_group_ns": 1}, "max_group_ns"),
    ("drizzle", {"curve[1].overhead": 0.5}, "curve[1].overhead"),
    ("drizzle", {"curve[1].group_time_ns": 0}, "curve[1].group_time_ns"),
    ("drizzle", {"curve[0].group_time_ns": 2**62}, "curve[1].group_time_ns"),
    ("drizzle", {"curve[1].group_size": 1}, "curve[1].group_size"),
]


@cache
def answered(name: str) -> str:
    request, first = REQUESTS[name]
    answer = json.dumps(patched(planner.solve(request), first))
    decode_answer(answer)
    return answer


@pytest.mark.parametrize(("name", "change", "path"), CHANGES, ids=str)
def test_what_contradicts_itself_is_refused_with_its_place(
    name: str, change: dict[str, Any], path: str
) -> None:
    with refused(path, ""):
        decode_answer(json.dumps(patched(json.loads(answered(name)), change)))


def test_a_foreign_exchange_may_leave_any_slice_empty_and_older_answers_say_no_barrier() -> None:
    uneven = patched(json.loads(answered("bigdl")), {"slices": [[0, 0], [0, 5], [5, 7]]})
    assert decode_answer(json.dumps(uneven))
    older = patched(json.loads(answered("caramel")), {"barrier": ..., "traffic": ...})
    read, _ = decode_answer(json.dumps(older))
    assert (read.barrier, read.traffic) == (False, 1)
