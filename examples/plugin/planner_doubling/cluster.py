"""A cluster source: `--cluster hosts:8x10` stands for 8 hosts with 10 Gb/s each, on a switch."""

import json

from planner.model.errors import InvalidInputError

__all__ = ["hosts"]


def hosts(text: str) -> str:
    """Return the cluster as JSON; a real source would ask a scheduler or an inventory."""
    count, _, rate = text.partition("x")
    if not (count.isdecimal() and rate.isdecimal()):
        raise InvalidInputError("cluster", f"expected COUNTxGBITS, such as 8x10, got {text!r}")
    document = {
        "name": f"{count} hosts at {rate} Gb/s",
        "source": "a plug-in",
        "machines": int(count),
        "topology": {"kind": "switch"},
        "nic": {"bytes_per_s": int(rate) * 125_000_000, "startup_ns": 50_000},
    }
    return json.dumps(document)
