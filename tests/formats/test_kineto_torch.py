"""Real traces of PyTorch's profiler, recorded here, against the models they are of."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, schedule

from planner.formats import read_kineto
from tests.profiling.models import Model, frozen


def convolutional() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, bias=False),
        nn.Flatten(),
        nn.Linear(6 * 4 * 4, 5),
    )
    return model.double(), torch.randn(2, 3, 8, 8).double()


def scores(m: Any, words: Tensor) -> Any:
    found = m.frozen(m.embedding(words))
    return m.output(found + m.second(m.first(m.norm(found)).relu()))


def tied() -> tuple[nn.Module, Tensor]:
    """A residual block, listed in another order than read, between twice the same weight."""
    embedding, output = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
    output.weight = embedding.weight
    block: Any = {"norm": nn.LayerNorm(8), "second": nn.Linear(12, 8), "first": nn.Linear(8, 12)}
    model = Model(scores, output=output, **block, frozen=nn.Linear(8, 8), embedding=embedding)
    return frozen(model, "frozen"), torch.randint(0, 20, (2, 5))


@pytest.mark.slow
@pytest.mark.parametrize("make", [convolutional, tied])
def test_parameters_and_their_orders_are_those_of_the_model(
    make: Callable[[], tuple[nn.Module, Tensor]], tmp_path: Path
) -> None:
    model, data = make()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    completed: list[int] = []
    for one in trained:
        hook: Any = one.register_post_accumulate_grad_hook
        hook(lambda one: completed.append(one.nbytes))
    reads: list[Tensor] = []
    for module in model.modules():
        module.register_forward_pre_hook(lambda module, _: reads.extend(module.parameters(False)))
    file = tmp_path / "trace.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(file)),
    ) as profiler:
        for _ in range(3):
            completed.clear()
            model(data).square().mean().backward()
            model.zero_grad()
            profiler.step()
    imported, warnings = read_kineto(file.read_bytes(), name="m", source="trace.json")
    assert warnings == ()
    assert imported.provenance.repetitions == 2
    graph = imported.graph
    assert graph is not None
    sizes = [parameter.size_bytes for parameter in graph.parameters]
    assert Counter(sizes) == Counter(one.nbytes for one in trained)
    # Gradients are complete in the order in which autograd called the hooks; those behind one op,
    # in any order.
    places = [graph.position[parameter.updated_by[0]] for parameter in graph.parameters]
    in_order = zip(sorted(places), completed, strict=True)
    assert sorted(in_order) == sorted(zip(places, sizes, strict=True))
    # They are listed in the order of reading.
    read = {id(one): one.nbytes for one in reads if one.requires_grad}
    assert sizes == list(read.values())
    assert sum(layer.parameter_bytes for layer in imported.layers) == sum(sizes)
