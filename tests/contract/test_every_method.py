"""Every method of every family keeps every promise of `planner.testing`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from planner.families import bigdl, bml, caramel, drizzle, fsdp, ibatch, iteration, overlap, yan
from planner.model.graphs import Graph
from planner.solving.family import Family
from planner.testing import check_method
from tests import oracles
from tests.thorough import THOROUGH

FAMILIES: Mapping[str, Family[Any, Any, Any]] = {
    "ibatch": ibatch.IBATCH,
    "caramel": caramel.CARAMEL,
    "iteration": iteration.ITERATION,
    "fsdp": fsdp.FSDP,
    "overlap": overlap.OVERLAP,
    "yan": yan.YAN,
    "bml": bml.BML,
    "bigdl": bigdl.BIGDL,
    "drizzle": drizzle.DRIZZLE,
}

EXACT = {"ibatch": ("auto", "exact", "milp", "cpsat")}
"""Methods that find the cheapest plan of every problem drawn."""

LEAST: Mapping[str, Callable[[Any], int | None]] = {"ibatch": oracles.brute_force}
"""Brute force."""


def renamed(graph: Graph) -> Graph:
    """Return the graph with other names, in the same order."""
    names = {op.name: f"x{op.name}" for op in graph.ops}

    def others(known: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names[name] for name in known)

    ops = (replace(op, name=names[op.name], after=others(op.after)) for op in graph.ops)
    parameters = (
        replace(
            one,
            name=f"x{one.name}",
            updated_by=others(one.updated_by),
            read_by=others(one.read_by),
        )
        for one in graph.parameters
    )
    return Graph(tuple(ops), tuple(parameters))


def otherwise_named(problem: Any) -> Any:
    return replace(problem, graph=renamed(problem.graph))


def with_a_free_layer(problem: ibatch.Problem) -> ibatch.Problem:
    """Return the problem with a layer more, behind the last one, which costs nothing."""
    sizes, sent = problem.layer_bytes, problem.transfer_ns
    return replace(
        problem,
        compute_ns=(*problem.compute_ns, 0),
        layer_bytes=None if sizes is None else (*sizes, 0),
        transfer_ns=None if sent is None else (*sent, 0),
    )


TWINS: Mapping[str, tuple[Callable[[Any], Any], ...]] = {
    "caramel": (otherwise_named,),
    "iteration": (otherwise_named,),
    "ibatch": (with_a_free_layer,),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "method"),
    [(name, method) for name, family in FAMILIES.items() for method in family.methods],
)
def test_promises_are_kept(family: str, method: str) -> None:
    exact = method in EXACT.get(family, ())
    check_method(
        FAMILIES[family],
        method,
        least=LEAST.get(family) if exact else None,
        twins=TWINS.get(family, ()) if exact or family != "ibatch" else (),
        examples=80 if THOROUGH else 8,
    )
