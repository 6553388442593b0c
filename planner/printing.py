"""Make text from files safe to show in a terminal, a picture or a page.

Escape sequences can move the cursor, hide text or write to the clipboard, and direction marks can
reverse a line. These functions replace all such characters.
"""

import re

__all__ = ["escaped", "escaped_json", "printable"]

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
