"""What requests of `fsdp` are refused for."""

from typing import Any

import pytest

import planner


@pytest.mark.parametrize(
    "changes", [{"optimiser_ratio": 4.6e18}, {"parameter_bytes": [4611686018427387884]}]
)
def test_memory_that_cannot_be_counted_is_refused(changes: dict[str, Any]) -> None:
    """It used to be answered with more bytes than an answer may hold."""
    free = {"startup_ns": 0, "ns_per_byte": 0}
    request = {
        "problem": "fsdp",
        "forward_ns": [0],
        "backward_ns": [0],
        "parameter_bytes": [159],
        "meshes": [{"shards": 4, "all_gather": free, "reduce_scatter": free}],
        **changes,
    }
    error = planner.solve(request)["error"]
    assert error["path"] == "parameter_bytes"
    assert "memory of a rank" in error["message"]
