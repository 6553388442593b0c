"""The JSON face of a measured network: what ``planner calibrate network`` writes.

``network`` is what a request of `caramel` takes under that name; its ``table`` is what one of
`ibatch` takes as ``cost_table``. ``affine`` and ``two_point`` are other models of the same times.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.costs import AffineCost, DepthCost, TableCost
from planner.errors import InvalidInputError
from planner.jsonio.decoding import decode, typed
from planner.jsonio.network import Network, network_of
from planner.jsonio.types import Count, Time
from planner.sweeps import (
    Collective,
    DepthFit,
    Model,
    NetworkFit,
    Sweep,
    Timing,
    relative_errors,
)

__all__ = ["MeasuredNetwork", "decode_network", "encode_network"]

_FIELDS: dict[Model, str] = {"table": "network", "affine": "affine", "two_point": "two_point"}

_SIMPLE = (str, int, float)

Ranks = Annotated[int, Meta(ge=2, le=2**16)]


class TimingDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured of one size, and by how much each model exceeds it, relative to it."""

    bytes: Count
    depth: Count
    median_ns: Time
    spread_ns: Time
    least_ns: Time
    table_error: float
    affine_error: float
    two_point_error: float | UnsetType = UNSET


class NetworkFileDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measured network. To compare on it, only the first three fields are needed."""

    network: Network
    collective: Collective
    ranks: Ranks
    algorithm: str = ""
    affine: Network | UnsetType = UNSET
    two_point: Network | UnsetType = UNSET
    timings: tuple[TimingDocument, ...] = ()
    provenance: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class MeasuredNetwork:
    """What a transfer costs, and who was measured doing what.

    Attributes
    ----------
    cost : AffineCost, TableCost or DepthCost
        The chosen model.
    collective, algorithm : str
        What was timed, and who carried it out.
    ranks : int
        Among how many ranks.
    """

    cost: AffineCost | TableCost | DepthCost
    collective: Collective
    algorithm: str
    ranks: int


def decode_network(data: bytes, model: Model = "table") -> MeasuredNetwork:
    """Read a measured network from JSON text.

    Parameters
    ----------
    data : bytes
        The text.
    model : {"table", "affine", "two_point"}
        Which model of the measured times to take.

    Raises
    ------
    InvalidInputError
        With the path of the first bad field; or if the model is missing.
    """
    document = typed(decode(data), NetworkFileDocument)
    name = _FIELDS[model]
    given = getattr(document, name)
    if given is UNSET:
        raise InvalidInputError(name, "missing: this model was not fitted")
    try:
        cost = network_of(given)
    except InvalidInputError as error:
        path = name + error.path.removeprefix("network")
        raise InvalidInputError(path, error.message) from None
    return MeasuredNetwork(cost, document.collective, document.algorithm, document.ranks)


def encode_network(sweep: Sweep, fit: NetworkFit, provenance: Mapping[str, Any]) -> str:
    """Return a measured network as JSON text.

    Parameters
    ----------
    sweep : Sweep
        What was measured.
    fit : NetworkFit
        Its models.
    provenance : mapping
        Where, when and how.
    """
    document: dict[str, Any] = {
        "collective": sweep.collective,
        "algorithm": sweep.algorithm,
        "ranks": sweep.ranks,
    }
    for model, name in _FIELDS.items():
        cost = fit.cost(model)
        if cost is not None:
            document[name] = _network(cost)
    document["timings"] = [
        _timing(one, by_depth) for depth, by_depth in fit.by_depth for one in sweep.at(depth)
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
    return {"depths": {str(depth): _network(one) for depth, one in cost.by_depth}}


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
    if isinstance(value, Mapping) and not all(isinstance(one, _SIMPLE) for one in value.values()):
        rows = [f"{json.dumps(key)}: {_laid_out(one, inner)}" for key, one in value.items()]
        opening, closing = "{}"
    elif isinstance(value, list) and any(isinstance(one, list | dict) for one in value):
        rows = [json.dumps(one, ensure_ascii=False) for one in value]
        opening, closing = "[]"
    else:
        return json.dumps(value, ensure_ascii=False)
    lines = ",\n".join(inner + row for row in rows)
    return f"{opening}\n{lines}\n{indent}{closing}"
