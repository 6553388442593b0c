"""Profiling: from a `torch.nn.Module` to a profile of its layers. Needs torch."""

from planner.model.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401 - reports a missing torch before the modules below fail
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingExtraError("torch", "torch") from error

from planner.profiling.measuring import measure
from planner.profiling.samples import load_factory

__all__ = ["load_factory", "measure"]
