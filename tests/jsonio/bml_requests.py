"""Requests of gradient synchronisation that tests change."""

from typing import Any

from tests.jsonio.test_service import without

CONTRACT: dict[str, Any] = {
    "problem": "bml",
    "n": 3,
    "k": 2,
    "gradient_bytes": 12500000,
    "link_bytes_per_s": 5e9,
    "latency_ns": 0,
    "schedule": "none",
}
NIC = {"nics": [[[0, 1], 0]]}
CUT = {"nics": [[[0, 1], 0], [[0, 1], 1]]}


def changed(**change: Any) -> dict[str, Any]:
    return {key: value for key, value in {**CONTRACT, **change}.items() if value is not without}
