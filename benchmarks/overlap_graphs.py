"""Public graphs of PyTorch's AutoParallel project, as documents that ``planner import fx`` reads.

Its overlap simulator (github.com/meta-pytorch/autoparallel, BSD-3, `autoparallel/tools/
overlap_simulator`) keeps graphs as Python modules, which are run here with fake tensors: only do so
with a copy you trust. Collectives take what the table that the module names says for their group;
where it has no row for the group's size, what Inductor's analytical model says. Computation takes
what Inductor's roofline says for an H100 SXM (data sheet: 989 TFLOPS bfloat16, 67 TFLOPS float32,
3350 GB/s).

    python benchmarks/overlap_graphs.py CHECKOUT/autoparallel/tools/overlap_simulator NAME -o FILE
"""

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch._subclasses.fake_impls
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from planner.profiling.fx import collective_name, fx_document

GBPS = 3350.0
TFLOPS = {torch.bfloat16: 989.0, torch.float16: 989.0, torch.float32: 67.0}
MIB = 2**20
TOKENS = 512
"""What a number read from a tensor is: the tokens of a pair of ranks, as in the backward graphs."""
Table = dict[tuple[str, int, str], list[tuple[int, float]]]


class Inputs:
    """What a module's `load_args` asks for its arguments, made without memory."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self.args: list[Any] = []

    def storage(self, _: Any, size: int, *, device: Any = None, **__: Any) -> Any:
        """Return a tensor of so many bytes."""
        with self.mode:
            return torch.empty(size, dtype=torch.uint8, device=device or "cpu")

    def tensor(
        self,
        storage: Any,
        shape: Any,
        stride: Any = None,
        *,
        storage_offset: int = 0,
        dtype: torch.dtype = torch.float32,
        **_: Any,
    ) -> None:
        """Add a tensor that shares one."""
        with self.mode:
            stride = stride or torch.empty(shape, device="meta").stride()
            self.args.append(storage.view(dtype).as_strided(shape, stride, storage_offset))

    def symint(self, value: int) -> None:
        """Add a number."""
        self.args.append(value)


def start_groups(groups: dict[str, dict[str, int]]) -> None:
    """Make process groups of the given names and sizes that transfer nothing."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    world = max(group["size"] for group in groups.values())
    dist.init_process_group(backend="fake", rank=0, world_size=world, store=FakeStore())
    whole = dist.distributed_c10d._get_default_group()
    made = {
        name: whole if group["size"] == world else dist.new_group(list(range(group["size"])))
        for name, group in groups.items()
    }
    registry: Any = torch._C._distributed_c10d
    registry._unregister_all_process_groups()
    for name, group in made.items():
        registry._register_process_group(name, group)


def without_gpu() -> Any:
    """Have a fake tensor of a GPU copied without one: only the method itself asks for it."""

    def copy(into: Any, source: Any, non_blocking: bool = False) -> Any:
        return torch.ops.aten.copy_.default(into, source, non_blocking)

    return patch.object(torch.Tensor, "copy_", copy)


def load(folder: Path, name: str) -> tuple[Any, Any]:
    """Return a public module, and its graph with fake tensors."""
    sys.path.insert(0, str(folder))
    module = importlib.import_module(f"repro_{name}")
    start_groups(module.get_pg_config())
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    inputs = Inputs(mode)
    module.load_args(inputs)
    scalars = {torch.ops.aten._local_scalar_dense.default: lambda *_: TOKENS}
    known = patch.dict(torch._subclasses.fake_impls.op_implementations_dict, scalars)
    with torch.no_grad(), mode, without_gpu(), known:
        return module, make_fx(module.Repro(), tracing_mode="fake")(*inputs.args)


def read_table(path: Path) -> Table:
    """Return the rows of a table of collective times: bytes and milliseconds."""
    lines = path.read_text().splitlines()
    sizes = [int(word.removesuffix("MB")) * MIB for word in lines[0].split() if word.endswith("MB")]
    rows: Table = {}
    for line in lines[2:]:
        words = line.split()
        if len(words) >= 3 + len(sizes):
            times = map(float, words[3 : 3 + len(sizes)])
            rows[words[0], int(words[1]), words[2]] = list(zip(sizes, times, strict=True))
    return rows


class Times:
    """The times of a public graph's nodes."""

    def __init__(self, module: Any, folder: Path) -> None:
        from torch._inductor.fx_passes.overlap_scheduling import estimate_roofline_runtime_ms

        self.roofline = estimate_roofline_runtime_ms
        self.groups = module.get_pg_config()
        self.table = read_table(folder / module.get_colls_estimations_file())
        mapping: dict[str, str] = getattr(module, "get_colls_group_mapping", dict)()
        self.table_group = {name: mapping.get(name, name) for name in self.groups}
        self.mapped = bool(mapping)
        self.analytical: set[str] = set()

    def node_ns(self, node: Any) -> float:
        """Return how long a node computes."""
        with (
            patch("torch.utils._runtime_estimation.get_gpu_dram_gbps", lambda: GBPS),
            patch(
                "torch.utils._runtime_estimation.get_device_tflops",
                lambda dtype: TFLOPS.get(dtype, 67.0),
            ),
        ):
            return self.roofline(node) * 1e6

    def collective_ns(self, node: Any, size: int) -> float:
        """Return how long a transfer like that of a node takes for so many bytes."""
        from torch._inductor.comm_analysis import estimate_nccl_collective_runtime_from_fx_node
        from torch._inductor.fx_passes.overlap_scheduling import get_group_name

        group, name = get_group_name(node), collective_name(node)
        for (other, ranks, kind), points in self.table.items():
            fits = self.mapped or ranks == self.groups[group]["size"]
            if other == self.table_group[group] and kind == name and fits:
                return _interpolated(points, size) * 1e6
        self.analytical.add(f"{name} of group {group}")
        # The model is of the whole tensor, the table and the document of the rank's part.
        whole = size * self.groups[group]["size"] if name.startswith("all_gather") else size
        return estimate_nccl_collective_runtime_from_fx_node(node, max(whole, 1)) * 1e6


def _interpolated(points: list[tuple[int, float]], size: int) -> float:
    if size <= points[0][0]:
        return points[0][1]
    place = 1
    while place < len(points) - 1 and points[place][0] < size:
        place += 1
    (low, begin), (high, end) = points[place - 1], points[place]
    return begin + (end - begin) * (size - low) / (high - low)


def document_of(folder: Path, name: str) -> tuple[dict[str, Any], Any, Times]:
    """Return the document of a public graph, the graph, and its times."""
    module, graph_module = load(folder, name)
    times = Times(module, folder)
    samples = [MIB << power for power in range(12)]
    document = fx_document(
        graph_module.graph,
        node_ns=times.node_ns,
        collective_ns=times.collective_ns,
        copy_gbps=GBPS,
        samples=samples,
    )
    return document, graph_module, times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("name", help="such as llama3_8b_fw_64_2d")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    document, _, times = document_of(options.folder, options.name)
    options.output.write_text(json.dumps(document))
    print(f"{options.name}: {len(document['nodes'])} nodes")
    for what in sorted(times.analytical):
        print(f"  times of Inductor's analytical model: {what}")


if __name__ == "__main__":
    main()
