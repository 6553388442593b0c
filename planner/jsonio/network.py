"""The JSON form of what transfers cost: affine, a measured table, or one of these a depth."""

import re
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.costs import AffineCost, DepthCost, TableCost
from planner.errors import InvalidInputError
from planner.jsonio.types import Rate, Rows, Time

__all__ = ["Network", "NetworkDocument", "network_of"]

MAX_DEPTH = 64

_AFFINE = {"required": ["startup_ns", "ns_per_byte"], "properties": {"table": False}}
_TABLE = {
    "required": ["table"],
    "properties": {"startup_ns": False, "ns_per_byte": False},
}
_DEPTHS = {
    "required": ["depths"],
    "properties": {
        "depths": {"required": ["1"]},
        "startup_ns": False,
        "ns_per_byte": False,
        "table": False,
    },
}
_DEPTH_KEY = {"pattern": r"^([1-9]|[1-5][0-9]|6[0-4])$"}


class CostDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a transfer costs: a start-up and a time per byte, or a measured table."""

    startup_ns: Time | UnsetType = UNSET
    ns_per_byte: Rate | UnsetType = UNSET
    table: Rows | UnsetType = UNSET


Cost = Annotated[CostDocument, Meta(extra_json_schema={"oneOf": [_AFFINE, _TABLE]})]


class NetworkDocument(CostDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an all-reduce costs, at depth 1 and, if given, at others.

    The cost at depth 1 stands beside `depths` or in them.
    """

    depths: (
        Annotated[
            dict[str, Cost], Meta(min_length=1, extra_json_schema={"propertyNames": _DEPTH_KEY})
        ]
        | UnsetType
    ) = UNSET


Network = Annotated[NetworkDocument, Meta(extra_json_schema={"anyOf": [_AFFINE, _TABLE, _DEPTHS]})]


def network_of(given: NetworkDocument) -> AffineCost | TableCost | DepthCost:
    """Return the typed cost.

    Raises
    ------
    InvalidInputError
        With a path into ``network``.
    """
    if given.depths is UNSET:
        return _cost(given, "network")
    has_base = not (
        given.startup_ns is UNSET and given.ns_per_byte is UNSET and given.table is UNSET
    )
    by_depth: dict[int, AffineCost | TableCost] = {}
    if has_base:
        by_depth[1] = _cost(given, "network")
    for key, one in given.depths.items():
        path = f"network.depths.{key}"
        if not re.fullmatch(_DEPTH_KEY["pattern"], key):
            raise InvalidInputError(path, f"expected a depth from 1 to {MAX_DEPTH}")
        cost = _cost(one, path)
        if has_base and key == "1" and cost != by_depth[1]:
            raise InvalidInputError(path, "not the cost given beside depths: give it once")
        by_depth[int(key)] = cost
    if 1 not in by_depth:
        raise InvalidInputError(
            "network.depths.1", "missing: give the cost at depth 1 here or beside depths"
        )
    return DepthCost(tuple(sorted(by_depth.items(), key=lambda pair: pair[0])))


def _cost(given: CostDocument, path: str) -> AffineCost | TableCost:
    """Return one cost; what is wrong with it gets a path into the request."""
    if given.table is not UNSET:
        for name in ("startup_ns", "ns_per_byte"):
            if getattr(given, name) is not UNSET:
                raise InvalidInputError(f"{path}.{name}", "not together with table")
        try:
            return TableCost(given.table)
        except InvalidInputError as error:
            inner = error.path.replace("cost_table", "table", 1)
            raise InvalidInputError(f"{path}.{inner}", error.message) from None
    startup, rate = given.startup_ns, given.ns_per_byte
    if startup is UNSET:
        other = "; or give a table" if rate is UNSET else ""
        raise InvalidInputError(f"{path}.startup_ns", f"missing{other}")
    if rate is UNSET:
        raise InvalidInputError(f"{path}.ns_per_byte", "missing: it comes with startup_ns")
    try:
        return AffineCost(startup, rate)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}.{error.path}", error.message) from None
