"""Documents with something changed, by its place."""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

Steps = tuple[str | int, ...]


def patched(document: Any, changes: dict[str, Any]) -> Any:
    """Return a document with values at places such as ``a.b[0].c``; `...` leaves one out."""
    new = deepcopy(document)
    for place, value in changes.items():
        put(new, steps_of(place), deepcopy(value))
    return new


def put(document: Any, steps: Steps, value: Any) -> None:
    """Set the value at a place, or leave it out if the value is `...`."""
    *outer, last = steps
    for step in outer:
        document = document[step]
    if value is ...:
        del document[last]
    else:
        document[last] = value


def steps_of(place: str) -> Steps:
    """Return the keys and numbers that a place consists of."""
    found = re.findall(r"([^.\[\]]+)|\[(\d+)\]", place)
    return tuple(name or int(number) for name, number in found)


def text_of(steps: Steps) -> str:
    """Return a place as errors name it."""
    text = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in steps)
    return text.removeprefix(".")


def places(value: Any, steps: Steps = (), most: int | None = None) -> Iterator[Steps]:
    """Yield the place of everything in a document; of long lists the first `most` rows."""
    if steps:
        yield steps
    items = value.items() if isinstance(value, dict) else ()
    for key, item in enumerate(value[:most]) if isinstance(value, list) else items:
        yield from places(item, (*steps, key), most)
