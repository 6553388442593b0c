"""Short names for sets of parameters, for rows of pictures of about thirty characters.

Guarantee: the text is not longer than requested, unless even the count is; it shows whole
components of names only.
Complexity: O(components of the first and last name). Source: own.
"""

from collections.abc import Iterator, Sequence

from planner.units import counted

__all__ = ["module_range"]

_MOST = 3
"""Up to this number of parameters, all names are listed if they fit."""


def module_range(names: Sequence[str], length: int) -> str:
    """Return a name for some parameters, of at most `length` characters.

    One parameter gets its name; two or three get all their names if these fit. Otherwise the first
    and last module are given, with their common prefix once: ``features.28 – 34``. If that is too
    long, inner modules are left out, then outer ones (replaced by ``…``); the last resort is a
    count.
    """
    texts = _of_one(names[0]) if len(names) == 1 else _of_several(names)
    return next((text for text in texts if len(text) <= length), counted(len(names), "parameter"))


def _of_one(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield name
    for left_out in range(1, len(parts)):
        yield "…" + ".".join(parts[left_out:])


def _of_several(names: Sequence[str]) -> Iterator[str]:
    if len(names) <= _MOST:
        yield ", ".join(names)
    first, last = (_module(name) for name in (names[0], names[-1]))
    pairs = list(zip(first, last, strict=False))
    common = next((at for at, (left, right) in enumerate(pairs) if left != right), len(pairs))
    if first == last:
        yield f"{'.'.join(first)} ({counted(len(names), 'parameter')})"
        yield from _of_one(".".join(first))
        return
    for left_out in range(max(common, 1)):
        for depth in range(max(len(first), len(last)), common, -1):
            start, end = first[left_out:depth], last[common:depth]
            if not start or not end:  # one module contains the other
                continue
            yield f"{'…' if left_out else ''}{'.'.join(start)} – {'.'.join(end)}"


def _module(name: str) -> list[str]:
    """Return the components of a parameter's module; a name without dots is its own module."""
    parts = name.split(".")
    return parts[:-1] or parts
