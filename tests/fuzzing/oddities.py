"""Values for any field, right by its schema or odd, damage to requests, and odd ways to write them.

Optional fields are found in schemas: an option that is new is asked at once.
"""

import json
import string
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache, reduce
from itertools import islice
from operator import getitem
from random import Random
from typing import Any, NamedTuple

from planner.jsonio import schema
from tests.fuzzing.valid import made, one_of
from tests.jsonio.requests import places

BOUNDARIES = [
    *(0, 1, 2, 3, -1, 7, 64, 1000, 1024, 4096, 65536, 10**6, 2**20, 2**30, 2**31, 2**32),
    *(2**53 + 1, 2**62 - 1, 2**62, 2**62 + 1, 2**63 - 2, 2**63 - 1, 2**63, 2**64, 10**30, 10**400),
    *(0.0, -0.0, 0.5, 1.0, 1e-9, 1e-300, 5e-324, 1e308, 0.1, 1 / 3, 4.6e18, 2.0**62),
]
TEXTS = [
    *("", " ", "a", "\x00", "a\x00b", "\x1b[31m", "\u202eabc", "\u0627\u0644", "\ufeff", "\r\n"),
    *("💥", "x" * 300, "x" * 20_000, "`", "$.a[0]", "\\", '"', "auto", "exact", "null", "0"),
]


class Near(NamedTuple):
    """What a request holds, of which new fields are made: so that they often fit."""

    # By the unit that a field's name ends with: limits that can just be met are often between the
    # largest and the sum.
    numbers: dict[str, list[Any]]
    names: list[list[str]]  # what the objects of each list are called
    counts: list[int]  # how long lists are


def near(request: Any, most: int = 2000) -> Near:
    """Return the fields of a request."""
    found = Near({}, [], [])
    left: list[tuple[str, Any]] = [("", request)]
    while left and most:
        most -= 1
        unit, value = left.pop()
        if isinstance(value, dict):
            left += [(_unit(key), item) for key, item in value.items()]
        elif isinstance(value, list) and value:
            if all(type(one) is int for one in value):
                found.counts.append(len(value))
            names = [one.get("name") for one in value if isinstance(one, dict)]
            if any(isinstance(name, str) for name in names):
                found.names.append([name for name in names if isinstance(name, str)])
            left += [(unit, one) for one in value]
        elif type(value) in (int, float) and 0 <= value < 2**63:
            found.numbers.setdefault(unit, []).append(value)
    return found


def _unit(name: str) -> str:
    return name.rpartition("_")[2]


def by_schema(
    problem: str,
    part: Mapping[str, Any],
    draw: Random,
    depth: int = 0,
    beside: Near | None = None,
    name: str = "",
) -> Any:
    """Return a value that a part of a request's schema allows, boundaries preferred.

    `depth` is that in the request, since further down there are fewer options; `beside` is what the
    request holds already, and `name` that of the field.
    """

    def made(inner: Mapping[str, Any], name: str = name) -> Any:
        return by_schema(problem, inner, draw, depth + 1, beside, name)

    if "$ref" in part:
        return by_schema(problem, _named(problem, part), draw, depth, beside, name)
    if "anyOf" in part and "properties" not in part:
        return by_schema(problem, draw.choice(part["anyOf"]), draw, depth, beside, name)
    if "const" in part:
        return part["const"]
    if "enum" in part:
        return draw.choice(part["enum"])
    kind = part.get("type")
    if kind in ("integer", "number"):
        return _number(part, draw, beside and beside.numbers.get(_unit(name)))
    if kind == "string":
        names = [one for group in (beside.names if beside else ()) for one in group]
        return draw.choice([*names, "a", "b", "f0", "b0", draw.choice(TEXTS)])
    if kind == "boolean":
        return draw.random() < 0.5
    if kind == "array" and "prefixItems" in part:
        return [made(one) for one in part["prefixItems"]]
    if kind == "array":
        inner = part.get("items", {})
        if beside and inner.get("type") == "string" and beside.names and draw.random() < 0.7:
            group = draw.choice(beside.names)
            return draw.sample(group, len(group))
        count = draw.choice([0, 1, 1, 2, 3])
        if beside and beside.counts and inner.get("type") in ("integer", "number", "string"):
            count = draw.choice([*beside.counts, count])
        return [made(inner) for _ in range(max(part.get("minItems", 0), count))]
    if kind == "object" or "properties" in part:
        properties = part.get("properties", {})
        needed = part.get("required", ())
        share = 0.3 / (depth + 1)
        chosen = [one for one in properties if one in needed or draw.random() < share]
        found = {one: made(properties[one], one) for one in chosen}
        extra = part.get("additionalProperties")
        if isinstance(extra, dict):
            for _ in range(draw.randrange(3)):
                found[draw.choice(["1", "2", "8", "64", "0", "a"])] = made(extra)
        return found
    if kind == "null":
        return None
    return draw.choice([*BOUNDARIES, *TEXTS, [], {}, None])


def _number(part: Mapping[str, Any], draw: Random, beside: list[Any] | None) -> Any:
    low = part.get("minimum", part.get("exclusiveMinimum", 0))
    high = part.get("maximum", part.get("exclusiveMaximum", 2**62))
    integer = part["type"] == "integer"
    choices = [*BOUNDARIES, low, high]
    if not integer and draw.random() < 0.6:
        choices = [0, 0.1, 0.5, 0.9, 1, 1.1, 2, 5, 50, 90]
    elif beside and None not in beside and draw.random() < 0.85:
        one, most, least = draw.choice(beside), int(sum(beside)), int(max(beside))
        between = [draw.randrange(least, most + 1)] * 3 if 0 <= least <= most else []
        choices = [*between, one - 1, one, one + 1, one * 2, one // 2]
        choices += [int(one * draw.uniform(*part)) for part in ((0, 1), (0.5, 1), (0.5, 1), (1, 3))]
    fitting = [
        one for one in choices if low <= one <= high and (isinstance(one, int) or not integer)
    ]
    return draw.choice(fitting or [low])


def option(request: Any, problem: str, draw: Random) -> None:
    """Give a request any value in any field of its own."""
    fields = _named(problem, whole(problem))["properties"]
    name = draw.choice(["method", *(field for field in fields if field != "problem")])
    request[name] = by_schema(problem, fields[name], draw, 1, near(request), name)


def enriched(request: dict[str, Any], problem: str, draw: Random) -> list[str]:
    """Give a request values in a few optional fields, also of its parts, and return which."""
    given = []
    for _ in range(draw.choice([1, 1, 1, 2, 2, 3])):
        top, *inner = _objects(request, problem)
        value, fields = draw.choice(inner) if inner and draw.random() < 0.25 else top
        again = {"method": fields["method"]} if "method" in fields else {}
        left = again | {
            name: part
            for name, part in fields.items()
            if type(value.get(name)) in (type(None), int, float)
        }
        # What is one of many fields of a family, and takes a search of its own, comes more often.
        often = [name for name in _SEARCHES if name in left]
        name = draw.choice([*left, *often, *often] or [""])
        if name:
            beside = near(request)
            if name in value and draw.random() < 0.7:
                beside.numbers[_unit(name)] = [value[name]]
            value[name] = by_schema(problem, left[name], draw, 1, beside, name)
            given.append(name)
    return given


_SEARCHES = ["method", "start_plan", "scenarios", "regret", "spread_ns", "target", "memory_bytes"]
_SEARCHES += ["memory_limit_bytes", "failed"]


def _objects(request: Any, problem: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each object of a request with the fields that it may have beside those it has."""
    rules = whole(problem)
    left = [(request, {**rules, **_named(problem, rules)})]
    while left:
        value, part = left.pop(0)
        if "$ref" in part:
            part = {**_named(problem, part), **part}
        if isinstance(value, dict):
            fields = part.get("properties", {})
            yield value, fields
            extra = part.get("additionalProperties")
            for name, item in value.items():
                rule = fields.get(name, extra)
                if isinstance(rule, dict) and name != "start_plan":
                    left.append((item, rule))
        elif isinstance(value, list) and isinstance(part.get("items"), dict):
            left += [(item, part["items"]) for item in value[:8] if isinstance(item, dict)]


@cache
def whole(problem: str) -> dict[str, Any]:
    """Return the schema of a problem's requests."""
    found: dict[str, Any] = schema(problem)["request"]
    return found


def _named(problem: str, part: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = whole(problem)["$defs"][part["$ref"].rpartition("/")[2]]
    return found


NUMBERS = [
    *("1E1000000000000000000000", "1e-9999999999999999999", "-0", "0e0", "1e400", "-1e400"),
    *("0.10000000000000000555", "1.50", "2.0000000000000000001", "1e-1001", "1e-999", "12e3"),
    *("NaN", "Infinity", "-Infinity", "0." + "3" * 3000, "9" * 5000, "0." + "1" * 1500, "01", "+1"),
]
MARK = "@number "
"""Begins a text that is written as the number after it."""


DAMAGES = (
    *("replace", "boundary", "scale", "drop", "misspell", "unknown", "longer", "shorter"),
    *("elsewhere", "limit", "option", "option", "option"),
)


def odd(draw: Random) -> Any:
    """Return a value of any type."""
    nested: Any = 0
    for _ in range(draw.choice([5, 50, 99, 101, 300])):
        nested = [nested] if draw.random() < 0.5 else {"a": nested}
    values = [
        *[one_of(*BOUNDARIES)] * 2,
        one_of(*TEXTS),
        MARK + draw.choice(NUMBERS),
        one_of(None, True, False, [], {}, [[]], {"": 0}, [None], ["a", 1]),
        [one_of(*BOUNDARIES)] * draw.randrange(5),
        nested,
        "".join(draw.choices(string.printable, k=draw.randrange(12))),
        chr(draw.choice([0xD800, 0xDFFF, 0x7F, 0x2028, 0x10FFFF])),
    ]
    return made(draw.choice(values), draw)


def damaged(request: Any, problem: str, draw: Random) -> None:
    """Change one thing in a request, mostly much."""
    if isinstance(request, dict):
        kind = draw.choice(DAMAGES)
        if kind == "option":
            option(request, problem, draw)
        elif kind == "limit":
            request["time_limit_s"] = draw.choice([1e-9, 1e-3, 0.01, 0.05, 0.2])
        else:
            _change(request, kind, draw)


def mutated(value: Any, draw: Random) -> None:
    """Change one thing in a value, mostly a little."""
    kinds = ["near", "near", "swap", "drop", "longer", "shorter", "elsewhere", "boundary"]
    _change(value, draw.choice(kinds), draw)


def _change(whole: Any, kind: str, draw: Random) -> None:
    inside = islice(places(whole), 4000)
    found: list[tuple[Any, Any]] = [(reduce(getitem, outer, whole), key) for *outer, key in inside]
    found = found or [({"": 0}, "")]
    where, key = draw.choice(found)
    value = where[key]
    match kind:
        case "near" if type(value) is int:
            where[key] += draw.choice([-1, 1])
        case "near" if type(value) is bool:
            where[key] = not value
        case "swap" if isinstance(where, list):
            other = draw.randrange(len(where))
            where[key], where[other] = where[other], value
        case "replace":
            where[key] = odd(draw)
        case "boundary" if isinstance(value, int | float):
            where[key] = draw.choice(BOUNDARIES)
        case "scale" if type(value) is int:
            where[key] = draw.choice([value * 2**20, value * 1000, value + 1, -value])
        case "drop":
            where.pop(key)
        case "misspell" if isinstance(where, dict):
            names = [key[:-1], key + "s", key.upper(), key + "\x00", "", "`" + key]
            where[draw.choice(names)] = value
        case "unknown" if isinstance(where, dict):
            where[draw.choice(TEXTS)] = odd(draw)
        case "longer" if isinstance(value, list) and len(value) < 1000:
            where[key] = value * draw.choice([2, 3, 100])
        case "shorter" if isinstance(value, list):
            where[key] = value[: draw.choice([0, 1, len(value) // 2])]
        case "elsewhere":
            other, place = draw.choice(found)
            where[key] = json.loads(json.dumps(other[place]))


def written(request: Any, draw: Random) -> bytes:
    """Return a request as JSON text, sometimes in an odd spelling."""
    text = json.dumps(request, ensure_ascii=draw.random() < 0.8)
    for number in NUMBERS:
        text = text.replace(f'"{MARK}{number}"', number)
    if draw.random() < 0.01:
        text = text.replace("{", '{"problem": "ibatch", ', 1)  # a key twice
    if draw.random() < 0.01:
        cut = draw.randrange(len(text))
        put = draw.choice(["", "}", "]", ",", "\x00", "\\ud800", "'"])
        text = f"{text[:cut]}{put}{text[cut + 1 :]}"
    if draw.random() < 0.05:
        text = text.replace("0.5", "0.50000000000000011102").replace("p", "\\u0070")
    data = text.encode("utf-8", "surrogatepass")
    if draw.random() < 0.005:
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
