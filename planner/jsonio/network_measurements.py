"""The network document that ``planner calibrate network`` writes (see `planner.jsonio.network`).

``network`` is the measured table; ``affine`` and ``two_point`` are other models of the same times.
"""

import json
from collections.abc import Mapping
from typing import Any

from planner.jsonio.network import MODELS
from planner.model.contention import ALONE, Interference
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.fitting import DepthFit, NetworkFit, Sweep, Timing, relative_errors

_SIMPLE = (str, int, float)


def encode_network(
    sweep: Sweep,
    fit: NetworkFit,
    provenance: Mapping[str, Any],
    interference: Interference = ALONE,
) -> str:
    """Return a measured network, its models, its provenance and its contention as JSON text."""
    document: dict[str, Any] = {
        "collective": sweep.collective,
        "algorithm": sweep.algorithm,
        "ranks": sweep.ranks,
    }
    for model, name in MODELS.items():
        cost = fit.cost(model)
        if cost is not None:
            document[name] = _network(cost)
    if not interference.is_none:
        document["interference"] = {
            "startup_ns": interference.startup_ns,
            "ns_per_byte": float(interference.ns_per_byte),
            "slowdown": float(interference.slowdown),
            "delay_ns": interference.delay_ns,
        }
    document["timings"] = [
        _timing(timing, by_depth) for depth, by_depth in fit.by_depth for timing in sweep.at(depth)
    ]
    document["provenance"] = {
        "kind": "measured",
        "warmup": sweep.warmup,
        "repetitions": sweep.repetitions,
        "statistic": "median of the slowest rank's times; spreads are interquartile ranges",
        **provenance,
    }
    return _laid_out(document, "") + "\n"


def _network(cost: AffineCost | TableCost | DepthCost) -> dict[str, Any]:
    if isinstance(cost, TableCost):
        return {"table": [list(point) for point in cost.points]}
    if isinstance(cost, AffineCost):
        return {"startup_ns": cost.startup_ns, "ns_per_byte": float(cost.ns_per_byte)}
    return {"depths": {str(depth): _network(at_depth) for depth, at_depth in cost.by_depth}}


def _timing(timing: Timing, fit: DepthFit) -> dict[str, Any]:
    models: dict[str, AffineCost | TableCost | None] = {
        "table": fit.table,
        "affine": fit.affine,
        "two_point": fit.two_point,
    }
    errors = {
        f"{name}_error": round(relative_errors(cost, [timing])[0], 6)
        for name, cost in models.items()
        if cost is not None
    }
    return {
        "bytes": timing.size_bytes,
        "depth": timing.depth,
        "median_ns": timing.median_ns,
        "spread_ns": timing.spread_ns,
        "least_ns": min(timing.times_ns),
        **errors,
    }


def _laid_out(value: Any, indent: str) -> str:
    """Return JSON text with a line for each field, and for each row of a table."""
    inner = indent + " "
    if isinstance(value, Mapping) and not all(
        isinstance(field, _SIMPLE) for field in value.values()
    ):
        rows = [f"{json.dumps(key)}: {_laid_out(field, inner)}" for key, field in value.items()]
        opening, closing = "{}"
    elif isinstance(value, list) and any(isinstance(item, list | dict) for item in value):
        rows = [json.dumps(row, ensure_ascii=False) for row in value]
        opening, closing = "[]"
    else:
        return json.dumps(value, ensure_ascii=False)
    lines = ",\n".join(inner + row for row in rows)
    return f"{opening}\n{lines}\n{indent}{closing}"
