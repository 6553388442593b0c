"""Plans of fully sharded training as settings of FSDP2: what is set, what is refused, its price."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest

import planner
from planner.cli import main
from planner.families import fsdp
from planner.families.fsdp import Plan, Unit
from planner.families.fsdp.baselines import RULES
from planner.jsonio.fsdp import answer
from planner.model.costs import AffineCost
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.programs import UnitProgram, program_of
from planner.programs.units import units_of

COST = AffineCost(1, Fraction(1))
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


def settings(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    plan, out = tmp_path / "plan.json", tmp_path / "settings.json"
    plan.write_text(json.dumps(planner.solve_or_raise({**REQUEST, **changes})))
    assert main(["export", "fsdp2", str(plan), "-o", str(out)]) == 0
    written: dict[str, Any] = json.loads(out.read_text())
    return written


def test_each_unit_is_a_call_with_what_it_prefetches(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert found["mesh"] == [4]
    assert [unit["modules"] for unit in found["units"]] == [
        [name] for name in REQUEST["layer_names"]
    ]
    assert all(unit["reshard_after_forward"] for unit in found["units"])
    first, second, third, last = REQUEST["layer_names"]
    # As FSDP2 does by itself: lists of one change nothing.
    assert [unit["forward_prefetch"] for unit in found["units"]] == [[], [third], [last], []]
    backwards = [unit["backward_prefetch"] for unit in found["units"]]
    assert backwards == [[first], [first], [second], [third]]
    assert found["settings"] == {}


def test_what_streams_would_do_otherwise_is_refused() -> None:
    """FSDP2 gathers a unit again beside its own forward computation by its own streams alone."""
    problem = fsdp.Problem(
        forward_ns=[1] * 4,
        backward_ns=[1] * 4,
        parameter_bytes=[4] * 4,
        meshes=[fsdp.Mesh(shards=2, all_gather=COST, reduce_scatter=COST)],
        names=["a", "b", "c", "d"],
    )
    plan = RULES["fsdp2"](problem, 0)
    program = program_of((problem, plan))
    assert isinstance(program, UnitProgram)
    # On CPUs, which have no streams, two units ahead; the last one in its turn.
    assert [unit.forward_prefetch for unit in program.units] == [(1, 2), (3,), (), ()]
    assert [unit.backward_prefetch for unit in program.units] == [(), (0,), (1,), (2,)]
    *units, last = plan.units
    late = Plan(0, (*units, last._replace(forward_at=3)))
    with pytest.raises(NotApplicableError, match="only FSDP2's own streams"):
        program_of((problem, late))


def test_replicas_are_the_first_dimension_of_the_mesh(tmp_path: Path) -> None:
    mesh = {**REQUEST["meshes"][0], "shards": 2, "replicas": 3, "all_reduce": NETWORK}
    found = settings(tmp_path, meshes=[mesh])
    assert found["mesh"] == [3, 2]
    assert found["mesh_dim_names"] == ["replicate", "shard"]


def test_typed_plans_are_the_same_programs() -> None:
    problem = fsdp.Problem(
        forward_ns=[900, 800, 700],
        backward_ns=[1500, 1600, 1700],
        parameter_bytes=[1000, 2000, 1500],
        meshes=[fsdp.Mesh(shards=2, all_gather=COST, reduce_scatter=COST)],
        names=["a", "b", "c"],
        channels="two",
    )
    result = fsdp.solve(problem)
    assert result.plan is not None
    answered = msgspec.json.encode(answer(problem, result))
    assert (
        program_of(answered) == program_of((problem, result)) == program_of((problem, result.plan))
    )


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b", "a", "c"], "module 'a' is also in units[0]"),
        (["a", "b.c", "b", "d"], "module 'b.c' is inside 'b' of units[2]"),
    ],
)
def test_what_fully_shard_cannot_be_told_is_refused(names: list[str], message: str) -> None:
    planned = planner.solve_or_raise({**REQUEST, "layer_names": names})
    with pytest.raises(NotApplicableError) as caught:
        program_of(planned)
    assert caught.value.message.startswith(message)


def test_layers_without_names_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    request = {key: value for key, value in REQUEST.items() if key != "layer_names"}
    planned = planner.solve_or_raise(request)
    with pytest.raises(InvalidInputError, match="layer_names: missing"):
        program_of(planned)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(planned))
    assert main(["export", "ddp", str(plan)]) == 2
    assert main(["export", "fsdp2", str(plan)]) == 2
    assert "layer_names: missing" in capsys.readouterr().err


def test_gathers_in_the_forward_pass_are_told_too() -> None:
    units = (
        Unit(0, 1, keep=False, recompute=False, forward_at=0, backward_at=1),
        Unit(1, 2, keep=True, recompute=False, forward_at=0, backward_at=None),
    )
    problem = fsdp.Problem(
        forward_ns=[1, 1],
        backward_ns=[1, 1],
        parameter_bytes=[4, 4],
        meshes=[fsdp.Mesh(shards=2, all_gather=COST, reduce_scatter=COST)],
    )
    plan = Plan(0, units)
    loads = fsdp.evaluate(problem, plan).loads
    program = units_of(["a", "b"], plan, loads, (1, 2), "one")
    assert isinstance(program, UnitProgram)
    assert [unit.forward_prefetch for unit in program.units] == [(1,), (0,)]
    assert [unit.reshard for unit in program.units] == [True, False]
