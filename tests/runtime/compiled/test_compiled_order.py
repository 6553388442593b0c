"""What runs is what was planned: operations, transfers and waits, as every rank dispatches them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.utils._python_dispatch import TorchDispatchMode

from planner import caramel
from planner.errors import PlannerError
from planner.graphs import Graph
from planner.profiles import Profile
from planner.programs import Plan
from planner.runtime import join
from planner.runtime.compiled import PlannedBackend
from tests.runtime.compiled.models import (
    INDUCTOR,
    Branches,
    Cut,
    last_first,
    plan_of,
    problem_of,
    profile_of,
    seeded,
)
from tests.runtime.launching import launch
from tests.runtime.reference import loss_of, make_inputs
from tests.runtime.sharing import values

Event = tuple[str, int]
"""What was dispatched, and how many numbers it made."""


class Recorder(TorchDispatchMode):
    """Notes what is computed and sent, but for views and the like."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.events: list[Event] = []

    def __torch_dispatch__(
        self, function: Any, _types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.name().split("::")[-1]
        if re.match(r"mm|sum|tanh_backward|native_dropout_backward|all_reduce", name):
            tensors = result if isinstance(result, list | tuple) else (result,)
            sizes = sum(tensor.numel() for tensor in tensors if isinstance(tensor, Tensor))
            self.events.append((name.split(".")[0], sizes))
        return result


def recorded(plan: Plan, keep_order: bool, inductor: bool = False) -> dict[str, Any]:
    """Return what the second step of each rank dispatches, and what its backend says."""
    with join(60) as world:
        model = seeded(Branches)
        optimizer = SGD(model.parameters(), lr=0.1)
        options = {"keep_order": keep_order, "inductor": inductor}
        with PlannedBackend(model, plan, optimizer, world, **options) as backend:
            compiled = torch.compile(model, backend=backend, dynamic=False)
            waited: list[int] = []
            finish = backend._steps.finish_batches

            def noted(batches: Sequence[int]) -> None:
                waited.extend(batch for batch in batches if backend._steps._pending)
                finish(batches)

            backend._steps.finish_batches = noted  # type: ignore[method-assign,assignment]
            for step in range(3):
                # Nothing compiled runs inside a dispatch mode, but its backward pass.
                loss = loss_of(compiled(make_inputs("perceptron", 0, step)), 0, step)
                with Recorder() as backward:
                    loss.backward()
                backend.step()
            (part,) = backend.parts
            return {
                "waited": waited,
                "backward": backward.events,
                "imposed": part.imposed,
                "waits": part.waits,
            }


def completing(problem: caramel.Problem, order: Sequence[int]) -> list[str]:
    """Return the parameters in the order in which their gradients are complete."""
    graph = problem.graph
    place = {op: number for number, op in enumerate(order)}
    ready = [max(map(place.__getitem__, updaters)) for updaters in graph.updaters]
    return [graph.parameters[j].name for j in sorted(range(len(ready)), key=ready.__getitem__)]


@pytest.mark.slow
def test_operations_and_transfers_run_in_the_planned_order() -> None:
    profile = profile_of(Branches)
    problem = problem_of(profile, op_order=last_first(profile))
    sizes = {p.name: p.size_bytes // 4 for p in problem.graph.parameters}
    complete = completing(problem, problem.order.backward)
    assert complete != completing(problem_of(profile), problem.graph.pass_order("backward"))
    groups = [complete[:2], complete[2:3], complete[3:5], complete[5:]]
    plan = plan_of(problem, groups)
    ranks = values(launch(recorded, 2, plan, False))
    sent = [sum(sizes[name] for name in names) for names in groups]
    ops = [problem.graph.ops[op].name for op in problem.order.backward]
    kinds = [re.sub(r"graph0:|_\d+/backward|/backward", "", name) for name in ops]
    expected = [kind for kind in kinds if re.match(r"mm|sum|tanh_b|native_dropout_b", kind)]
    for rank in ranks:
        assert rank["imposed"] == "operations"
        assert rank["backward"] == ranks[0]["backward"]
        transfers = [size for name, size in rank["backward"] if name.startswith("all_reduce")]
        assert transfers == sent
        computed = [name for name, _ in rank["backward"] if not name.startswith("all_reduce")]
        assert computed == expected
        # The first transfer leaves before the last gradient is complete.
        first = next(i for i, (name, _) in enumerate(rank["backward"]) if "reduce" in name)
        assert any(name == "mm" for name, _ in rank["backward"][first:])
        # The first step ends with all updates, the second one in the forward pass after it.
        waits = [batch for _, batches in rank["waits"] for batch in batches]
        assert sorted(waits) == [0, 1, 2, 3]
        assert len(rank["waits"]) > 1
        assert rank["waited"] == [0, 1, 2, 3, *waits, 0, 1, 2, 3]
    (kept, _) = values(launch(recorded, 2, plan, True))
    assert kept["imposed"] == "none"
    assert [e for e in kept["backward"] if "reduce" in e[0]] == [
        e for e in ranks[0]["backward"] if "reduce" in e[0]
    ]
    assert kept["backward"] != ranks[0]["backward"]


@pytest.mark.slow
@pytest.mark.skipif(not INDUCTOR, reason="Inductor compiles C++ for a minute: in thorough runs")
def test_transfers_leave_in_the_planned_order_under_inductor() -> None:
    profile = profile_of(Branches)
    problem = problem_of(profile, op_order=last_first(profile))
    sizes = {p.name: p.size_bytes // 4 for p in problem.graph.parameters}
    complete = completing(problem, problem.order.backward)
    groups = [complete[:2], complete[2:3], complete[3:5], complete[5:]]
    ranks = values(launch(recorded, 2, plan_of(problem, groups), False, True, timeout_s=300))
    for rank in ranks:
        assert rank["imposed"] == "gradients"
        transfers = [size for name, size in rank["backward"] if name.startswith("all_reduce")]
        assert transfers == [sum(sizes[name] for name in names) for names in groups]
        first = next(i for i, (name, _) in enumerate(rank["backward"]) if "reduce" in name)
        assert any(name == "mm" for name, _ in rank["backward"][first:])


def steps(kind: type[nn.Module], plan: Plan, options: Mapping[str, Any]) -> None:
    """Train for two steps, with inputs of different sizes."""
    with join(20) as world:
        model = seeded(kind)
        with PlannedBackend(model, plan, SGD(model.parameters(), lr=0.1), world) as backend:
            compiled = torch.compile(model, backend=backend, **options)
            for step in range(2):
                loss_of(compiled(make_inputs("perceptron", 0, step, 4 + step)), 0, 0).backward()
                backend.step()


def refused(kind: type[nn.Module], plan: Plan, options: Mapping[str, Any]) -> str:
    """Return what a plan is refused with."""
    with pytest.raises(PlannerError) as error:
        steps(kind, plan, options)
    return f"{type(error.value).__name__}: {error.value}"


def without_dependences(profile: Profile) -> Profile:
    """Return a profile that knows nothing of what its operations need."""
    graph = profile.dataflow()
    first = next(op.name for op in graph.ops if op.phase == "forward")
    ops = (replace(op, after=(first,) if op.phase == "backward" else ()) for op in graph.ops)
    return replace(profile, graph=Graph(tuple(ops), graph.parameters))


@pytest.mark.slow
def test_what_cannot_be_followed_is_refused() -> None:
    profile = profile_of(Branches)
    order = list(last_first(profile))
    problem = problem_of(profile)
    names = [parameter.name for parameter in problem.graph.parameters]
    good = plan_of(problem, [names])
    early = plan_of(problem_of(profile_of(Cut)), [names[:2], names[-2:], names[2:-2]])
    swapped = plan_of(problem_of(without_dependences(profile), op_order=order[::-1]), [names])
    reasons = {
        name: values(launch(refused, 1, *arguments))[0]
        for name, arguments in {
            "order": (Branches, swapped, {"dynamic": False}),
            "dynamic": (Branches, good, {}),  # which torch tries for the second size
            "cut": (Cut, early, {"dynamic": False}),
        }.items()
    }
    assert "which it depends on" in reasons["order"]
    assert reasons["order"].startswith("InvalidPlanError")
    assert "dynamic shapes" in reasons["dynamic"]
    assert reasons["dynamic"].startswith("InvalidInputError: model")
    assert "cannot keep to the plan's order (it is cut by" in reasons["cut"]
    assert "graph_break" in reasons["cut"]
