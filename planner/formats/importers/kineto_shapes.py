"""Kinds, shapes and multiply-adds of the layers of a trace.

Method: with `record_shapes=True` an operator has the shapes of its inputs, with newer profilers
also numbers such as strides (``Concrete Inputs``). The output shape follows from them, or is what
the next op reads if that has as many elements. Samples come first; where the positions of all
samples are one dimension they are separated.
Guarantee: what does not follow stays unknown. A causal mask is not subtracted.
Complexity: O(ops). Source: signatures in aten/src/ATen/native/native_functions.yaml of PyTorch.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import prod
from typing import Any, NamedTuple

from planner.model.validation import MAX_VALUE

Shape = tuple[int, ...]

_POINTWISE = (
    "relu", "relu_", "gelu", "silu", "silu_", "sigmoid", "tanh", "elu", "leaky_relu", "hardtanh",
    "hardtanh_", "hardswish", "dropout", "dropout_", "add", "add_", "sub", "mul", "div", "softmax",
    "log_softmax", "neg", "exp", "pow", "square", "masked_fill", "where", "to", "clone",
)  # fmt: skip
_NORMS = ("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm")
_VIEWS = (
    "flatten", "view", "reshape", "transpose", "permute", "contiguous", "squeeze", "unsqueeze",
    "expand", "t", "unflatten", "chunk", "split", "slice", "select", "detach",
)  # fmt: skip
_POOLS = ("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")
_ADAPTIVE = ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
             "adaptive_max_pool2d")  # fmt: skip
_CONVS = ("conv1d", "conv2d", "conv3d")
_PRODUCTS = ("matmul", "mm", "bmm", "addmm")
_LOSSES = ("mean", "sum", "mse_loss", "l1_loss", "nll_loss", "nll_loss_nd", "cross_entropy_loss",
           "binary_cross_entropy", "binary_cross_entropy_with_logits")  # fmt: skip
_ATTENTION = "scaled_dot_product_attention"
_OTHERS = (_ATTENTION, "linear", "embedding")
_SIMPLE = {
    **dict.fromkeys(_POINTWISE, "activation"),
    **dict.fromkeys(_NORMS, "norm"),
    **dict.fromkeys(_VIEWS, "view"),
}

LAYERS = frozenset(
    f"aten::{name}"
    for names in (_SIMPLE, _LOSSES, _POOLS, _ADAPTIVE, _CONVS, _PRODUCTS, _OTHERS)
    for name in names
)
"""Operators whose inputs are read."""


class Inputs(NamedTuple):
    """Inputs of an operator: shapes, and numbers as texts."""

    shapes: tuple[Shape, ...]
    texts: tuple[str, ...]


def inputs_of(dims: Any, concrete: Any) -> Inputs | None:
    """Return the inputs of an operator; None if they are missing or malformed."""
    if not isinstance(dims, list):
        return None
    shapes = tuple(
        tuple(shape)
        if isinstance(shape, list)
        and all(type(length) is int and 0 <= length <= MAX_VALUE for length in shape)
        else ()
        for shape in dims
    )
    texts = concrete if isinstance(concrete, list) else []
    return Inputs(shapes, tuple(text if isinstance(text, str) else "" for text in texts))


def shapes_of(
    ops: Sequence[tuple[str, Inputs | None]], weights: Sequence[int], batch_size: int | None
) -> list[dict[str, Any]]:
    """Return the fields of `layers.Layer` for each forward op, besides times and sizes.

    `weights` are the elements of each op's parameters. Without a `batch_size` nothing is known.
    """
    if batch_size is None or not batch_size or all(inputs is None for _, inputs in ops):
        return [{} for _ in ops]
    reads = [_read(name, inputs, batch_size) for name, inputs in ops]
    layers = []
    for place, ((name, inputs), own) in enumerate(zip(ops, weights, strict=True)):
        known = _layer(name.removeprefix("aten::"), inputs, reads[place], own, batch_size)
        after = reads[place + 1] if place + 1 < len(reads) else None
        made = known.get("output_shape")
        if after is not None and (made is None or prod(made) == prod(after)):
            made = after
        made = reads[place] if made is None else made
        if known.get("kind") in ("norm", "embedding") and made is not None:
            known["connections"] = prod(made)
        shapes = {"input_shape": reads[place], "output_shape": made, "weights": own}
        layers.append(known | shapes)
    return layers


def _read(name: str, inputs: Inputs | None, batch_size: int) -> Shape | None:
    """Return the input shape of one sample."""
    if inputs is None:
        return None
    shapes = [shape for shape in inputs.shapes if shape]
    if name == "aten::embedding":  # the table comes first
        shapes = shapes[1:]
    elif name == "aten::addmm":
        shapes = shapes[-2:]
    return _sample(shapes[0], batch_size) if shapes else None


def _sample(shape: Shape, batch_size: int) -> Shape | None:
    if not shape or shape[0] % batch_size or not prod(shape):
        return None
    positions = shape[0] // batch_size
    return shape[1:] or (1,) if positions == 1 else (positions, *shape[1:])


def _layer(
    name: str, inputs: Inputs | None, read: Shape | None, own: int, batch_size: int
) -> dict[str, Any]:
    """Return an op's kind, multiply-adds, window, and output shape if it follows."""
    kind = _SIMPLE.get(name)
    if kind is not None:
        made = read if kind != "view" or read is None else (prod(read),)
        return {"kind": kind, "connections": 0, "output_shape": made}
    if name in _LOSSES:
        return {"kind": "other", "connections": 0, "output_shape": (1,)}
    if inputs is not None and read is not None:
        with suppress(ArithmeticError, LookupError, ValueError):  # inputs of other numbers or sizes
            known = _from_inputs(name, inputs, read, own, batch_size)
            if known:
                return known
    return {"kind": "other", "connections": None if own else 0}


def _from_inputs(
    name: str, inputs: Inputs, read: Shape, own: int, batch_size: int
) -> dict[str, Any]:
    """Return what follows from the inputs of an operator; empty if it is of no known kind."""
    shapes = inputs.shapes
    if name in _CONVS:
        filters, channels, *window = shapes[1]
        sides = len(window)
        stride, pad, apart = (_numbers(inputs, place, sides) for place in (3, 4, 5))
        kernel = tuple(gap * (k - 1) + 1 for k, gap in zip(window, apart, strict=True))
        made = (filters, *_windows(read[-sides:], kernel, stride, pad))
        connections = prod(made) * channels * prod(window)
        known = {"kind": "conv", "kernel": kernel, "stride": stride, "connections": connections}
    elif name in _POOLS:
        sides = len(read) - 1
        kernel = _numbers(inputs, 1, sides)
        stride = _numbers(inputs, 2, sides) if re.search(r"\d", inputs.texts[2]) else kernel
        made = (read[0], *_windows(read[1:], kernel, stride, _numbers(inputs, 3, sides)))
        known = {"kind": "pool", "kernel": kernel, "stride": stride, "connections": 0}
    elif name in _ADAPTIVE:
        made = (read[0], *_numbers(inputs, 1, len(read) - 1))
        pairs = list(zip(read[1:], made[1:], strict=True))
        stride = tuple(max(1, inside // out) for inside, out in pairs)
        steps = zip(pairs, stride, strict=True)
        kernel = tuple(max(1, inside - (out - 1) * step) for (inside, out), step in steps)
        known = {"kind": "pool", "kernel": kernel, "stride": stride, "connections": 0}
    elif name == "linear":
        outputs, width = shapes[1]
        made = (*read[:-1], outputs)
        known = {"kind": "full", "connections": prod(made) * width}
    elif name in _PRODUCTS:
        *_, first, second = (shape for shape in shapes if len(shape) > 1)
        made = (*read[:-1], second[-1])
        known = {"kind": "full" if own else "attention", "connections": prod(made) * first[-1]}
    elif name == _ATTENTION:
        query, key, value = shapes[:3]
        made = (*read[:-1], value[-1])
        count = prod(query[:-1]) // batch_size * key[-2] * (query[-1] + value[-1])
        known = {"kind": "attention", "connections": count}
    elif name == "embedding":
        made = (*read, shapes[0][1])
        known = {"kind": "embedding"}
    else:
        return {}
    return {**known, "output_shape": made}


def _windows(
    inside: Sequence[int], kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]
) -> Iterator[int]:
    """Yield how many windows fit along each side."""
    for n, k, s, p in zip(inside, kernel, stride, pad, strict=True):
        yield (n + 2 * p - k) // s + 1


def _numbers(inputs: Inputs, place: int, count: int) -> tuple[int, ...]:
    """Return the numbers of an input, one for each side."""
    numbers = tuple(int(text) for text in re.findall(r"\d{1,9}", inputs.texts[place]))
    if len(numbers) == 1:
        return numbers * count
    if len(numbers) != count:
        raise LookupError(place)
    return numbers
