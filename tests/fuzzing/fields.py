"""Optional fields of requests, found in their schemas: an option that is new is asked at once."""

from collections.abc import Iterator, Mapping
from functools import cache
from random import Random
from typing import Any, NamedTuple

from planner.jsonio import schema

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
    """Return what a request holds."""
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
        chosen = [
            name for name in properties if name in needed or draw.random() < 0.3 / (depth + 1)
        ]
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
