"""The lines of a program's output without what launchers put before each of them.

Problem: ``mpirun --tag-output``, ``srun -l``, pdsh, ``kubectl logs --prefix --timestamps``, Docker
compose and others put a prefix before each line; there is no complete list of them.

Method: a program's table has a header that nobody else prints. What stands before it on its line is
the prefix. Other lines have the same prefix, but for digits and spaces: those are a time of day, a
rank or padding. Lines without it are passed on unchanged, so that the reader sees them.

Several processes that print a table each may be mixed: a header's prefix comes again behind another
header's. Then lines are put in the order of their prefixes, so that each table is whole.

Guarantee: only what matches a header's prefix from the start of a line is taken away.

Complexity: O(characters · log headers). Source: own.
"""

import re
from bisect import bisect_right
from collections import Counter
from typing import NamedTuple

__all__ = ["PrintedLine", "printed_lines"]

_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_PARTS = re.compile(r"([0-9]+|\s+)")


class PrintedLine(NamedTuple):
    """A line of a program's output.

    Attributes
    ----------
    number : int
        Of the line in the file, from 1.
    prefix : str
        What a launcher put before it, without spaces around it.
    text : str
        The line without the prefix.
    """

    number: int
    prefix: str
    text: str


class _Header(NamedTuple):
    place: int
    prefix: str
    pattern: re.Pattern[str]


def printed_lines(text: str, header: re.Pattern[str], word: str) -> list[PrintedLine]:
    """Return the lines of an output.

    Parameters
    ----------
    text : str
        All of it.
    header : re.Pattern
        Finds the header of a table in a line; what stands before the match is a prefix.
    word : str
        Of the header: lines without it are not searched, which takes long.
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
    """Return what matches a prefix, whatever its digits and its spaces are."""
    if not prefix.strip():
        return re.compile("")
    parts = [
        "[0-9]+" if part[0] in "0123456789" else r"\s*" if part.isspace() else re.escape(part)
        for part in _PARTS.split(prefix.strip())
        if part
    ]
    # Where a space follows, nothing else may: the digits of a row are no rank's.
    end = r"(?=\s|$)" if prefix[-1].isspace() else ""
    return re.compile(r"\s*" + "".join(parts) + end)


def _mixed(lines: list[PrintedLine], headers: list[_Header]) -> bool:
    """Return whether a header's prefix comes again behind a header with another prefix."""
    last = {line.prefix: line.number - 1 for line in lines if line.prefix}
    places = [known.place for known in headers]
    own = Counter(known.prefix for known in headers)
    first = {known.prefix: known.place for known in reversed(headers)}
    return any(
        bisect_right(places, last.get(prefix, 0)) - bisect_right(places, first[prefix] - 1) > count
        for prefix, count in own.items()
    )
