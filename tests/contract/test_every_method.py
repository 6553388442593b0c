"""Every method of every family keeps every promise of `planner.testing`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from planner.families import bigdl, bml, caramel, drizzle, fsdp, ibatch, iteration, overlap, yan
from planner.model.graphs import Graph
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


def renamed(graph: Graph) -> Graph:
    """Return the graph with other names, in the same order."""

    def others(known: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"x{name}" for name in known)

    ops = (replace(op, name=f"x{op.name}", after=others(op.after)) for op in graph.ops)
    parameters = (
        replace(
            it, name=f"x{it.name}", updated_by=others(it.updated_by), read_by=others(it.read_by)
        )
        for it in graph.parameters
    )
    return Graph(tuple(ops), tuple(parameters))


def otherwise_named(problem: Any) -> Any:
    order = problem.op_order and [f"x{name}" for name in problem.op_order]
    return replace(problem, graph=renamed(problem.graph), op_order=order)


def with_a_free_layer(problem: ibatch.Problem) -> ibatch.Problem:
    """Return the problem with a layer more, behind the last one, which costs nothing."""
    sizes, sent = problem.layer_bytes, problem.transfer_ns
    return replace(
        problem,
        compute_ns=(*problem.compute_ns, 0),
        layer_bytes=None if sizes is None else (*sizes, 0),
        transfer_ns=None if sent is None else (*sent, 0),
    )


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
