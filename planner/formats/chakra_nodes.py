"""The wire format of Chakra's execution traces: a file's version, and its nodes.

Source: et_def.proto of mlcommons/chakra 1.0.0 (schema version 0.0.4): a file is a GlobalMetadata
and Nodes, each preceded by its length. Attributes have the types that Chakra's feeder reads.
Complexity: linear in the bytes.
"""

from collections.abc import Iterable, Mapping

__all__ = ["COLLECTIVE", "COMPUTE", "RECEIVE", "SEND", "node", "trace"]

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
"""Values of the enumeration NodeType."""

_VERSION = "0.0.4"
_ATTRIBUTES = {
    "comm_type": 9,
    "comm_size": 9,
    "comm_src": 7,
    "comm_dst": 7,
    "comm_tag": 7,
}
"""The field number of each attribute's value: int64 (9) or int32 (7)."""


def trace(nodes: Iterable[bytes]) -> bytes:
    """Return a file of nodes."""
    return b"".join(_sized(message) for message in (_text(1, _VERSION), *nodes))


def node(
    number: int,
    name: str,
    kind: int,
    waits: Iterable[int],
    micros: int,
    attributes: Mapping[str, int],
) -> bytes:
    """Return a Node with its dependencies `waits`, its time and attributes."""
    message = _integer(1, number) + _text(2, name) + _integer(3, kind)
    needs = b"".join(map(_varint, sorted(waits)))
    message += _bytes(5, needs) if needs else b""
    message += _integer(7, micros) if micros else b""
    message += _bytes(10, _text(1, "is_cpu_op") + _integer(27, 0))
    for key, value in attributes.items():
        message += _bytes(10, _text(1, key) + _integer(_ATTRIBUTES[key], value))
    return message


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _sized(value)


def _sized(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Return a number >= 0 in groups of seven bits, the lowest first."""
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)
