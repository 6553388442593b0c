"""Caramel's five networks as the paper counts them: tensors and MiB of TF-Slim, op times measured.

The shipped profiles are PyTorch's networks. Three of them have more tensors than the paper's: a
convolution is followed by a normalisation with a scale and a shift, and by no bias. TF-Slim's have

- Inception-v3: normalisations without a scale (196 tensors);
- ResNet-v1-50: one vector behind each convolution (108 tensors);
- ResNet-v2-152: one vector behind each convolution, which is its bias, and 51 normalisations
  without a scale, one before each of the 50 blocks and one behind the last (363 tensors).

So scales are dropped. In ResNet-152 the scale of a block's first normalisation stands for the shift
of the one before the block, and takes its size, the channels that enter the block; the scale of the
very last one stands for the one behind all blocks. Ops and their times stay: what a scale costs to
apply is nothing beside a convolution. Tensors and MiB come out as the paper prints them, which
`tests/reproduction` checks.
"""

import re
from dataclasses import replace

from planner.model.graphs import Graph

PRINTED = {
    "alexnet_v2": (16, 191.9),
    "inception_v3": (196, 103.5),
    "resnet50": (108, 97.4),
    "resnet152": (363, 229.5),
    "vgg16": (32, 527.8),
}
"""Tensors and MiB of each network, from §6 of the paper."""

_SCALE = re.compile(r"norm\d*\.weight$")
_FIRST_OF_BLOCK = re.compile(r"(block\d+_\d+)\.body\.conv1\.norm\.weight$")


def as_printed(name: str, graph: Graph) -> Graph:
    """Return the dataflow graph of a shipped profile with the paper's tensors.

    Parameters
    ----------
    name : str
        Name of the profile.
    graph : Graph
        Its dataflow graph.
    """
    scales = [scale.name for scale in graph.parameters if _SCALE.search(scale.name)]
    kept: dict[str, int] = {}
    if name == "resnet152":
        sizes = {parameter.name: parameter.size_bytes for parameter in graph.parameters}
        kept = {**_before_blocks(scales, sizes), scales[-1]: sizes[scales[-1]]}
    parameters = [
        replace(parameter, size_bytes=kept.get(parameter.name, parameter.size_bytes))
        for parameter in graph.parameters
        if parameter.name in kept or parameter.name not in scales
    ]
    return Graph(graph.ops, tuple(parameters))


def _before_blocks(scales: list[str], sizes: dict[str, int]) -> dict[str, int]:
    """Return the size of the shift before each block, by the scale that stands for it."""
    entering = sizes["features.conv1.norm.weight"]
    found = {}
    for scale in scales:
        if match := _FIRST_OF_BLOCK.search(scale):
            found[scale] = entering
            entering = sizes[f"features.{match[1]}.body.conv3.norm.weight"]
    return found
