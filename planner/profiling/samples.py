"""A user's model and its inputs, made by a factory; the tensors in what a model returns."""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from planner.model.errors import InvalidInputError, MeasurementError
from planner.model.validation import integer, shown

TYPES = (
    *("float32", "float64", "float16", "bfloat16"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
)
"""Input types, by their name in a shape such as ``128:int64``."""

SHAPE = re.compile(r"([1-9][0-9]{0,9}(?:x[1-9][0-9]{0,9})*)(?::([a-z0-9]+))?")


def sample_input(model: nn.Module, shape: str, batch_size: int) -> Tensor:
    """Return a random input, the same at each call.

    Floats are normally distributed. Integers are valid rows of every embedding of the model, or 0
    and 1 without embeddings. A malformed or too large `shape` raises an `InvalidInputError`.
    """
    match = SHAPE.fullmatch(shape)
    if match is None:
        raise InvalidInputError(
            "input_shape", f"expected sizes such as 3x224x224 or 128:int64, got {shown(shape)}"
        )
    name = match[2] or "float32"
    if name not in TYPES:
        raise InvalidInputError(
            "input_shape", f"expected a type among {', '.join(TYPES)}, got {name}"
        )
    kind: torch.dtype = getattr(torch, name)
    sizes = (batch_size, *map(int, match[1].split("x")))
    random = torch.Generator().manual_seed(0)
    try:
        if kind.is_floating_point:
            return torch.randn(sizes, generator=random, dtype=kind)
        return torch.randint(_rows(model, kind), sizes, generator=random, dtype=kind)
    except (RuntimeError, MemoryError, OverflowError) as error:
        raise InvalidInputError(
            "input_shape", f"no input of {shown(shape)} and {batch_size} samples: {error}"
        ) from error


def _rows(model: nn.Module, kind: torch.dtype) -> int:
    """Return how many integers from 0 every embedding has rows for and `kind` can hold."""
    embeddings = [
        module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)
    ]
    largest = 1 if kind is torch.bool else torch.iinfo(kind).max
    return min([*embeddings, largest + 1]) if embeddings else 2


def load_factory(
    spec: str, input_shape: str | None = None, batch_size: int | None = None
) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return a model and the inputs of its forward pass.

    Parameters
    ----------
    spec : str
        ``module:factory``. The current directory is searched last. The factory is called without
        arguments, or with `batch_size` if one is given and the factory has such a parameter. It
        returns ``(model, inputs)`` or the model alone.
    input_shape : str, optional
        Shape of one sample if the factory returns only a model, with the type if it is not float32:
        ``3x224x224``, or ``128:int64`` for 128 token numbers.
    batch_size : int, optional
        Samples in the inputs. Default: the factory's own, or 1 if it returns only a model.

    Raises
    ------
    InvalidInputError
        If an argument is malformed, names nothing, or would have no effect.
    MeasurementError
        If the module or the factory fails, or the factory returns something else.
    """
    if batch_size is not None:
        integer(batch_size, "batch_size", minimum=1)
    module_name, separator, name = spec.partition(":")
    if not (module_name and separator and name) or ":" in name:
        raise InvalidInputError("spec", f"expected module:factory, got {shown(spec)}")
    with _current_directory_importable():
        factory = _factory(module_name, name)
        try:
            resized = (
                batch_size is not None and "batch_size" in inspect.signature(factory).parameters
            )
            made = factory(batch_size=batch_size) if resized else factory()
        except Exception as error:
            raise MeasurementError(f"{spec} failed: {_described(error)}") from error
    if isinstance(made, nn.Module):
        if input_shape is None:
            raise InvalidInputError(
                "input_shape",
                f"{spec} returns a model without inputs: expected the shape of one sample, such "
                "as 3x224x224, or 128:int64 for token numbers",
            )
        return made, (sample_input(made, input_shape, batch_size or 1),)
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise MeasurementError(
            f"{spec} returned {_kind(made)}: expected a torch.nn.Module, or a pair of one and a "
            "tuple of inputs"
        )
    model, inputs = made
    if not isinstance(inputs, tuple):
        raise MeasurementError(
            f"{spec} returned {_kind(inputs)} as inputs: expected a tuple, such as (model, (x,))"
        )
    if input_shape is not None:
        raise InvalidInputError("input_shape", f"no effect here: {spec} makes its own inputs")
    if batch_size is not None and not resized:
        raise InvalidInputError(
            "batch_size", f"no effect here: {spec} makes its own inputs and takes no batch_size"
        )
    return model, inputs


def _factory(module_name: str, name: str) -> Callable[..., Any]:
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise MeasurementError(f"importing {module_name} failed: {error}") from error
        raise InvalidInputError(
            "spec",
            f"no module {error.name}, neither in the current directory nor among the installed "
            "packages",
        ) from error
    except Exception as error:
        raise MeasurementError(f"importing {module_name} failed: {_described(error)}") from error
    try:
        factory = getattr(module, name)
    except AttributeError as error:
        origin = getattr(module, "__file__", None) or "built into Python"
        raise InvalidInputError("spec", f"module {module_name} ({origin}) has no {name}") from error
    if isinstance(factory, nn.Module) or not callable(factory):
        raise InvalidInputError(
            "spec", f"{module_name}:{name} is {_kind(factory)}: expected a function to call"
        )
    made: Callable[..., Any] = factory
    return made


@contextmanager
def _current_directory_importable() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.append(here)  # last, so that no local file shadows an installed module
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if here in sys.path:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(here)]


def _kind(value: object) -> str:
    return "nothing" if value is None else f"an object of type {type(value).__name__}"


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def optimizer_of(name: str, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimiser that commands call by this name, for the parameters that it trains."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if name == "adam":
        return torch.optim.Adam(trained, lr=1e-4)
    return torch.optim.SGD(trained, lr=1e-3, momentum=0.9)


# ---
# The tensors inside a module's output, their size, and a loss computed from them.


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested sequences, mappings and dataclasses, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name))


def byte_size(value: Any) -> int:
    """Return the total size of the distinct tensors in `value` (bytes)."""
    distinct = {id(tensor): tensor for tensor in tensors_in(value)}
    return sum(tensor.numel() * tensor.element_size() for tensor in distinct.values())


def loss_of(output: Any) -> Tensor:
    """Return a scalar to differentiate: the model's own loss, or a stand-in.

    The stand-in sums the means of all floating-point tensors of the output, so that every used
    parameter gets a gradient. A `MeasurementError` is raised if no output depends on a trainable
    one.
    """
    own = getattr(output, "loss", None)
    chosen = [own] if isinstance(own, Tensor) else list(tensors_in(output))
    means = [
        tensor.float().mean()
        for tensor in chosen
        if tensor.is_floating_point() and tensor.requires_grad and tensor.numel()
    ]
    if not means:
        raise MeasurementError(
            "the model's output depends on no trainable parameter: there is no backward pass"
        )
    return torch.stack(means).sum() if len(means) > 1 else means[0]
