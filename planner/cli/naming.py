"""Rename arguments of the library to options in errors, so that users see what they typed."""

import argparse
import re
from collections.abc import Mapping

from planner.model.errors import InvalidInputError

_FACTORY = "MODULE:FACTORY"
_KEYS = {_FACTORY: "factory"}  # positional arguments

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "activation_bytes": ("--activations",),
    "algorithms": ("--algorithms",),
    "all_reduce": ("--bcube",),
    "batch_size": ("--batch-size",),
    "computation": ("--computation",),
    "computation_scale": ("--computation",),
    "cores": ("--cores",),
    "depths": ("--depths",),
    "epoch_samples": ("--epoch-samples",),
    "input_shape": ("--input",),
    "interfaces": ("--interfaces",),
    "max_batch_bytes": ("--max-batch",),
    "max_group_ns": ("--max-group",),
    "max_overhead": ("--max-overhead",),
    "max_transfer_bytes": ("--max-transfer",),
    "method": ("--method", "--methods"),
    "modes": ("--mode",),
    "optimiser": ("--optimiser-ratio",),
    "optimiser_ratio": ("--optimiser-ratio",),
    "repetitions": ("--repetitions",),
    "seed": ("--seed",),
    "servers": ("--servers",),
    "spec": ("--model", _FACTORY),
    "target": ("--for",),
    "time_limit_s": ("--time-limit",),
    "timeout_s": ("--timeout",),
    "warmup": ("--warmup",),
    "workers": ("--workers",),
    "world": ("--bcube",),
}
"""Options that set each argument of the library."""


def as_typed(error: InvalidInputError, options: argparse.Namespace) -> InvalidInputError:
    """Return the error with this command's option in place of the argument, if it has one."""
    name = re.match(r"\w*", error.path)
    assert name is not None
    for option in OPTIONS.get(name[0], ()):
        key = _KEYS.get(option, option.removeprefix("--").replace("-", "_"))
        if key in vars(options):
            return InvalidInputError(f"{option}{error.path[name.end() :]}", error.message)
    return error
