"""A script that shards block by block, as torchtitan's do, and the same with the units of a plan.

torchrun --nproc-per-node 2 examples/with_fsdp2.py
"""

import gc
from typing import Any

import msgspec
import torch
from example_job import make_batches, make_model, options_of, show, train
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from planner import TableCost, fsdp
from planner.jsonio.fsdp import answer
from planner.model.fitting import fit_network
from planner.profiling import measure
from planner.programs import program_of
from planner.runtime import World, join, measure_network
from planner.runtime.fsdp2 import as_fsdp2

SIZES = (64, 4096, 65536, 2**20, 4 * 10**6)


def planned(model: nn.Module, inputs: Any, world: World) -> bytes:
    """Return the units of rank 0's profile over the network as it is, the same on all ranks."""
    profile = measure(model, inputs, name="example", source="", repetitions=5)
    layers = profile.chain().layers

    def cost(collective: Any) -> TableCost:
        sweep = measure_network(world, collective, sizes=SIZES, repetitions=3)
        return fit_network(sweep).by_depth[0][1].table

    gather, scatter = cost("all_gather"), cost("reduce_scatter")
    problem = fsdp.Problem(
        forward_ns=[layer.forward_ns for layer in layers],
        backward_ns=[layer.backward_ns for layer in layers],
        parameter_bytes=[layer.parameter_bytes for layer in layers],
        meshes=[fsdp.Mesh(shards=world.size, all_gather=gather, reduce_scatter=scatter)],
        names=[layer.name for layer in layers],
    )
    text = msgspec.json.encode(answer(problem, fsdp.solve(problem, time_limit=10))).decode()
    return world.gather("the plan", text)[0].encode()


def by_blocks(model: Any, mesh: Any) -> nn.Module:
    """Shard as the documentation of FSDP2 does."""
    for block in model:
        if isinstance(block, nn.Linear):
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    sharded: nn.Module = model
    return sharded


def main() -> None:
    """Train both ways."""
    steps = options_of().steps
    with join(60) as world:
        program = program_of(planned(make_model(), make_batches(0, 1)[0][:1], world))
        mesh = init_device_mesh("cpu", (world.size,))
        batches, ends = make_batches(world.rank, steps), []
        for shard in (by_blocks, lambda model, mesh: as_fsdp2(model, program, mesh)):
            model = shard(make_model(), mesh)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)  # of the shards
            ends.append(train(model, optimizer, batches))
        show(world.rank, ends[0], ends[1], "FSDP2, block by block")
        del model, optimizer  # before the group it uses
        gc.collect()
        distributed.barrier()


if __name__ == "__main__":
    main()
