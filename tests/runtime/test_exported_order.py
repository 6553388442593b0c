"""What `planner export` writes, set by hand in torch's own DDP and FSDP2: what travels in order."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

import planner
from planner.cli import main
from tests.runtime.launching import launch, values
from tests.runtime.test_ddp_export import in_job

WIDTHS = (12, 24, 16, 10, 6)
MODULES = tuple(str(2 * place) for place in range(len(WIDTHS) - 1))
STEPS = 3

Event = tuple[str, int]


def make_model() -> nn.Sequential:
    """Return layers no two of which, nor any neighbours together, are of one size."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in pairwise(WIDTHS):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers)


SIZES = {name: parameter.numel() for name, parameter in make_model().named_parameters()}


def dataflow() -> dict[str, Any]:
    """Return ops, each of which takes about as long as a transfer, and their parameters."""
    ops: list[dict[str, Any]] = []
    for phase, places in (("forward", MODULES), ("backward", MODULES[::-1])):
        for place in places:
            after = [ops[-1]["name"]] if ops else []
            ops.append({"name": f"{phase}{place}", "ns": 900, "pass": phase, "after": after})
    parameters = [
        {
            "name": name,
            "bytes": 4 * size,
            "updated_by": f"backward{name[0]}",
            "read_by": f"forward{name[0]}",
        }
        for name, size in SIZES.items()
    ]
    return {"ops": ops, "parameters": parameters}


def gradients(startup: int) -> dict[str, Any]:
    """Return a plan of gradients for DDP."""
    network = {"startup_ns": startup, "ns_per_byte": 1}
    request = {"problem": "caramel", "network": network, "workers": 2, "target": "ddp"}
    return planner.solve_or_raise({**request, **dataflow()})


def pulls(startup: int) -> dict[str, Any]:
    """Return a plan of pulls for FSDP2."""
    rows = [[f"{module}.weight", f"{module}.bias"] for module in MODULES]
    request = {
        "problem": "ibatch",
        "target": "fsdp2",
        "startup_ns": startup,
        "transfer_ns": [4 * sum(SIZES[name] for name in row) for row in rows],
        "compute_ns": [900] * len(MODULES),
        "layer_parameters": rows,
    }
    return planner.solve_or_raise(request)


class Recorder(TorchDispatchMode):
    """Notes what collectives are issued, and how many numbers each of them sends or fills."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.events: list[Event] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        namespace, _, name = func.name().partition("::")
        if namespace == "c10d" and name.startswith(("allreduce", "_allgather", "_reduce_scatter")):
            tensors = args[0] if isinstance(args[0], Sequence) else [args[0]]
            if name.startswith("_reduce_scatter"):
                tensors = [args[1]]
            self.events.append((name, sum(tensor.numel() for tensor in tensors)))
        return func(*args, **(kwargs or {}))


def recorded(model: nn.Module) -> list[list[Event]]:
    """Return what each step issues: the forward pass, the backward pass."""
    steps = []
    updates = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        with Recorder() as recorder:
            model(torch.ones(4, WIDTHS[0])).square().mean().backward()
        updates.step()
        updates.zero_grad()
        steps.append(recorder.events)
    return steps


def written(tool: str, plan: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return what `planner export` writes for a plan."""
    file, out = folder / "plan.json", folder / "out.json"
    file.write_text(json.dumps(plan))
    assert main(["export", tool, str(file), "--anyway", "-o", str(out)]) == 0
    settings: dict[str, Any] = json.loads(out.read_text())
    return settings


def reduced(caps: Any) -> list[list[Event]]:
    # The type that torch states for the list has whole numbers only.
    return recorded(DistributedDataParallel(make_model(), bucket_cap_mb_list=caps))


@pytest.mark.slow
@pytest.mark.parametrize("startup", [300, 1000])
def test_ddp_reduces_the_planned_buckets_in_order(startup: int, tmp_path: Path) -> None:
    plan = gradients(startup)
    groups = [group["parameters"] for group in plan["groups"]]
    assert 1 < len(groups) < len(SIZES)
    settings = written("ddp", plan, tmp_path)
    assert settings["buckets"] == groups
    planned = [("allreduce_", sum(SIZES[name] for name in group)) for group in groups]
    # DDP rebuilds its buckets after the first step.
    for _, *rest in values(launch(in_job, 2, reduced, settings["bucket_cap_mb_list"])):
        assert rest == [planned] * (STEPS - 1)


def gathered(settings: dict[str, Any]) -> list[list[Event]]:
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    model: nn.Module = make_model()
    for number in settings["shard_order"]:
        group = [model.get_submodule(name) for name in settings["groups"][number]]
        fully_shard(group, mesh=mesh, reshard_after_forward=False)
    sharded = fully_shard(model, mesh=mesh, reshard_after_forward=False)
    modules = [model.get_submodule(name) for name in settings["forward_prefetch"]]
    ahead: list[FSDPModule] = [module for module in modules if isinstance(module, FSDPModule)]
    assert len(ahead) == len(modules)
    sharded.set_modules_to_forward_prefetch(ahead)
    return recorded(model)


@pytest.mark.slow
@pytest.mark.parametrize(("startup", "layerwise"), [(300, True), (1000, False)])
def test_fsdp2_gathers_and_scatters_the_planned_units_in_order(
    startup: int, layerwise: bool, tmp_path: Path
) -> None:
    plan = pulls(startup)
    settings = written("fsdp2", plan, tmp_path)
    units = [
        [f"{module}.{what}" for module in group for what in ("weight", "bias")]
        for group in settings["groups"]
    ]
    assert (len(units) == len(MODULES)) == layerwise
    rows = [range(*batch) for batch in plan["batches"]]
    assert settings["groups"] == [[MODULES[layer] for layer in row] for row in rows]
    sizes = [sum(SIZES[name] for name in unit) for unit in units]
    planned = [("gather", size) for size in sizes]
    planned += [("scatter", size) for size in reversed(sizes)]
    for value in values(launch(in_job, 2, gathered, settings)):
        for step in value:
            names = [("gather" if "gather" in name else "scatter", size) for name, size in step]
            assert names == planned
