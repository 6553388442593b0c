"""Which outputs of a network's operations autograd keeps for the backward pass.

Problem: adding up all outputs counts a convolution, its batch normalisation and its activation
three times, where two tensors are kept. Method: PyTorch's rules by kind of operation. An output is
kept, once, if the operation's own gradient is computed from it (ReLU, sigmoid, softmax, recurrent
layers), an operation that reads it needs its input (also through views), or nothing reads it but
the loss. The rules by kind: docs/profiles.md, "Which outputs are kept".
Guarantee: none for other frameworks, fused kernels, or the inside of composite modules. On a CPU
dropout's mask is as large as its output.
Complexity: O(operations + links).
Source: PyTorch's notes on autograd and its formulas of gradients; the rest is own.
"""

from collections.abc import Iterable, Sequence

VIEWS = (
    "View",
    "Size",
    "Flatten",
    "Identity",
    "Reshape",
    "Transpose",
    "Permute",
    "Squeeze",
    "Unsqueeze",
    "Expand",
    "Narrow",
    "Select",
    "Chunk",
    "Split",
    "Unbind",
    "__getitem__",
)
"""Kinds that compute nothing: their output is a part of their input."""
_FROM_OUTPUT = ("ReLU", "Sigmoid", "Tanh", "Softmax", "LogSoftmax")
_BY_OUTPUT = (*_FROM_OUTPUT, "LSTM", "GRU", "RNN")
_NEED_NO_INPUT = (
    *_FROM_OUTPUT,
    "Dropout",
    "Dropout2d",
    "Add",
    "Sub",
    "Concat",
    "Embedding",
    "ZeroPad2d",
)
_ELEMENT_BYTES = 4
_BESIDE = {"Dropout": 1, "MaxPool2d": 8}
"""Bytes per output element that are kept in addition: a mask, or positions of maxima."""


def kept_bytes(
    kinds: Sequence[str], sizes: Sequence[int], links: Iterable[tuple[int, int]]
) -> tuple[int, ...]:
    """Return the bytes that each operation keeps.

    `kinds` are such as ``Conv2d``, `sizes` those of the outputs (bytes, elements of four), in order
    of computation; `links` are pairs (producer, consumer) with producer < consumer.
    """
    readers: list[list[int]] = [[] for _ in kinds]
    for producer, consumer in links:
        readers[producer].append(consumer)
    needed = [False] * len(kinds)  # whether a reader's gradient is computed from the output
    for place in reversed(range(len(kinds))):
        needed[place] = not readers[place] or any(
            needed[reader] if kinds[reader] in VIEWS else kinds[reader] not in _NEED_NO_INPUT
            for reader in readers[place]
        )
    return tuple(
        0
        if kind in VIEWS
        else (size if own or kind in _BY_OUTPUT else 0)
        + size * _BESIDE.get(kind, 0) // _ELEMENT_BYTES
        for kind, size, own in zip(kinds, sizes, needed, strict=True)
    )
