"""Measuring models: from a `torch.nn.Module` to a profile of its layers.

This package needs torch, and nothing outside it does.
"""

from planner.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401 - only to say early what is missing
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingExtraError("torch", "torch") from error

from planner.profiling.factory import load_factory
from planner.profiling.measuring import measure

__all__ = ["load_factory", "measure"]
