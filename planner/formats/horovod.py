"""Gradient plans as settings of Horovod.

Problem. Horovod fuses gradients that happen to be ready in the same cycle, up to a threshold: what
travels together differs from step to step. ``DistributedOptimizer(groups=…)`` makes it wait for all
gradients of a group and send them together.

Method. One group a batch. A threshold below a group's size would cut it, so it is the largest
batch, in whole MiB, with the 16 bytes Horovod may add to each tensor. Fusion of several groups is
switched off by an environment variable. The result is a file for ``horovodrun --config-file``,
which reads YAML, of which JSON is a part, and passes over keys it does not know: under "planner"
stand the groups and the environment.

Guarantee. Batches are those of the plan. Their order is not: Horovod sends a group when it is
ready on all ranks.

Complexity. O(parameters).

Source. horovod/common/controller.cc, horovod/torch/optimizer.py and
horovod/runner/common/util/config_parser.py of Horovod 0.28.1.
"""

from collections.abc import Sequence
from typing import Any

from planner.errors import NotApplicableError
from planner.formats.batches import whole_names
from planner.programs import Batch

__all__ = ["horovod_settings"]

_PADDING = 16
_CYCLE_MS = 1.0
"""Groups are complete when they are seen: a longer cycle would only delay them."""

_NOTE = (
    "horovodrun --config-file reads 'params'. Pass the groups as tensors: "
    "DistributedOptimizer(optimizer, named_parameters=..., groups=[[parameters[name] for name in "
    "group] for group in groups]), parameters = dict(model.named_parameters()), and set the "
    "environment on all ranks. Groups are sent as they become ready, in no planned order, and "
    "the optimiser's step waits for all of them."
)


def horovod_settings(batches: Sequence[Batch]) -> dict[str, Any]:
    """Return a configuration for ``horovodrun --config-file``, as plain values.

    Raises
    ------
    NotApplicableError
        If a parameter is cut, or the plan does not say how large a batch is.
    """
    names = whole_names(batches)
    padded = []
    for number, batch in enumerate(batches):
        if batch.size_bytes is None:
            raise NotApplicableError(
                f"groups[{number}]",
                "expected a plan with sizes, such as one of caramel or one with layer_bytes: "
                "Horovod cuts groups larger than its threshold",
            )
        padded.append(batch.size_bytes + _PADDING * len(names[number]))
    threshold = -(-max(padded) // 2**20)
    return {
        "params": {"fusion_threshold_mb": threshold, "cycle_time_ms": _CYCLE_MS},
        "planner": {
            "groups": [list(group) for group in names],
            "environment": {"HOROVOD_DISABLE_GROUP_FUSION": "1"},
            "note": _NOTE,
        },
    }
