"""Removes the prefixes that launchers put before each line of a program's output.

Problem: ``mpirun --tag-output``, ``srun -l``, pdsh, ``kubectl logs --prefix --timestamps``, Docker
compose and others have prefixes; no list is complete. Method: a table's header is unmistakable, so
what precedes it on its line is the prefix. Other lines have the same prefix up to digits and spaces
(times of day, ranks, padding); lines without it are passed on unchanged. If several processes'
tables are mixed (a header's prefix recurs behind another header), lines are sorted by prefix.
Guarantee: only what matches a header's prefix from the start of a line is removed.
Complexity: O(characters · log headers). Source: own.
"""

import re
from bisect import bisect_right
from collections import Counter
from typing import NamedTuple

_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_PARTS = re.compile(r"([0-9]+|\s+)")


class PrintedLine(NamedTuple):
    """A line of output: its number from 1, its stripped prefix, and the text without it."""

    number: int
    prefix: str
    text: str


class _Header(NamedTuple):
    place: int
    prefix: str
    pattern: re.Pattern[str]


def printed_lines(text: str, header: re.Pattern[str], word: str) -> list[PrintedLine]:
    """Return the lines of an output without prefixes.

    `header` finds the header of a table in a line. Only lines that contain `word` are searched for
    it, as searching takes long.
    """
    raw = _COLOURS.sub("", text).splitlines()
    headers = []
    for place, line in enumerate(raw):
        if word in line and (match := header.search(line)):
            before = line[: match.start()]
            headers.append(_Header(place, before.strip(), _pattern(before)))
    places = [known.place for known in headers]
    lines = []
    for place, line in enumerate(raw):
        after = bisect_right(places, place)
        matches = [
            match
            for known in headers[max(after - 1, 0) : after + 1]
            if (match := known.pattern.match(line))
        ]
        longest = max((match.end() for match in matches), default=0)
        lines.append(PrintedLine(place + 1, line[:longest].strip(), line[longest:]))
    if _mixed(lines, headers):
        lines.sort(key=lambda line: line.prefix)
    return lines


def _pattern(prefix: str) -> re.Pattern[str]:
    """Return a pattern for a prefix with any digits and spaces."""
    if not prefix.strip():
        return re.compile("")
    parts = [
        "[0-9]+" if part[0] in "0123456789" else r"\s*" if part.isspace() else re.escape(part)
        for part in _PARTS.split(prefix.strip())
        if part
    ]
    # If the prefix ends in a space, one must follow: the digits of a row are not part of a rank.
    end = r"(?=\s|$)" if prefix[-1].isspace() else ""
    return re.compile(r"\s*" + "".join(parts) + end)


def _mixed(lines: list[PrintedLine], headers: list[_Header]) -> bool:
    """Return whether a header's prefix recurs behind a header with another prefix."""
    last = {line.prefix: line.number - 1 for line in lines if line.prefix}
    places = [known.place for known in headers]
    own = Counter(known.prefix for known in headers)
    first = {known.prefix: known.place for known in reversed(headers)}
    return any(
        bisect_right(places, last.get(prefix, 0)) - bisect_right(places, first[prefix] - 1) > count
        for prefix, count in own.items()
    )
