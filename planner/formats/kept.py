"""What of the outputs of a network's operations is kept for the backward pass.

Problem: a list of operations with the sizes of their outputs; which of these must stay in memory
until the backward pass? Adding up all outputs counts a convolution, its batch normalisation and its
activation function three times, where two tensors are kept.

Method: the rules of PyTorch's autograd, by kind of operation. An output is kept, once, if

- the operation's own gradient is computed from it (ReLU, sigmoid, softmax, recurrent layers), or
- some operation that reads it needs it (convolutions, matrix products, normalisations, pooling and
  every kind that is not known), also through views, or
- nothing reads it: the loss does.

Sums, concatenations, dropout and activation functions computed from their output need nothing of
what they read. Views have no memory of their own. Beside its output, dropout keeps a mask of one
byte an element, max-pooling the positions of its maxima in eight. In-place operations need no rule:
what they overwrite is by these rules not kept.

Guarantee: none for other frameworks, fused kernels, or what goes on inside a composite module, of
which only the output is seen. On a CPU dropout's mask is as large as its output.

Complexity: O(operations + links).
Source: PyTorch's notes on autograd and its formulas of gradients; the rest is own.
"""

from collections.abc import Iterable, Sequence

__all__ = ["VIEWS", "kept_bytes"]

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
"""Kinds that compute nothing and whose output is a part of what they read."""
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
"""Bytes an element of the output that are kept beside it."""


def kept_bytes(
    kinds: Sequence[str], sizes: Sequence[int], links: Iterable[tuple[int, int]]
) -> tuple[int, ...]:
    """Return how many bytes each operation keeps.

    Parameters
    ----------
    kinds : sequence of str
        Kind of each operation, such as ``Conv2d``, in the order of computation.
    sizes : sequence of int
        Bytes of each operation's output, in elements of four bytes.
    links : iterable of (int, int)
        Pairs (producer, consumer) with producer < consumer.
    """
    readers: list[list[int]] = [[] for _ in kinds]
    for producer, consumer in links:
        readers[producer].append(consumer)
    needed = [False] * len(kinds)  # whether somebody's gradient is computed from the output
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
