"""Values no field expects, damage to requests, and odd ways to write them."""

import json
import string
from collections.abc import Callable, Mapping
from decimal import Decimal
from random import Random
from typing import Any

from planner.jsonio import schema

__all__ = ["by_schema", "damaged", "unwritten", "written"]

BOUNDARIES = [
    *(0, 1, 2, 3, -1, 7, 64, 1000, 1024, 4096, 65536, 10**6, 2**20, 2**30, 2**31, 2**32),
    *(2**53 + 1, 2**62 - 1, 2**62, 2**62 + 1, 2**63 - 2, 2**63 - 1, 2**63, 2**64, 10**30, 10**400),
    *(0.0, -0.0, 0.5, 1.0, 1e-9, 1e-300, 5e-324, 1e308, 0.1, 1 / 3, 4.6e18, 2.0**62),
]
TEXTS = [
    *("", " ", "a", "\x00", "a\x00b", "\x1b[31m", "\u202eabc", "\u0627\u0644", "\ufeff", "\r\n"),
    *("💥", "x" * 300, "x" * 20_000, "`", "$.a[0]", "\\", '"', "auto", "exact", "null", "0"),
]
NUMBERS = [
    *("1E1000000000000000000000", "1e-9999999999999999999", "-0", "0e0", "1e400", "-1e400"),
    *("0.10000000000000000555", "1.50", "2.0000000000000000001", "1e-1001", "1e-999", "12e3"),
    *("NaN", "Infinity", "-Infinity", "0." + "3" * 3000, "9" * 5000, "0." + "1" * 1500, "01", "+1"),
]
MARK = "@number "
"""Begins a text that is written as the number after it."""


def odd(draw: Random) -> Any:
    """Return a value of any type."""
    make: Callable[[], Any] = draw.choice(
        [
            lambda: draw.choice(BOUNDARIES),
            lambda: draw.choice(BOUNDARIES),
            lambda: draw.choice(TEXTS),
            lambda: MARK + draw.choice(NUMBERS),
            lambda: draw.choice([None, True, False, [], {}, [[]], {"": 0}, [None], ["a", 1]]),
            lambda: [draw.choice(BOUNDARIES) for _ in range(draw.randrange(5))],
            lambda: nested(draw.choice([5, 50, 99, 101, 300]), draw),
            lambda: "".join(draw.choices(string.printable, k=draw.randrange(12))),
            lambda: chr(draw.choice([0xD800, 0xDFFF, 0x7F, 0x2028, 0x10FFFF])),
        ]
    )
    return make()


def nested(depth: int, draw: Random) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value] if draw.random() < 0.5 else {"a": value}
    return value


def by_schema(problem: str, part: Mapping[str, Any], draw: Random, depth: int = 0) -> Any:
    """Return a value that a part of a request's schema allows, boundaries preferred."""
    whole = _schemas(problem)
    if "$ref" in part:
        return by_schema(problem, whole["$defs"][part["$ref"].rpartition("/")[2]], draw, depth)
    if "anyOf" in part and "properties" not in part:
        return by_schema(problem, draw.choice(part["anyOf"]), draw, depth)
    if "const" in part:
        return part["const"]
    if "enum" in part:
        return draw.choice(part["enum"])
    kind = part.get("type")
    if kind in ("integer", "number"):
        low = part.get("minimum", part.get("exclusiveMinimum", 0))
        high = part.get("maximum", part.get("exclusiveMaximum", 2**62))
        fitting = [
            one
            for one in (*BOUNDARIES, low, high)
            if low <= one <= high and (kind == "number" or isinstance(one, int))
        ]
        return draw.choice(fitting)
    if kind == "string":
        return draw.choice(["a", "b", "f0", "b0", draw.choice(TEXTS)])
    if kind == "boolean":
        return draw.random() < 0.5
    if kind == "array":
        if "prefixItems" in part:
            return [by_schema(problem, one, draw, depth + 1) for one in part["prefixItems"]]
        count = max(part.get("minItems", 0), draw.choice([0, 1, 1, 2, 3]))
        return [by_schema(problem, part.get("items", {}), draw, depth + 1) for _ in range(count)]
    if kind == "object" or "properties" in part:
        properties = part.get("properties", {})
        needed = part.get("required", ())
        chosen = [
            name for name in properties if name in needed or draw.random() < 0.3 / (depth + 1)
        ]
        found = {one: by_schema(problem, properties[one], draw, depth + 1) for one in chosen}
        extra = part.get("additionalProperties")
        if isinstance(extra, dict):
            for _ in range(draw.randrange(3)):
                key = draw.choice(["1", "2", "8", "64", "0", "a"])
                found[key] = by_schema(problem, extra, draw, depth + 1)
        return found
    if kind == "null":
        return None
    return odd(draw)


_known: dict[str, dict[str, Any]] = {}


def _schemas(problem: str) -> dict[str, Any]:
    if problem not in _known:
        _known[problem] = schema(problem)["request"]
    return _known[problem]


def damaged(request: Any, problem: str, draw: Random) -> Any:
    """Return a request with one thing changed; `request` itself may change too."""
    if not isinstance(request, dict):
        return request
    places = list(_places(request))
    where, key = draw.choice(places)
    change = draw.choice([*_CHANGES, _option, _option, _option])
    change(request, problem, where, key, draw)
    return request


def _places(value: Any, most: int = 4000) -> list[tuple[Any, Any]]:
    """Return containers and keys in them, everywhere."""
    found: list[tuple[Any, Any]] = []
    left = [value]
    while left and len(found) < most:
        one = left.pop()
        items = one.items() if isinstance(one, dict) else enumerate(one)
        for key, item in items:
            found.append((one, key))
            if isinstance(item, dict | list) and item:
                left.append(item)
    return found or [({"": 0}, "")]


Change = Callable[[Any, str, Any, Any, Random], None]


def _replace(request: Any, problem: str, where: Any, key: Any, draw: Random) -> None:
    where[key] = odd(draw)


def _boundary(request: Any, problem: str, where: Any, key: Any, draw: Random) -> None:
    if isinstance(where[key], int | float):
        where[key] = draw.choice(BOUNDARIES)


def _scale(request: Any, problem: str, where: Any, key: Any, draw: Random) -> None:
    if type(where[key]) is int:
        where[key] = draw.choice(
            [where[key] * 2**20, where[key] * 1000, where[key] + 1, -where[key]]
        )


def _drop(request: Any, problem: str, where: Any, key: Any, draw: Random) -> None:
    where.pop(key)


def _misspell(request: Any, problem: str, where: Any, key: Any, draw: Random) -> None:
    if isinstance(where, dict):
        where[draw.choice([key[:-1], key + "s", key.upper(), key + "\x00", "", "`" + key])] = where[
            key
        ]


def _unknown(request: Any, problem: str, where: Any, key: Any, draw: Random) -> None:
    if isinstance(where, dict):
        where[draw.choice(TEXTS)] = odd(draw)


def _longer(request: Any, problem: str, where: Any, key: Any, draw: Random) -> None:
    if isinstance(where[key], list) and len(where[key]) < 1000:
        where[key] = where[key] * draw.choice([2, 3, 100])


def _shorter(request: Any, problem: str, where: Any, key: Any, draw: Random) -> None:
    if isinstance(where[key], list):
        where[key] = where[key][: draw.choice([0, 1, len(where[key]) // 2])]


def _elsewhere(request: Any, problem: str, where: Any, key: Any, draw: Random) -> None:
    other, place = draw.choice(_places(request))
    where[key] = json.loads(json.dumps(other[place]))


def _option(request: Any, problem: str, where: Any, key: Any, draw: Random) -> None:
    whole = _schemas(problem)
    fields = whole["$defs"][whole["$ref"].rpartition("/")[2]]["properties"]
    name = draw.choice(["method", *(field for field in fields if field != "problem")])
    request[name] = by_schema(problem, fields[name], draw)


def _limit(request: Any, problem: str, where: Any, key: Any, draw: Random) -> None:
    request["time_limit_s"] = draw.choice([1e-9, 1e-3, 0.01, 0.05, 0.2])


_CHANGES: list[Change] = [
    *(_replace, _boundary, _scale, _drop, _misspell, _unknown, _longer, _shorter, _elsewhere),
    _limit,
]


def written(request: Any, draw: Random) -> bytes:
    """Return a request as JSON text, sometimes in an odd spelling."""
    text = json.dumps(request, ensure_ascii=draw.random() < 0.8)
    for number in NUMBERS:
        text = text.replace(f'"{MARK}{number}"', number)
    if draw.random() < 0.05:
        text = text.replace("{", '{"problem": "ibatch", ', 1)  # a key twice
    if draw.random() < 0.05:
        cut = draw.randrange(len(text))
        text = (
            text[:cut] + draw.choice(["", "}", "]", ",", "\x00", "\\ud800", "'"]) + text[cut + 1 :]
        )
    if draw.random() < 0.05:
        text = text.replace("0.5", "0.50000000000000011102").replace("p", "\\u0070")
    data = text.encode("utf-8", "surrogatepass")
    if draw.random() < 0.02:
        place = draw.randrange(len(data))
        data = data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :]
    return data


def unwritten(request: Any, draw: Random) -> Any:
    """Return a request as a library call may have it: tuples, decimals, what is no JSON."""
    if isinstance(request, dict):
        return {key: unwritten(item, draw) for key, item in request.items()}
    if isinstance(request, list):
        items = [unwritten(item, draw) for item in request]
        return tuple(items) if draw.random() < 0.3 else items
    if isinstance(request, str) and request.startswith(MARK):
        return draw.choice([Decimal("NaN"), Decimal("1E-5000"), Decimal("1.50"), float("inf"), {1}])
    return request
