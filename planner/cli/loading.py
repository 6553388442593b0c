"""A user's model, as commands load it: what it prints is not the command's output."""

import sys
from contextlib import redirect_stdout
from typing import Any

from planner.errors import InvalidInputError, MeasurementError
from planner.validation import shown

__all__ = ["check_factory", "load_model"]


def check_factory(spec: str, option: str) -> None:
    """Check that an option names a factory, before torch is loaded.

    Raises
    ------
    InvalidInputError
        If it does not look like ``module:factory``.
    """
    module, separator, factory = spec.partition(":")
    if not (module and separator and factory):
        raise InvalidInputError(option, f"expected module:factory, got {shown(spec)}")


def load_model(
    spec: str, input_shape: str | None, batch_size: int | None
) -> tuple[Any, tuple[Any, ...]]:
    """Return a model and its inputs: `planner.profiling.load_factory` for a command.

    Raises
    ------
    MeasurementError
        Besides what that raises: if the factory ends the program.
    """
    from planner.profiling import load_factory  # says what to install if torch is missing

    try:
        with redirect_stdout(sys.stderr):
            return load_factory(spec, input_shape, batch_size)
    except SystemExit as stop:
        raise MeasurementError(f"{spec} ended the program ({stop.code})") from None
