"""Kinds, shapes and multiply-adds of the layers of a trace.

Method: with `record_shapes=True` an operator has the shapes of its inputs, with newer profilers
also numbers such as strides (``Concrete Inputs``). The output shape follows from them, or is what
the next op reads if that has as many elements. Samples come first; where the positions of all
samples are one dimension they are separated.
Guarantee: what does not follow stays unknown. A causal mask is not subtracted.
Complexity: O(ops). Source: signatures in aten/src/ATen/native/native_functions.yaml of PyTorch.
"""

import re
from collections.abc import Callable, Mapping, Sequence
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
_SIMPLE = {
    **dict.fromkeys(_POINTWISE, "activation"),
    **dict.fromkeys(_NORMS, "norm"),
    **dict.fromkeys(_VIEWS, "view"),
}

LAYERS = frozenset(
    f"aten::{name}"
    for name in (
        *_SIMPLE,
        *_LOSSES,
        *_POOLS,
        *_ADAPTIVE,
        *_CONVS,
        *_PRODUCTS,
        _ATTENTION,
        "linear",
        "embedding",
    )
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
    if inputs is None or read is None:
        return {"kind": "other", "connections": None if own else 0}
    for names, described in _DESCRIBED.items():
        if name in names:
            try:
                return described(inputs, read, own, batch_size)
            except (ArithmeticError, LookupError):
                break
    return {"kind": "other", "connections": None if own else 0}


def _conv(inputs: Inputs, read: Shape, own: int, batch_size: int) -> dict[str, Any]:
    del own, batch_size
    weight = inputs.shapes[1]
    sides = len(weight) - 2
    stride, pad, apart = (_numbers(inputs, place, sides) for place in (3, 4, 5))
    kernel = tuple(gap * (k - 1) + 1 for k, gap in zip(weight[2:], apart, strict=True))
    inside = zip(read[-sides:], kernel, stride, pad, strict=True)
    made = (weight[0], *((n + 2 * p - k) // s + 1 for n, k, s, p in inside))
    return {
        "kind": "conv",
        "output_shape": made,
        "kernel": kernel,
        "stride": stride,
        "connections": prod(made) * prod(weight[1:]),
    }


def _pool(inputs: Inputs, read: Shape, own: int, batch_size: int) -> dict[str, Any]:
    del own, batch_size
    sides = len(read) - 1
    kernel = _numbers(inputs, 1, sides)
    stride = _numbers(inputs, 2, sides) if re.search(r"\d", inputs.texts[2]) else kernel
    pad = _numbers(inputs, 3, sides)
    inside = zip(read[1:], kernel, stride, pad, strict=True)
    made = (read[0], *((n + 2 * p - k) // s + 1 for n, k, s, p in inside))
    return _pooled(made, kernel, stride)


def _adaptive(inputs: Inputs, read: Shape, own: int, batch_size: int) -> dict[str, Any]:
    del own, batch_size
    made = (read[0], *_numbers(inputs, 1, len(read) - 1))
    pairs = list(zip(read[1:], made[1:], strict=True))
    stride = tuple(max(1, inside // out) for inside, out in pairs)
    kernel = tuple(
        max(1, inside - (out - 1) * step) for (inside, out), step in zip(pairs, stride, strict=True)
    )
    return _pooled(made, kernel, stride)


def _pooled(made: Shape, kernel: Sequence[int], stride: Sequence[int]) -> dict[str, Any]:
    return {
        "kind": "pool",
        "output_shape": made,
        "kernel": kernel,
        "stride": stride,
        "connections": 0,
    }


def _linear(inputs: Inputs, read: Shape, own: int, batch_size: int) -> dict[str, Any]:
    del own, batch_size
    outputs, width = inputs.shapes[1]
    made = (*read[:-1], outputs)
    return {"kind": "full", "output_shape": made, "connections": prod(made) * width}


def _product(inputs: Inputs, read: Shape, own: int, batch_size: int) -> dict[str, Any]:
    del batch_size
    *_, first, second = (shape for shape in inputs.shapes if len(shape) > 1)
    made = (*read[:-1], second[-1])
    kind = "full" if own else "attention"
    return {"kind": kind, "output_shape": made, "connections": prod(made) * first[-1]}


def _attention(inputs: Inputs, read: Shape, own: int, batch_size: int) -> dict[str, Any]:
    del own
    query, key, value = inputs.shapes[:3]
    count = prod(query[:-1]) // batch_size * key[-2] * (query[-1] + value[-1])
    made = (*read[:-1], value[-1])
    return {"kind": "attention", "output_shape": made, "connections": count}


def _embedding(inputs: Inputs, read: Shape, own: int, batch_size: int) -> dict[str, Any]:
    del own, batch_size
    return {"kind": "embedding", "output_shape": (*read, inputs.shapes[0][1])}


_DESCRIBED: Mapping[tuple[str, ...], Callable[[Inputs, Shape, int, int], dict[str, Any]]] = {
    _CONVS: _conv,
    _POOLS: _pool,
    _ADAPTIVE: _adaptive,
    ("linear",): _linear,
    _PRODUCTS: _product,
    (_ATTENTION,): _attention,
    ("embedding",): _embedding,
}


def _numbers(inputs: Inputs, place: int, count: int) -> tuple[int, ...]:
    """Return the numbers of an input, one for each side."""
    numbers = tuple(int(text) for text in re.findall(r"\d{1,9}", inputs.texts[place]))
    if len(numbers) == 1:
        return numbers * count
    if len(numbers) != count:
        raise LookupError(place)
    return numbers
