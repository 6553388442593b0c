"""The JSON interface: the only place that knows JSON."""

from planner.jsonio.profiles import decode_profile, encode_profile
from planner.jsonio.schema import schema
from planner.jsonio.service import (
    PROBLEMS,
    Reply,
    decode_answer,
    decode_request,
    reply,
    solve,
)
from planner.jsonio.streams import limited_replies, one_message, read_lines

__all__ = [
    "PROBLEMS",
    "Reply",
    "decode_answer",
    "decode_profile",
    "decode_request",
    "encode_profile",
    "limited_replies",
    "one_message",
    "read_lines",
    "reply",
    "schema",
    "solve",
]
