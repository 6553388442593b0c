"""Every method of every family keeps every promise of `planner.testing`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from planner.families import bigdl, bml, caramel, drizzle, fsdp, ibatch, iteration, overlap, yan
from planner.model.graphs import Graph, Op, Parameter
from planner.solving.family import Family
from planner.testing import check_method
from tests import oracles
from tests.thorough import THOROUGH

ALL: Sequence[Family[Any, Any, Any]] = (
    *(ibatch.IBATCH, caramel.CARAMEL, iteration.ITERATION, fsdp.FSDP, overlap.OVERLAP),
    *(yan.YAN, bml.BML, bigdl.BIGDL, drizzle.DRIZZLE),
)
FAMILIES = {family.name: family for family in ALL}


def least_of_batches(problem: ibatch.Problem) -> int | None:
    """Under contention by the evaluation, which tests/ibatch holds against its definition."""
    if problem.interference.is_none:
        return oracles.brute_force(problem)
    plans = map(problem.plan, oracles.all_boundaries(problem))
    return min((ibatch.evaluate(problem, plan).makespan_ns for plan in plans), default=None)


LEAST: Mapping[str, Callable[[Any], int | None]] = {"ibatch": least_of_batches}
"""Brute force. That of overlap stands in tests/overlap, for smaller problems."""


def always(_: Any) -> bool:
    return True


OPTIMAL: Mapping[tuple[str, str], Callable[[Any], bool]] = {
    ("ibatch", "auto"): always,
    ("ibatch", "exact"): always,
    ("ibatch", "milp"): lambda problem: problem.interference.is_none,
    ("ibatch", "cpsat"): lambda problem: problem.interference.is_none,
    ("drizzle", "auto"): always,
    ("drizzle", "exact"): always,
}
"""Methods that find and prove the cheapest plan of all, or of these, problems drawn."""


def otherwise_named(problem: Any) -> Any:
    """Return the problem with other names of ops and parameters, in the same order."""

    def others(one: Op | Parameter, *lists: str) -> Any:
        known = {field: tuple(f"x{name}" for name in getattr(one, field)) for field in lists}
        return replace(one, name=f"x{one.name}", **known)  # type: ignore[arg-type]

    ops = tuple(others(op, "after") for op in problem.graph.ops)
    parameters = tuple(others(it, "updated_by", "read_by") for it in problem.graph.parameters)
    order = problem.op_order and [f"x{name}" for name in problem.op_order]
    return replace(problem, graph=Graph(ops, parameters), op_order=order)


def with_a_free_layer(problem: ibatch.Problem) -> ibatch.Problem:
    """Return the problem with a layer more, behind the last one, which costs nothing."""
    names = ("compute_ns", "layer_bytes", "transfer_ns")
    known = ((name, getattr(problem, name)) for name in names)
    longer: dict[str, Any] = {name: old and (*old, 0) for name, old in known}
    return replace(problem, **longer)


def counted_from_the_other_end(problem: yan.Problem) -> yan.Problem:
    speeds = problem.machine_speeds
    return replace(problem, machine_speeds=speeds and speeds[::-1])


TWINS: Mapping[str, tuple[Callable[[Any], Any], ...]] = {
    "caramel": (otherwise_named,),
    "iteration": (otherwise_named,),
    "ibatch": (with_a_free_layer,),
    "yan": (counted_from_the_other_end,),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "method"),
    [(name, method) for name, family in FAMILIES.items() for method in family.methods],
)
def test_promises_are_kept(family: str, method: str) -> None:
    optimal = OPTIMAL.get((family, method))
    check_method(
        FAMILIES[family],
        method,
        least=LEAST.get(family),
        optimal=optimal,
        twins=TWINS.get(family, ()) if optimal or family != "ibatch" else (),
        examples=80 if THOROUGH else 8,
    )
