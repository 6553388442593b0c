"""Smaller requests with the same fault."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial, reduce
from operator import getitem
from typing import Any


def smallest(request: Any, same: Callable[[Any], bool], tries: int) -> Any:
    """Return a request that is as small as can be, and for which `same` still holds.

    `same` is asked at most `tries` times.
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
            yield partial(_cut, length=length, begin=0, end=length // 2)
            for place in range(length):
                yield partial(_cut, length=length, begin=place, end=place + 1)
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    for key, _ in items:
        yield partial(_drop, path=path, key=key)
    for key, item in items:
        if isinstance(item, dict | list):
            yield from _changes(item, (*path, key))
        elif type(item) in (int, float):
            for number in (0, 1, 2, item // 1000 if type(item) is int else 1, item - 1):
                if 0 <= number < item:
                    yield partial(_put, path=path, key=key, number=number)


def _cut(root: dict[str, Any], *, length: int, begin: int, end: int) -> None:
    for value in root.values():
        if isinstance(value, list) and len(value) == length:
            del value[begin:end]


def _drop(root: Any, *, path: tuple[Any, ...], key: Any) -> None:
    reduce(getitem, path, root).pop(key)


def _put(root: Any, *, path: tuple[Any, ...], key: Any, number: float) -> None:
    reduce(getitem, path, root)[key] = number
