"""Real traces of PyTorch's profiler, recorded here, against the models and jobs they are of.

Buckets and units that are found in those of jobs over gloo are those of DDP and FSDP2.
"""

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

from planner.cli.export import settings_for
from planner.cli.tune import proposed
from planner.formats import read_kineto
from planner.formats.importers.kineto_recorded import recorded_in
from planner.formats.importers.kineto_trace import Trace, read_trace
from planner.formats.importers.kineto_units import units_in
from planner.jsonio import fsdp
from planner.runtime.world.world import World
from planner.traces.proposals import waited_for
from planner.traces.recorded import Recorded
from planner.view.tuned_text import verdict_of
from tests.profiling.models import Model, frozen
from tests.runtime.jobs import in_each_rank
from tests.runtime.reference import backward, make_model, make_optimizer

NAME = "convolutions"


def traced(world: World, model: Any, run: Callable[[int], None], folder: Path) -> list[bytes]:
    """Train, each step's passes by `run`, and return the traces of all ranks."""
    optimizer = make_optimizer("sgd", model)
    plan = schedule(wait=2, warmup=1, active=2)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True) as profiler:
        for step in range(5):
            optimizer.zero_grad()
            run(step)
            optimizer.step()
            profiler.step()
    path = folder / f"rank{world.rank}.json"
    profiler.export_chrome_trace(str(path))
    return [text.encode() for text in world.gather("the traces", path.read_text("utf-8"))]


def read(traces: list[bytes]) -> tuple[list[Recorded], Trace]:
    """Return the recordings, and the trace of the rank that the others wait for."""
    jobs = [recorded_in(read_trace(data), place) for place, data in enumerate(traces)]
    return jobs, read_trace(traces[jobs.index(waited_for(jobs))])


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@in_each_rank("ranks", timeout_s=120)
def test_buckets_are_those_that_ddp_was_given(world: World, ranks: int, tmp_path: Path) -> None:
    """Each gradient apart, some together, or all: beside the all-reduce of a loss."""
    loss = torch.zeros(())
    for limit, rebuilt in ((1, True), (300, True), (10**6, True), (300, False)):
        model = make_model(NAME)
        limits: Any = [limit / 2**20] * len(list(model.parameters()))
        parallel = DistributedDataParallel(
            model, bucket_cap_mb_list=limits, find_unused_parameters=not rebuilt
        )

        def run(step: int, parallel: Any = parallel) -> None:
            backward(parallel, NAME, world.rank, step)
            distributed.all_reduce(loss)

        traces = traced(world, parallel, run, tmp_path)
        if world.rank:
            continue
        jobs, trace = read(traces)
        assert [job.ranks for job in jobs] == [ranks] * ranks
        _, proposal = proposed(jobs, trace)
        key = "rebuilt_bucket_sizes" if rebuilt else "bucket_sizes"
        sizes = parallel._get_ddp_logging_data()[key].split(",")
        assert proposal.buckets == tuple(map(int, sizes))
        assert len(proposal.buckets) == {1: 7, 300: 4 if rebuilt else 3, 10**6: 1}[limit]
        assert proposal.steps == 2
        assert sum(proposal.proposed) == sum(proposal.buckets)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@in_each_rank("ranks", timeout_s=120)
def test_units_are_those_that_fsdp2_was_given(world: World, ranks: int, tmp_path: Path) -> None:
    """One module, two that are kept, one, and the rest: beside the all-reduce of a loss."""

    def make() -> nn.Module:
        return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise([12, 48, 24, 36, 16, 8])))

    model: Any = make()
    mesh, loss = init_device_mesh("cpu", (world.size,)), torch.zeros(())
    groups: list[list[nn.Module]] = [[model[1]], [model[2], model[3]], [model[4]]]
    sizes = [4 * sum(p.numel() for each in group for p in each.parameters()) for group in groups]
    for place, group in enumerate(groups):
        fully_shard(group, mesh=mesh, reshard_after_forward=place != 1)
    fully_shard(model, mesh=mesh)

    def run(_: int) -> None:
        model(torch.ones(4, 12)).square().sum().backward()
        distributed.all_reduce(loss)

    jobs, trace = read(traced(world, model, run, tmp_path))
    found = units_in(trace.ranges, waited_for(jobs))
    assert [unit.name for unit in found.units] == ["1", "2, 3", "4"]
    assert [unit.backward_at for unit in found.units] == [4, None, 3]
    assert [unit.parameter_bytes for unit in found.units] == sizes
    assert [unit.gradient_bytes for unit in found.units] == sizes
    assert found.own_bytes == (4 * 13 * 48, 4 * 13 * 48)
    _, proposal = proposed(jobs, trace, spare_bytes=10**6)
    assert proposal.buckets == tuple(sizes)
    assert sum(proposal.proposed) == sum(sizes)
    assert proposal.steps == 2

    # What is to be pasted makes the units that were planned.
    settings = settings_for("fsdp2", [fsdp.answer(*proposal.planned)], None, 4) | {"settings": {}}
    code = verdict_of(proposal, settings).settings
    model = make()
    exec(world.gather("the code", code)[0], {"model": model, "fully_shard": fully_shard})
    units = zip(proposal.proposed, proposal.plan.units, strict=True)
    kept = [(size, unit.keep) for size, unit in units]
    plan = json.loads(world.gather("the plan", json.dumps(kept))[0])
    jobs, trace = read(traced(world, model, run, tmp_path))
    found = units_in(trace.ranges, waited_for(jobs))
    assert [[unit.parameter_bytes, unit.backward_at is None] for unit in found.units] == plan


# ---
# One process, and its model.


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
    listed = {id(one): one.nbytes for one in reads if one.requires_grad}
    assert sizes == list(listed.values())
    assert sum(layer.parameter_bytes for layer in imported.layers) == sum(sizes)
