"""Streams the events of a trace file, thousands at a time.

Problem: a trace is one JSON document, ``{..., "traceEvents": [...], ...}`` or ``[...]``, possibly
compressed, of gigabytes; decoded at once it takes many times its length in memory. Method: the text
is read in pieces. A piece is cut behind the last ``}`` before a ``, {`` and decoded as an array: if
text from an event to the cut is an array, the cut is between two events, as JSON has one meaning.
Otherwise (the cut is inside an event, or the array ends before it) brackets and strings are parsed.
Guarantee: the events, or the error with its place, are those of the whole document. Memory is that
of two pieces and the longest event. Control characters in strings are read, and bytes that are no
UTF-8 become U+FFFD, as profilers write names unchecked.
Complexity: O(length). Source: own; Google's description of the Trace Event Format for the forms.
"""

import io
import re
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, BinaryIO, Generic, TypeVar

import msgspec

from planner.model.errors import InvalidInputError

T = TypeVar("T")

PIECE = 1 << 22  # bytes that are read at once
MAX_OUTSIDE = 1 << 26  # largest size of one event, and of everything besides the events (bytes)

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{}]', re.DOTALL)
"""A string, a bracket, or the start of a string without end."""
_KEY = b'"traceEvents"'
_ARRAY = re.compile(rb"\s*:\s*\[")
_COLON = re.compile(rb"\s*(:\s*)?\Z")
_BETWEEN = re.compile(rb"\}(\s*),(?=\s*\{)")
_NEAR = 1 << 16  # bytes at the end of a piece in which a cut is sought
_TRIES = 3
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x1f]")
_PLACE = re.compile(r"\(byte (\d+)\)")


def decoded(decoder: "msgspec.json.Decoder[T]", text: bytes) -> T:
    """Decode JSON whose strings may hold control characters and bytes that are no UTF-8."""
    try:
        return decoder.decode(text)
    except UnicodeDecodeError:
        return decoder.decode(_STRING.sub(_mended, text))
    except msgspec.DecodeError as error:
        place = _PLACE.search(str(error))
        if place is None or not _CONTROL.match(text, int(place[1])):
            raise
        try:
            return decoder.decode(_STRING.sub(_mended, text))
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            raise error from None  # the first error has the place in the original text


def _mended(string: re.Match[bytes]) -> bytes:
    """Return a string with control characters escaped and invalid UTF-8 replaced."""
    plain = string[0].decode(errors="replace").encode()
    return _CONTROL.sub(lambda match: b"\\u%04x" % match[0][0], plain)


class EventFile(Generic[T]):
    """A trace file that is read once, from start to end.

    `source` holds JSON or gzip of it; events are decoded as `kind`; at most `limit` bytes of text
    are read; `progress` is called with the bytes read so far. `outside` is, once all events are
    read, the document without them.
    """

    def __init__(
        self,
        source: bytes | BinaryIO,
        kind: type[T],
        *,
        limit: int,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._source = io.BytesIO(source) if isinstance(source, bytes) else source
        self._decoder: msgspec.json.Decoder[list[T]] = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
        self._limit = limit
        self._progress = progress or (lambda _: None)
        self._hash = sha256()
        self._start = 0  # position of the current piece in the text
        self._count = 0
        self.outside = b'{"traceEvents":[]}'

    @property
    def sha256(self) -> str:
        """Hash of what was read of the source."""
        return self._hash.hexdigest()

    def batches(self) -> Iterator[list[T]]:
        """Yield the events, some at a time."""
        pieces = self._text()
        before, text = self._before(pieces)
        if before is None:
            self.outside = text
            return
        while True:
            whole, text, after = self._cut(text)
            if whole:
                self._count += len(whole)
                yield whole
            if after:
                break
            if whole:
                continue
            if len(text) > MAX_OUTSIDE:
                raise InvalidInputError(
                    f"traceEvents[{self._count}]", f"expected at most {MAX_OUTSIDE} bytes"
                )
            more = next(pieces, b"")
            if not more and before == b"[":  # the end of a bare array may be missing
                yield self._decoded(text.rstrip().removesuffix(b","))
                return
            if not more:
                raise InvalidInputError("", f"not JSON: {self._early()}")
            text += more
        rest = [text]
        while more := next(pieces, b""):
            rest.append(more)
            if sum(map(len, rest)) > MAX_OUTSIDE:
                raise InvalidInputError("", f"expected at most {MAX_OUTSIDE} bytes beside events")
        if before != b"[":
            self.outside = b"".join([before, *rest])

    def _text(self) -> Iterator[bytes]:
        """Yield the text, uncompressed."""
        unpack = None
        read = length = 0
        while data := self._source.read(PIECE):
            if not read and data.startswith(b"\x1f\x8b"):
                unpack = zlib.decompressobj(wbits=31)
            read += len(data)
            self._hash.update(data)
            self._progress(read)
            for piece in [data] if unpack is None else self._unpacked(unpack, data):
                if not piece:
                    continue
                text = piece if length else piece.removeprefix(b"\xef\xbb\xbf")
                length += len(piece)
                if length > self._limit:
                    raise InvalidInputError(
                        "",
                        f"expected at most {self._limit} bytes of text: record fewer steps, or "
                        "without with_stack",
                    )
                yield text
        if unpack is not None and not unpack.eof:
            raise InvalidInputError("", f"not gzip: {self._early()}")

    def _unpacked(self, unpack: Any, data: bytes) -> Iterator[bytes]:
        try:
            while data:
                yield unpack.decompress(data, PIECE)
                data = unpack.unconsumed_tail
        except zlib.error as error:
            raise InvalidInputError("", f"not gzip: {error}") from None

    def _early(self) -> str:
        return (
            f"the file ends early, after {self._count:,} whole events; kernels and ranges may be "
            "among those that are missing: let the profiler finish before the file is copied"
        )

    def _before(self, pieces: Iterator[bytes]) -> tuple[bytes | None, bytes]:
        """Return the text up to the bracket of the events, and the text behind it.

        Without an array of events: None and the whole text.
        """
        text, at, depth = b"", 0, 0
        while more := next(pieces, b""):
            text += more
            if text.lstrip()[:1] == b"[":
                self._start = text.index(b"[") + 1
                return b"[", text[self._start :]
            while (token := _TOKEN.search(text, at)) is not None:
                if token[0] == b'"':
                    break  # the string goes on
                if token[0] == _KEY and depth == 1:
                    if _COLON.match(text, token.end()):
                        break
                    if array := _ARRAY.match(text, token.end()):
                        self._start = array.end()
                        return text[: array.end()], text[array.end() :]
                depth += (token[0] in b"[{") - (token[0] in b"]}")
                at = token.end()
            if len(text) > MAX_OUTSIDE:
                raise InvalidInputError(
                    "traceEvents", f"expected in the first {MAX_OUTSIDE} bytes of the file"
                )
        return None, text

    def _cut(self, text: bytes) -> tuple[list[T], bytes, bool]:
        """Return the events at the start of a text, the rest, and whether the array ended."""
        near = max(len(text) - _NEAR, 0)
        for cut in list(_BETWEEN.finditer(text, near))[: -_TRIES - 1 : -1]:
            try:
                events = self._decoded(text[: cut.start() + 1])
            except InvalidInputError as error:
                if error.path:
                    raise
            else:
                self._start += cut.end()
                return events, text[cut.end() :], False
        depth, whole = 0, 0
        for token in _TOKEN.finditer(text):
            bracket = token[0]
            if bracket == b'"':
                break
            if bracket in (b"{", b"["):
                depth += 1
            elif bracket in (b"}", b"]"):
                if not depth:
                    events = self._decoded(text[: token.start()].rstrip().removesuffix(b","))
                    return events, text[token.start() :], True
                depth -= 1
                whole = whole if depth else token.end()
        if not whole:
            return [], text, False
        events = self._decoded(text[:whole])
        behind = text[whole:].lstrip()
        if behind and not behind.startswith(b","):
            # What follows an event is neither a comma nor the end: the error is that of JSON.
            self._decoded(text)
        if not behind:
            return [], text, False  # whether a comma follows is not known yet
        self._start += len(text) - len(behind) + 1
        return events, behind[1:], False

    def _decoded(self, text: bytes) -> list[T]:
        if not text.strip():
            return []
        try:
            return decoded(self._decoder, b"[" + text + b"]")
        except msgspec.ValidationError as error:
            raise _typed(error, self._count) from None
        except msgspec.DecodeError as error:
            place = re.sub(
                r"\(byte (\d+)\)",
                lambda match: f"(byte {self._start + int(match[1]) - 1})",
                str(error),
            )
            raise InvalidInputError("", f"not JSON: {place}") from None
        except RecursionError:
            raise InvalidInputError("", "not acceptable JSON: nested too deeply") from None


def _typed(error: msgspec.ValidationError, before: int) -> InvalidInputError:
    """Return the error of an event, with its position in the whole file."""
    message, place = in_words(error)
    inner = re.match(r"\[(\d+)\](.*)$", place)
    path = f"traceEvents[{before + int(inner[1])}]{inner[2]}" if inner else "traceEvents"
    message = message.replace(" | null,", ",").replace("int | decimal", "number")
    if "decimal" in message or "out of range" in message:
        message = "expected a number of microseconds"
    return InvalidInputError(path, message)


def in_words(error: Exception) -> tuple[str, str]:
    """Return msgspec's message in plain words, and the place in the document that it names."""
    message, _, place = str(error).partition(" - at `$")
    return (message[:1].lower() + message[1:]).replace("`", ""), place.rstrip("`")
