"""Buckets found in real traces of jobs over gloo, recorded here, against those of DDP."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

from planner.cli.tune import proposed
from planner.formats.importers.kineto_recorded import recorded_in
from planner.formats.importers.kineto_trace import read_trace
from planner.model.errors import NotApplicableError
from planner.runtime.world.world import World
from planner.traces.recorded import Recorded
from planner.traces.tuning import waited_for
from tests.runtime.jobs import in_each_rank
from tests.runtime.reference import backward, make_model, make_optimizer

NAME = "convolutions"


def traced(world: World, model: Any, more: Callable[[], None], folder: Path) -> list[bytes]:
    """Train, and return the traces of all ranks."""
    optimizer = make_optimizer("sgd", model)
    plan = schedule(wait=2, warmup=1, active=2)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True) as profiler:
        for step in range(5):
            optimizer.zero_grad()
            backward(model, NAME, world.rank, step)
            more()
            optimizer.step()
            profiler.step()
    path = folder / f"rank{world.rank}.json"
    profiler.export_chrome_trace(str(path))
    return [text.encode() for text in world.gather("the traces", path.read_text("utf-8"))]


def recorded(traces: list[bytes]) -> list[Recorded]:
    return [recorded_in(read_trace(data), place) for place, data in enumerate(traces)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "limit", "rebuilt"), [(2, 1, True), (4, 300, True), (2, 10**6, True), (2, 300, False)]
)
@in_each_rank("ranks", timeout_s=120)
def test_buckets_are_those_that_ddp_was_given(
    world: World, ranks: int, limit: int, rebuilt: bool, tmp_path: Path
) -> None:
    """Each gradient apart, some together, or all: beside the all-reduce of a loss."""
    model = make_model(NAME)
    limits: Any = [limit / 2**20] * len(list(model.parameters()))
    parallel = DistributedDataParallel(
        model, bucket_cap_mb_list=limits, find_unused_parameters=not rebuilt
    )
    loss = torch.zeros(())
    traces = traced(world, parallel, lambda: distributed.all_reduce(loss), tmp_path)
    if world.rank:
        return
    jobs = recorded(traces)
    assert [job.ranks for job in jobs] == [ranks] * ranks
    _, proposal = proposed(jobs, read_trace(traces[jobs.index(waited_for(jobs))]))
    sizes = parallel._get_ddp_logging_data()["rebuilt_bucket_sizes" if rebuilt else "bucket_sizes"]
    assert proposal.buckets == tuple(map(int, sizes.split(",")))
    assert len(proposal.buckets) == {1: 7, 300: 4 if rebuilt else 3, 10**6: 1}[limit]
    assert proposal.steps == 2
    assert sum(proposal.proposed) == sum(proposal.buckets)


@pytest.mark.slow
@in_each_rank(timeout_s=120)
def test_what_fsdp_sends_is_no_bucket(world: World, tmp_path: Path) -> None:
    model = make_model(NAME)
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    traces = traced(world, model, lambda: None, tmp_path)
    with pytest.raises(NotApplicableError, match="FSDP2 shards the parameters"):
        proposed(recorded(traces), read_trace(traces[0]))
