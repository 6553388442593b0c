"""Gradient plans as settings of Horovod.

Problem: Horovod fuses gradients that are ready in the same cycle, up to a threshold, so batches
differ from step to step. ``DistributedOptimizer(groups=…)`` makes it send whole groups.
Method: one group per batch. A threshold below a group's size would cut the group, so it is the
largest batch in whole MiB, plus 16 bytes per tensor that Horovod may add; an environment variable
switches off fusion of groups. ``horovodrun --config-file`` reads YAML, and so JSON, and passes over
unknown keys: "planner" holds the groups and the environment.
Guarantee: the batches are the plan's; their order is not, as Horovod sends what is ready on all
ranks. Complexity: O(parameters). Source: horovod/common/controller.cc, horovod/torch/optimizer.py
and horovod/runner/common/util/config_parser.py of Horovod 0.28.1.
"""

from collections.abc import Sequence
from typing import Any

from planner.formats.exporters.batches import whole_names
from planner.model.errors import NotApplicableError
from planner.programs import Batch

_PADDING = 16
_CYCLE_MS = 1.0
"""Groups are complete when they are seen, so a longer cycle would only delay them."""

_NOTE = (
    "horovodrun --config-file reads 'params'. Pass the groups as tensors: "
    "DistributedOptimizer(optimizer, named_parameters=..., groups=[[parameters[name] for name in "
    "group] for group in groups]), parameters = dict(model.named_parameters()), and set the "
    "environment on all ranks. Groups are sent as they become ready, in no planned order, and "
    "the optimiser's step waits for all of them."
)


def horovod_settings(batches: Sequence[Batch]) -> dict[str, Any]:
    """Return a configuration for ``horovodrun --config-file``, as plain values.

    Plans with cut parameters or without batch sizes are a `NotApplicableError`.
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
