"""Names of parameters as people say them: from which module to which, in whole words.

Problem. A transfer carries dozens of parameters with long dotted names, and a row of a picture has
room for thirty characters.

Guarantee. What is returned is at most as long as asked for, unless even the count is longer, and
whatever of a name it shows are whole components: nothing is cut in the middle.

Complexity. O(components of the first and the last name).

Source. Own.
"""

from collections.abc import Iterator, Sequence

from planner.units import counted

__all__ = ["module_range"]

_MOST = 3
"""So many names are all said if there is room."""


def module_range(names: Sequence[str], length: int) -> str:
    """Return what some parameters are called, in at most `length` characters.

    One is called by its name, two or three by theirs if there is room, others by the first and the
    last module, whose common beginning stands there once: ``features.28 – 34``. If that is
    too long, inner modules are left out, then outer ones, with ``…`` in their place; at last
    there is only a count.

    Parameters
    ----------
    names : sequence of str
        At least one, dotted.
    length : int
        How much room there is, in characters.
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
            if not start or not end:  # one of them is inside the other
                continue
            yield f"{'…' if left_out else ''}{'.'.join(start)} – {'.'.join(end)}"


def _module(name: str) -> list[str]:
    """Return the components of what a parameter belongs to; its own name if that is all."""
    parts = name.split(".")
    return parts[:-1] or parts
