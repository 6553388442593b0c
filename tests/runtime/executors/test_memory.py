"""How much memory executors hold, counted in the storages of all tensors."""

import gc
import warnings

import pytest
import torch
from torch import Tensor, nn

from planner.programs import Batch, Piece, ShardProgram
from planner.runtime.executors.base import Executor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.launching import launch, values
from tests.runtime.sharing import executor_of

WIDTH = 1024


def held() -> int:
    """Return the bytes of all storages that tensors of this process have."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of objects that dislike to be looked at
        tensors = [tensor for tensor in gc.get_objects() if isinstance(tensor, Tensor)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors}
    return sum(storage.nbytes() for storage in storages.values())


def attached(kind: str, model: nn.Module, updates: torch.optim.Optimizer, world: World) -> Executor:
    pieces = [Piece(name) for name, _ in model.named_parameters()]
    if kind == "bigdl":
        return executor_of("slices", model, updates, world)
    width = 2 if kind == "ibatch" else len(pieces)
    starts = range(0, len(pieces), width)
    batches = tuple(Batch(tuple(pieces[start : start + width])) for start in starts)
    return ShardExecutor(model, ShardProgram.pushes_first(batches, batches), updates, world)


def hold(kind: str) -> float:
    """Return what is held at the end of a backward pass under Adam, over the parameters."""
    with join() as world:
        before = held()
        model: nn.Module = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
        size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
        updates = torch.optim.Adam(model.parameters())
        executor = attached(kind, model, updates, world)
        for _ in range(2):
            model(torch.ones(1, WIDTH)).sum().backward()
            executor.step()
        model(torch.ones(1, WIDTH)).sum().backward()
        most_held = held() - before
        executor.close()
        return most_held / size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ranks", "most"),
    [
        # Parameters, gradients, state and mean of 1/N, and room for two messages.
        ("ibatch", 2, 2 + 3 / 2 + 2 / 8),
        ("one batch", 2, 2 + 3 / 2 + 2 / 8),
        ("bigdl", 2, 2 + 5 / 2),
    ],
)
def test_shards_save_memory(kind: str, ranks: int, most: float) -> None:
    assert most < 5  # DDP: parameters, gradients, buckets, and a state of two numbers for each
    for share in values(launch(hold, ranks, kind)):
        assert 2 < share < most + 0.05
