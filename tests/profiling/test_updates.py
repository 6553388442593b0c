"""What an optimiser's updates take, as ops of a graph."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch
from torch import nn
from torch.optim import SGD

from planner.model.graphs import Graph
from planner.profiling import measure
from planner.profiling.measuring import with_updates
from tests.caramel.graph_strategies import graphs


@given(graphs(), st.integers(0, 10**6))
def test_updates_come_before_what_reads_them_and_take_their_time(
    graph: Graph, step_ns: int
) -> None:
    updated = with_updates(graph, step_ns)
    assert [op for op in updated.ops if not op.name.endswith(":update/forward")] == [
        op if op.phase == "backward" else updated.ops[updated.position[op.name]] for op in graph.ops
    ]
    before, after = (sum(op.duration_ns for op in one.ops) for one in (graph, updated))
    assert after - before == step_ns
    order = [updated.ops[index].name for index in updated.pass_order("forward")]
    assert [name for name in order if not name.endswith(":update/forward")] == [
        graph.ops[index].name for index in graph.pass_order("forward")
    ]
    for parameter in updated.parameters:
        first, *readers = parameter.read_by
        assert first.endswith(":update/forward")
        assert all(order.index(first) < order.index(reader) for reader in readers)


def test_a_profile_has_the_updates_and_the_model_has_not() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    profile = measure(
        model,
        (torch.ones(3, 4),),
        name="little",
        source="here",
        repetitions=2,
        optimizer=lambda parameters: SGD(parameters, lr=1.0),
    )
    assert profile.graph is not None
    names = [op.name for op in profile.graph.ops if op.phase == "forward"]
    assert [name for name in names if "update" in name] == ["0:update/forward", "1:update/forward"]
    assert names.index("0:update/forward") < names.index("0/forward")
    assert all(map(torch.equal, weights, model.parameters()))
    assert all(parameter.grad is None for parameter in model.parameters())
