"""Smaller requests with the same fault."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

__all__ = ["smallest"]


def smallest(request: Any, same: Callable[[Any], bool], tries: int) -> Any:
    """Return a request that is as small as can be, and for which something still holds.

    Parameters
    ----------
    request : object
        For which it holds.
    same : callable
        Returns whether it holds.
    tries : int
        How often it is asked at most.
    """
    smaller = True
    while smaller:
        smaller = False
        for change in _changes(request):
            if tries <= 0:
                return request
            candidate = deepcopy(request)
            change(candidate)
            if candidate != request and json.dumps(candidate) != json.dumps(request):
                tries -= 1
                if same(candidate):
                    request, smaller = candidate, True
                    break
    return request


def _changes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[Callable[[Any], None]]:
    """Yield what makes a value smaller, the largest steps first."""
    if not path:  # a layer less in every list that has as many
        lengths = {len(one) for one in value.values() if isinstance(one, list) and len(one) > 1}
        for length in sorted(lengths):
            yield lambda root, length=length: _cut(root, length, length // 2)
            for place in range(length):
                yield lambda root, length=length, place=place: _cut(root, length, 1, place)
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    for key, _ in items:
        yield lambda root, key=key: _at(root, path).pop(key)
    for key, item in items:
        if isinstance(item, dict | list):
            yield from _changes(item, (*path, key))
        elif type(item) in (int, float):
            for number in (0, 1, 2, item // 1000 if type(item) is int else 1, item - 1):
                if 0 <= number < item:
                    yield lambda root, key=key, number=number: _at(root, path).__setitem__(
                        key, number
                    )


def _cut(root: dict[str, Any], length: int, count: int, place: int = 0) -> None:
    for value in root.values():
        if isinstance(value, list) and len(value) == length:
            del value[place : place + count]


def _at(root: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        root = root[key]
    return root
