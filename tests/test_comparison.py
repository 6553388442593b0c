"""Every method of a family on one problem, the best first."""

import threading
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pytest

from planner.families import bigdl, ibatch
from planner.model.errors import InvalidInputError
from planner.model.network import Network
from planner.solving.compare import compare

SLICED = bigdl.Problem(
    elements=1000,
    element_bytes=4,
    nodes=5,
    partitions_per_node=2,
    network=Network(Fraction(10**9)),
)
PULLED = ibatch.Problem(startup_ns=4, transfer_ns=(3, 1, 5), compute_ns=(2, 6, 1))


@pytest.mark.parametrize(("family", "problem"), [(bigdl, SLICED), (ibatch, PULLED)])
def test_the_best_comes_first(family: Any, problem: Any) -> None:
    named: list[str] = []
    found = compare(
        problem,
        family.METHODS,
        solve=family.solve,
        progress=named.append,
    )
    listed = list(family.METHODS)
    assert named == [f"{name} ({n} of {len(listed)})" for n, name in enumerate(listed, start=1)]
    # `auto` is one of the others, and is not told twice.
    assert len(found.rows) + len(found.left_out) == len(named) - 1
    times = [row.objective_ns for row in found.rows]
    assert times == sorted(times, key=lambda time: (time is None, time or 0))
    for row in found.rows:
        assert (row.evaluation is None) == (row.plan is None)


def test_what_does_not_apply_is_left_out() -> None:
    found = compare(PULLED, ["ddp", "exact"], solve=ibatch.solve, time_limit=10)
    assert [row.method for row in found.rows] == ["exact"]
    ((method, reason),) = found.left_out
    assert method == "ddp"
    assert "push" in reason


def test_who_cancels_has_one_plan_and_no_more() -> None:
    cancel = threading.Event()
    cancel.set()
    methods = ["ddp", "exact", "greedy"]  # the first does not apply
    found = compare(PULLED, methods, solve=ibatch.solve, cancel=cancel)
    assert [row.method for row in found.rows] == ["exact"]


@pytest.mark.parametrize("methods", [["no_such"], ["exact", "no_such"]])
def test_unknown_methods_are_errors(methods: Iterable[str]) -> None:
    with pytest.raises(InvalidInputError):
        compare(PULLED, methods, solve=ibatch.solve)
