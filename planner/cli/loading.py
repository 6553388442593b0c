"""Load a user's model; its prints go to standard error."""

import sys
from contextlib import redirect_stdout
from typing import Any

from planner.model.errors import InvalidInputError, MeasurementError
from planner.model.validation import shown


def check_factory(spec: str, option: str) -> None:
    """Raise InvalidInputError unless `spec` is ``module:factory``; needs no torch."""
    module, separator, factory = spec.partition(":")
    if not (module and separator and factory):
        raise InvalidInputError(option, f"expected module:factory, got {shown(spec)}")


def load_model(
    spec: str, input_shape: str | None, batch_size: int | None
) -> tuple[Any, tuple[Any, ...]]:
    """Return a model and its inputs by `planner.profiling.load_factory`.

    Raises MeasurementError too if the factory ends the program.
    """
    from planner.profiling import load_factory  # its error names what to install without torch

    try:
        with redirect_stdout(sys.stderr):
            return load_factory(spec, input_shape, batch_size)
    except SystemExit as stop:
        raise MeasurementError(f"{spec} ended the program ({stop.code})") from None
