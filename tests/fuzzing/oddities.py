"""Values no field expects, damage to requests, and odd ways to write them."""

import json
import string
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

from tests.fuzzing.fields import BOUNDARIES, TEXTS, option

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


def mutated(value: Any, draw: Random) -> None:
    """Change one thing in a value, mostly a little."""
    where, key = draw.choice(list(_places(value)))
    change = draw.choice([_near, _near, _swap, _drop, _longer, _shorter, _elsewhere, _boundary])
    change(value, "", where, key, draw)


def _near(request: Any, problem: str, where: Any, key: Any, draw: Random) -> None:
    if type(where[key]) is int:
        where[key] += draw.choice([-1, 1])
    elif type(where[key]) is bool:
        where[key] = not where[key]


def _swap(request: Any, problem: str, where: Any, key: Any, draw: Random) -> None:
    if isinstance(where, list):
        other = draw.randrange(len(where))
        where[key], where[other] = where[other], where[key]


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
    option(request, problem, draw)


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
