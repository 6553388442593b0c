"""Plans of fully sharded training as settings of FSDP2: what is set, what is refused, its price."""

from typing import Any

import pytest

import planner
from planner.families import fsdp
from planner.families.fsdp import Plan, Unit
from planner.families.fsdp.baselines import BASELINES
from planner.model.errors import NotApplicableError
from planner.programs import UnitProgram, program_of
from planner.programs.units import units_of
from tests.cli.line import Line, write
from tests.formats.refused import refused
from tests.fsdp.making import chain
from tests.test_programs import planned

LAYERS = 4
NETWORK = {"startup_ns": 100, "ns_per_byte": 1}
REQUEST: dict[str, Any] = {
    "problem": "fsdp",
    "forward_ns": [900] * LAYERS,
    "backward_ns": [1500] * LAYERS,
    "parameter_bytes": [1000, 2000, 1500, 1200],
    "meshes": [{"shards": 4, "all_gather": NETWORK, "reduce_scatter": NETWORK}],
    "layer_names": [f"blocks.{layer}" for layer in range(LAYERS)],
    "method": "fsdp2",
}


def settings(line: Line, **changes: Any) -> dict[str, Any]:
    write("plan.json", planner.solve_or_raise({**REQUEST, **changes}))
    found: dict[str, Any] = line("export fsdp2 plan.json").json
    return found


def test_each_unit_is_a_call_with_what_it_prefetches(line: Line) -> None:
    found = settings(line)
    assert found["mesh"] == [4]
    told = {key: [unit[key] for unit in found["units"]] for key in found["units"][0]}
    first, second, third, last = REQUEST["layer_names"]
    assert told["modules"] == [[first], [second], [third], [last]]
    assert all(told["reshard_after_forward"])
    # As FSDP2 does by itself: lists of one change nothing.
    assert told["forward_prefetch"] == [[], [third], [last], []]
    assert told["backward_prefetch"] == [[first], [first], [second], [third]]
    assert found["settings"] == {}
    mesh = {**REQUEST["meshes"][0], "shards": 2, "replicas": 3, "all_reduce": NETWORK}
    found = settings(line, meshes=[mesh])
    assert found["mesh"] == [3, 2]
    assert found["mesh_dim_names"] == ["replicate", "shard"]


def test_what_streams_would_do_otherwise_is_refused() -> None:
    """FSDP2 gathers a unit again beside its own forward computation by its own streams alone."""
    problem = chain(4, names=["a", "b", "c", "d"])
    plan = BASELINES["fsdp2"](problem, 0)
    program = program_of((problem, plan))
    assert isinstance(program, UnitProgram)
    # On CPUs, which have no streams, two units ahead; the last one in its turn.
    assert [unit.forward_prefetch for unit in program.units] == [(1, 2), (3,), (), ()]
    assert [unit.backward_prefetch for unit in program.units] == [(), (0,), (1,), (2,)]
    *units, last = plan.units
    late = Plan(0, (*units, last._replace(forward_at=3)))
    with refused(None, "only FSDP2's own streams", NotApplicableError):
        program_of((problem, late))


def test_typed_plans_are_the_same_programs() -> None:
    request = {**REQUEST, "channels": "two", "method": "auto"}
    problem, result = planned(request)
    plan: Any = result.plan
    program = program_of(planner.solve_or_raise(request))
    assert program == program_of((problem, result)) == program_of((problem, plan))


@pytest.mark.parametrize(
    ("names", "path", "message"),
    [
        (["a", "b", "a", "c"], "units[2]", r"^module 'a' is also in units\[0\]"),
        (["a", "b.c", "b", "d"], "units[1]", r"^module 'b\.c' is inside 'b' of units\[2\]"),
    ],
)
def test_what_it_cannot_be_told(names: list[str], path: str, message: str) -> None:
    planned = planner.solve_or_raise({**REQUEST, "layer_names": names})
    with refused(path, message, NotApplicableError):
        program_of(planned)


def test_layers_without_names_are_refused(line: Line) -> None:
    request = {key: value for key, value in REQUEST.items() if key != "layer_names"}
    planned = planner.solve_or_raise(request)
    with refused("layer_names", "missing"):
        program_of(planned)
    write("plan.json", planned)
    line.error("export ddp plan.json")
    assert "layer_names: missing" in line.error("export fsdp2 plan.json")


def test_gathers_in_the_forward_pass_are_told_too() -> None:
    plan = Plan(0, (Unit(0, 1, False, False, 0, 1), Unit(1, 2, True, False, 0, None)))
    loads = fsdp.evaluate(chain(2), plan).loads
    program = units_of(["a", "b"], plan, loads, (1, 2), "one")
    assert isinstance(program, UnitProgram)
    assert [unit.forward_prefetch for unit in program.units] == [(1,), (0,)]
    assert [unit.reshard for unit in program.units] == [True, False]
