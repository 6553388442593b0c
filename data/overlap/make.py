"""Makes `two-layers.json`: the forward graph of two layers of a Transformer, sharded over 8 ranks.

    python data/overlap/make.py

The model is written by hand with functional collectives: weights are gathered layer by layer, as
FSDP does, over one group, and activations are summed up over another, as tensor parallelism does.
No GPU is there: computation takes what an H100's data sheet says of its operations and bytes (989
TFLOPS bfloat16, 3350 GB/s), and a transfer 20 µs and its bytes over 100 GB/s: an assumption.
"""

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

from planner.families.overlap import evaluate, own_order, with_limit
from planner.formats.importers.fx import problem_of
from planner.jsonio.graphs import decode_fx
from planner.jsonio.overlap import encode_request
from planner.profiling.fx import collective_name, fx_document

RANKS, WIDTH, TOKENS = 8, 4096, 8192
GBPS, FLOPS_PER_NS = 3350, 989_000


def layers(x: Any, *shards: Any) -> Any:
    """Compute two layers of a feed-forward network with residuals."""
    weights, tensor = GROUPS["weights"], GROUPS["tensor"]
    for up, down in zip(shards[::2], shards[1::2], strict=True):
        wide = torch.relu(x @ funcol.all_gather_tensor(up, 0, weights))
        part = wide @ funcol.all_gather_tensor(down, 0, weights)
        x = x + funcol.all_reduce(part, "sum", tensor)
    return x


def node_ns(node: Any) -> float:
    """Return the longer of the time to compute, and to read and write."""
    if "view" in str(node.target) or "getitem" in str(node.target):
        return 0.0
    tensors = [other.meta["val"] for other in (*node.all_input_nodes, node)]
    moved = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    flops = 0.0
    if "mm" in str(node.target):
        rows, inner = tensors[0].shape
        flops = 2.0 * rows * inner * tensors[1].shape[1]
    return float(max(flops / FLOPS_PER_NS, moved / GBPS))


def collective_ns(node: Any, size: int) -> float:
    """Return the time of a transfer with so many bytes of its input."""
    moved = size * (RANKS - 1) if "gather" in collective_name(node) else 2 * size * 7 / 8
    return 20_000 + moved / 100


GROUPS: dict[str, Any] = {}


def main() -> None:
    """Write the request."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    GROUPS["weights"] = dist.new_group(list(range(RANKS)))
    GROUPS["tensor"] = dist.new_group(list(range(RANKS)))
    with FakeTensorMode():
        half: dict[str, Any] = {"dtype": torch.bfloat16}
        inputs = [torch.empty(TOKENS, WIDTH, **half)]
        for _ in range(2):
            inputs += [
                torch.empty(WIDTH // RANKS, WIDTH // 2, **half),
                torch.empty(WIDTH // 2 // RANKS, WIDTH, **half),
            ]
        graph = make_fx(layers, tracing_mode="fake")(*inputs).graph
    document = fx_document(
        graph,
        node_ns=node_ns,
        collective_ns=collective_ns,
        copy_gbps=GBPS,
        samples=[2**20, 2**26],
    )
    problem = problem_of(decode_fx(json.dumps(document).encode()))
    peak = evaluate(problem, own_order(problem)).peak_bytes
    output = Path(__file__).parent / "two-layers.json"
    output.write_text(encode_request(with_limit(problem, peak)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
