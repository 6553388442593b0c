"""Load a user's model by the name of the factory function that makes it."""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from planner.model.errors import InvalidInputError, MeasurementError
from planner.model.validation import integer, shown
from planner.profiling.samples import sample_input


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
        resized = batch_size is not None and _takes_batch_size(factory)
        try:
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


def _takes_batch_size(factory: Callable[..., Any]) -> bool:
    try:
        parameter = inspect.signature(factory).parameters.get("batch_size")
    except (TypeError, ValueError):  # written in C, without a signature
        return False
    return parameter is not None and parameter.kind in (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )


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
