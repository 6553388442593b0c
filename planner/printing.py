"""What a terminal, a picture or a page can show of a text that came from a file.

Escape sequences move the cursor, hide what stands before them or write to the clipboard, and marks
of writing direction turn a line around: none of them is shown as it is.
"""

import re

__all__ = ["escaped", "escaped_json", "printable"]

_ODD = re.compile(r"[^\x20-\x7e]")


def printable(text: str, keep: str = "") -> str:
    """Return `text` with a mark in place of what cannot be shown, but for characters in `keep`."""
    return _ODD.sub(lambda match: match[0] if _shown(match[0], keep) else "�", text)


def escaped(text: str, keep: str = "") -> str:
    """Return `text` with what cannot be shown as Python writes it, but for `keep`."""
    return _ODD.sub(
        lambda match: match[0] if _shown(match[0], keep) else ascii(match[0])[1:-1], text
    )


def escaped_json(document: bytes) -> bytes:
    """Return the same JSON, in UTF-8, without characters that cannot be shown."""
    if document.isascii() and b"\x7f" not in document:  # the others of ASCII are escapes already
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
