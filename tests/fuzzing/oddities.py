"""Values no field expects, damage to requests, and odd ways to write them."""

import json
import string
from decimal import Decimal
from functools import reduce
from itertools import islice
from operator import getitem
from random import Random
from typing import Any

from tests.fuzzing.fields import BOUNDARIES, TEXTS, option
from tests.fuzzing.parts import made, one_of
from tests.jsonio.requests import places

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


def nested(draw: Random) -> Any:
    value: Any = 0
    for _ in range(draw.choice([5, 50, 99, 101, 300])):
        value = [value] if draw.random() < 0.5 else {"a": value}
    return value


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
    found = _places(whole)
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


def _places(value: Any, most: int = 4000) -> list[tuple[Any, Any]]:
    """Return containers and keys in them, everywhere."""
    known = islice(places(value), most)
    return [(reduce(getitem, outer, value), key) for *outer, key in known] or [({"": 0}, "")]


def written(request: Any, draw: Random) -> bytes:
    """Return a request as JSON text, sometimes in an odd spelling."""
    text = json.dumps(request, ensure_ascii=draw.random() < 0.8)
    for number in NUMBERS:
        text = text.replace(f'"{MARK}{number}"', number)
    if draw.random() < 0.01:
        text = text.replace("{", '{"problem": "ibatch", ', 1)  # a key twice
    if draw.random() < 0.01:
        cut = draw.randrange(len(text))
        text = (
            text[:cut] + draw.choice(["", "}", "]", ",", "\x00", "\\ud800", "'"]) + text[cut + 1 :]
        )
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
