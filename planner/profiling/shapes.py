"""Kind, shapes and multiply-adds of each layer.

Method: One untimed forward pass. Matrix products, convolutions and attention are counted where
torch dispatches them, so custom modules count too. Work between two layers is charged to the
earlier one, as its time is; if it contains products, the layer is of kind ``attention``, because
products between layers mix positions. Layers without products use formulas: normalisation and
embedding, one operation per output number; recurrent layers, each weight once per time step. A
causal mask does not reduce the count.
Guarantee: Products are counted by torch's own formulas. Unknown values stay unknown.
Complexity: One forward pass.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from planner.model.errors import MeasurementError
from planner.profiling.calls import Call, trace

_ATTENTION = ("aten._scaled_dot_product_", "aten._flash_attention_forward")


class Description(NamedTuple):
    """The fields of `planner.model.layers.Layer` other than times and sizes, by the same names."""

    kind: str
    input_shape: tuple[int, ...] | None
    output_shape: tuple[int, ...] | None
    kernel: tuple[int, ...] | None
    stride: tuple[int, ...] | None
    connections: int | None
    weights: int


class _Products(TorchDispatchMode):
    """Dispatch mode that counts multiply-adds."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func)
        if name.startswith(_ATTENTION) and "backward" not in name:
            query, key, value = args[:3]
            lengths = query.shape[-1] + value.shape[-1]
            self.count += prod(query.shape[:-1]) * key.shape[-2] * lengths
        elif func._overloadpacket in flop_registry:  # noqa: SLF001 - so torch's own counter asks
            flops = flop_registry[func._overloadpacket]  # noqa: SLF001
            self.count += flops(*args, **(kwargs or {}), out_val=result) // 2
        return result


def describe(
    model: nn.Module, inputs: tuple[Any, ...], batch_size: int
) -> tuple[Description, ...] | None:
    """Return the description of each layer in execution order; None if the model fails here.

    `batch_size` is the number of samples in `inputs`. On the device ``meta`` nothing is computed.
    """
    try:
        with _Products() as products:
            calls, _ = trace(model, inputs, count=lambda: products.count)
    except MeasurementError:
        return None
    leaves = [call for call in calls if call.leaf]
    bounds = [0, *(leaf.begun for leaf in leaves[1:]), products.count]
    return tuple(
        _description(model.get_submodule(leaf.module), leaf, *counts, batch_size)
        for leaf, counts in zip(leaves, pairwise(bounds), strict=True)
    )


def _description(
    module: nn.Module, call: Call, begin: int, end: int, batch_size: int
) -> Description:
    counted, kind = end - begin, _kind(module)
    read, made = (_of_sample(shape, batch_size) for shape in (call.read, call.made))
    kernel, stride = _window(module, read, made) if kind in ("conv", "pool") else (None, None)
    if kernel is None and kind in ("conv", "pool"):
        kind = "other"
    connections: int | None = -(-counted // batch_size)
    if not counted:
        connections = _without_products(module, kind, made)
    elif call.ended - call.begun < counted:
        kind = "attention"
    weights = sum(parameter.numel() for parameter in module.parameters())
    return Description(kind, read, made, kernel, stride, connections, weights)


def _of_sample(shape: tuple[int, ...] | None, batch_size: int) -> tuple[int, ...] | None:
    """Return a shape without its batch dimension: the first that is `batch_size` or a multiple.

    A shape without such a dimension is the same for all samples, as positions are.
    """
    if not shape or 0 in shape:
        return None if shape is None or 0 in shape else (1,)
    if batch_size in shape:
        place = shape.index(batch_size)
        return (*shape[:place], *shape[place + 1 :]) or (1,)
    if len(shape) > 1 and shape[0] % batch_size == 0:  # positions of all samples, flattened
        return (shape[0] // batch_size, *shape[1:])
    return shape


def _kind(module: nn.Module) -> str:
    name, file = type(module).__name__, type(module).__module__
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return "embedding"
    if isinstance(module, nn.Linear):
        return "full"
    if isinstance(module, nn.MultiheadAttention):
        return "attention"
    if isinstance(module, nn.Flatten | nn.Unflatten):
        return "view"
    if isinstance(module, nn.Identity) or file.startswith(
        ("torch.nn.modules.activation", "torch.nn.modules.dropout")
    ):
        return "activation"
    if file == "torch.nn.modules.conv" and "Transpose" not in name:
        return "conv"
    if file == "torch.nn.modules.pooling" and "Unpool" not in name:
        return "pool"
    return "norm" if "norm" in name.lower() else "other"


def _window(
    module: nn.Module, read: tuple[int, ...] | None, made: tuple[int, ...] | None
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Return kernel (with dilation) and stride per dimension."""
    if read is None or made is None or len(read) != len(made) or len(made) < 2:
        return None, None
    sides = len(made) - 1
    if "Adaptive" in type(module).__name__:
        stride = tuple(
            max(1, inside // out) for inside, out in zip(read[1:], made[1:], strict=True)
        )
        kernel = tuple(
            max(1, inside - (out - 1) * step)
            for inside, out, step in zip(read[1:], made[1:], stride, strict=True)
        )
        return kernel, stride
    size = getattr(module, "kernel_size", None)
    if size is None:
        return None, None
    kernel, dilation = _each(size, sides), _each(getattr(module, "dilation", 1), sides)
    step = getattr(module, "stride", None)
    stride = kernel if step is None else _each(step, sides)
    seen = tuple(apart * (length - 1) + 1 for length, apart in zip(kernel, dilation, strict=True))
    return seen, stride


def _each(value: int | Sequence[int], sides: int) -> tuple[int, ...]:
    return (value,) * sides if isinstance(value, int) else tuple(value)


def _without_products(module: nn.Module, kind: str, made: tuple[int, ...] | None) -> int | None:
    """Return the multiply-adds of a layer without matrix products; None if unknown."""
    if made is None:
        return None
    if isinstance(module, nn.RNNBase):
        matrices = sum(weight.numel() for weight in module.parameters() if weight.dim() > 1)
        return prod(made[:-1]) * matrices
    if kind in ("norm", "embedding"):
        return prod(made)
    largest = max((parameter.dim() for parameter in module.parameters()), default=None)
    if largest is None:
        return 0
    return prod(made) if largest < 2 else None
