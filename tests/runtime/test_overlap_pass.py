"""A plan of `overlap`, imposed on the graphs of a small Transformer that is sharded by hand."""

import operator
from functools import partial
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, distributed, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.distributed import _functional_collectives as collectives
from torch.fx import Graph, GraphModule
from torch.nn import functional

from planner.families import overlap
from planner.formats.importers.fx import problem_of
from planner.jsonio import decode_answer
from planner.jsonio.graphs import FxDocument
from planner.jsonio.overlap import OverlapAnswer, answer
from planner.model.errors import InvalidPlanError
from planner.profiling.fx import fx_document, operations
from planner.runtime.overlap_pass import impose_overlap
from planner.runtime.world.world import World
from tests.runtime.jobs import in_each_rank

WIDTH = 8


class Sharded(nn.Module):
    """A block of attention and two linear layers; each rank has some rows of every weight."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        torch.manual_seed(distributed.get_rank())
        rows = {"query": 1, "key": 1, "value": 1, "out": 1, "inner": 2, "outer": 1}
        self.shards = nn.ParameterDict(
            {
                name: nn.Parameter(
                    torch.randn(times * WIDTH // ranks, WIDTH * (name == "outer") + WIDTH)
                )
                for name, times in rows.items()
            }
        )

    def whole(self, name: str) -> Tensor:
        group: Any = distributed.group.WORLD
        gathered: Tensor = collectives.all_gather_single_autograd(self.shards[name], 0, group)
        return gathered

    def forward(self, hidden: Tensor) -> Tensor:
        query, key, value = (
            functional.linear(hidden, self.whole(name)) for name in ("query", "key", "value")
        )
        weights = torch.softmax(query @ key.transpose(-1, -2) / WIDTH**0.5, -1)
        hidden = hidden + functional.linear(weights @ value, self.whole("out"))
        inner = torch.tanh(functional.linear(hidden, self.whole("inner")))
        return hidden + functional.linear(inner, self.whole("outer"))


def planned(graph: Graph) -> tuple[overlap.Problem, Any]:
    """Return a plan of a graph, in which transfers last longer than what hides them."""
    document = fx_document(
        graph, node_ns=lambda _: 1_000, collective_ns=lambda _, size: 3_000 + 2 * size
    )
    problem = problem_of(msgspec.convert(document, FxDocument))
    return problem, overlap.solve(problem, method="search", time_limit=0.5)


@pytest.mark.slow
@in_each_rank()
def test_planned_order_and_merging_compute_the_same(world: World) -> None:
    """The model runs as it is, and as planned."""
    orders: list[tuple[Any, ...]] = []

    def compiled(impose: bool, module: GraphModule, _: Any) -> Any:
        if impose:
            # A plan that is made in a limited time may be another one on each rank. While torch
            # compiles, only the store can be used.
            made = b"" if world.rank else msgspec.json.encode(answer(*planned(module.graph)))
            text = world.gather(f"plan {len(orders)}", made.decode())[0].encode()
            document, _ = decode_answer(text)
            assert isinstance(document, OverlapAnswer)
            names = [node.name for node in document.nodes]
            before = [node.name for node in operations(module.graph)]
            impose_overlap(module.graph, text)
            module.recompile()
            assert isinstance(document.merged, tuple)
            assert isinstance(document.order, tuple)
            merged = (document.collectives[m] for members in document.merged for m in members)
            starts = {names[one.start] for one in merged}
            wanted = [names[node] for node in document.order]
            after = operations(module.graph)
            apart = [node.name for node in after if node.name in before]
            assert apart == [name for name in wanted if name not in starts]
            orders.append((before, wanted, document.merged, str(module.graph)))
        return make_boxed_func(module.forward)

    results = []
    for impose in (False, True):
        model = Sharded(world.size)
        torch._dynamo.reset()
        backend = aot_autograd(fw_compiler=partial(compiled, impose))
        called = torch.compile(model, backend=backend, dynamic=False)
        torch.manual_seed(world.rank + 10)
        outputs = called(torch.randn(3, 5, WIDTH))
        outputs.square().mean().backward()
        results.append([outputs.detach(), *(p.grad for p in model.parameters())])
    assert all(map(torch.equal, *results))
    world.agree("the orders", repr(orders))
    assert len(orders) == 2  # forward and backward
    assert any(before != wanted for before, wanted, _, _ in orders)
    assert any(merged for _, _, merged, _ in orders)
    assert any("coalesced" in text for *_, text in orders)


@pytest.mark.parametrize(
    ("names", "order", "message"),
    [
        (("neg", "abs_1", "neg_1"), (1, 0, 2), "which it depends on"),
        (("other",), (0,), r"has no .*other"),
    ],
)
def test_plans_of_other_graphs_and_orders_that_break_dependences_are_refused(
    names: tuple[str, ...], order: tuple[int, ...], message: str
) -> None:
    graph = Graph()
    node = graph.placeholder("x")
    for target in (operator.neg, operator.abs, operator.neg):  # in line
        node = graph.call_function(target, (node,))
    graph.output((node,))
    problem = overlap.Problem(nodes=[overlap.Node(name) for name in names])
    with pytest.raises(InvalidPlanError, match=message):
        impose_overlap(graph, (problem, overlap.Plan(order)))
