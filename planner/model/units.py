"""Read and write times, sizes and rates with units, exactly.

``50us``, ``0.1 ms``; ``25MiB``; ``10Gb/s`` (bits), ``1.25GB/s`` (bytes). A number without a unit is
an error, since 100 could mean ns or s.
"""

import re
from fractions import Fraction

from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_VALUE, shown

_TIMES = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_NUMBER = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,2})?)\s*([^\s\d].*?)\s*")


def parse_time(text: str, path: str) -> int:
    """Return a time such as ``50us`` in whole nanoseconds, rounded; errors carry `path`."""
    amount, unit = _split(text, path, "a time such as 50us or 0.1ms")
    if unit not in _TIMES:
        raise InvalidInputError(path, f"expected a time in ns, us, ms or s, got {shown(text)}")
    return _whole(amount * _TIMES[unit], path, text)


def parse_bytes(text: str, path: str) -> int:
    """Return a size such as ``25MiB`` in bytes; errors carry `path`."""
    amount, unit = _split(text, path, "a size such as 25MiB or 100kB")
    scale = {**_PREFIXES, **_BINARY}.get(unit.removesuffix("B"))
    if scale is None or not unit.endswith("B"):
        raise InvalidInputError(path, f"expected a size in B, kB, MB, MiB, …, got {shown(text)}")
    return _whole(amount * scale, path, text)


def parse_rate(text: str, path: str) -> Fraction:
    """Return a rate such as ``10Gb/s`` or ``1.25GB/s`` in bytes per second, exactly.

    Raises InvalidInputError at `path` if the text is not a rate, or zero.
    """
    example = "a rate such as 10Gb/s (bits) or 1.25GB/s (bytes)"
    amount, unit = _split(text, path, example)
    match = re.fullmatch(r"([kKMGT]?i?)(b|bit|B)(?:/s|ps)", unit)
    scales = {**_PREFIXES, **_BINARY}
    if match is None or match[1] not in scales or amount == 0:
        raise InvalidInputError(path, f"expected {example}, got {shown(text)}")
    return amount * scales[match[1]] / (1 if match[2] == "B" else 8)


def _split(text: str, path: str, example: str) -> tuple[Fraction, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise InvalidInputError(path, f"expected {example}, got {shown(text)}")
    return Fraction(match[1]), match[2]


def _whole(amount: Fraction, path: str, text: str) -> int:
    if amount > MAX_VALUE:
        raise InvalidInputError(path, f"expected at most 2^62 ns or bytes, got {shown(text)}")
    return round(amount)


def unit_of(time: int) -> tuple[str, int]:
    """Return the largest unit that fits a time (ns), and the unit's length in ns."""
    for unit, scale in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if time >= scale:
            return unit, scale
    return "ns", 1


def format_ns(time: int) -> str:
    """Return a time with four significant digits and a fitting unit."""
    unit, scale = unit_of(time)
    return f"{time} ns" if scale == 1 else f"{time / scale:.4g} {unit}"


def byte_unit(size: int) -> tuple[str, int]:
    """Return the largest binary unit that fits a size, and the unit's bytes."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return unit, scale
    return "B", 1


def format_bytes(size: int, like: int | None = None) -> str:
    """Return a size with four significant digits and a fitting binary unit.

    `like` is the largest of several sizes shown together, which all get its unit.
    """
    unit, scale = byte_unit(size if like is None else like)
    if scale == 1:
        return f"{size} B"
    return f"<0.0001 {unit}" if 0 < size / scale < 1e-4 else f"{size / scale:.4g} {unit}"


def three_digits(number: float) -> str:
    """Return a number with three significant digits, without decimals from 1,000 on: 0.93, 1,010.

    Large numbers get an exponent: 2e+12.
    """
    return f"{number:,.0f}" if 1000 <= number < 10**9 else f"{number:.3g}"


def format_factor(factor: float) -> str:
    """Return a factor in words, such as ``2.5 times as much``.

    A factor that three digits cannot tell from 1 is ``a little more`` or ``a little less``.
    """
    if 0.995 < factor < 1.005:
        return "a little more" if factor > 1 else "a little less"
    return f"{three_digits(factor)} times as much"


def format_rate(bytes_per_s: float | Fraction) -> str:
    """Return a rate in bits per second, with four significant digits."""
    bits = float(8 * bytes_per_s)
    for scale, unit in ((1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s")):
        if bits >= scale:
            return f"{bits / scale:.4g} {unit}"
    return f"{bits:.4g} b/s"


def format_share(share: float | None) -> str:
    """Return a relative distance, such as that to a bound, in percent; "?" if it is unknown."""
    if share is None:
        return "?"
    return "<0.01%" if 0 < share < 5e-5 else f"{share:.2%}"


def counted(count: int, what: str, many: str = "") -> str:
    """Return a number with its noun, such as "1 layer" and "1,024 workers".

    `many` is the plural; by default `what` with an s.
    """
    return f"{count:,} {what if count == 1 else many or f'{what}s'}"


# ---
# Make text from files safe to show in a terminal, a picture or a page.
#
# Escape sequences can move the cursor, hide text or write to the clipboard, and direction marks can
# reverse a line. These functions replace all such characters.

_ODD = re.compile(r"[^\x20-\x7e]")


def printable(text: str, keep: str = "") -> str:
    """Return `text` with a mark for each unprintable character, except those in `keep`."""
    return _ODD.sub(lambda match: match[0] if _shown(match[0], keep) else "�", text)


def escaped(text: str, keep: str = "") -> str:
    """Return `text` with unprintable characters as Python escapes, except those in `keep`."""
    return _ODD.sub(
        lambda match: match[0] if _shown(match[0], keep) else ascii(match[0])[1:-1], text
    )


def escaped_json(document: bytes) -> bytes:
    """Return the same JSON, in UTF-8, with unprintable characters escaped."""
    if document.isascii() and b"\x7f" not in document:  # valid JSON escapes other controls
        return document
    text = document.decode()
    return _ODD.sub(lambda match: _in_json(match[0]), text).encode()


def _shown(character: str, keep: str) -> bool:
    return character.isprintable() or character in keep


def _in_json(character: str) -> str:
    if _shown(character, "\n\t\r"):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
