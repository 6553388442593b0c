"""The JSON interface; no other package reads or writes JSON documents."""

from planner.jsonio.files import read_cluster, read_profile, shipped_clusters
from planner.jsonio.profiles import decode_profile, encode_profile
from planner.jsonio.results import decode_plan, decode_result, encode_plan, encode_result
from planner.jsonio.schema import schema
from planner.jsonio.service import (
    PROBLEMS,
    Reply,
    decode_answer,
    decode_request,
    reply,
    solve,
    solve_or_raise,
)
from planner.jsonio.streams import (
    CancellableLines,
    limited_replies,
    one_message,
    read_lines,
    solve_many,
)

__all__ = [
    "PROBLEMS",
    "CancellableLines",
    "Reply",
    "decode_answer",
    "decode_plan",
    "decode_profile",
    "decode_request",
    "decode_result",
    "encode_plan",
    "encode_profile",
    "encode_result",
    "limited_replies",
    "one_message",
    "read_cluster",
    "read_lines",
    "read_profile",
    "reply",
    "schema",
    "shipped_clusters",
    "solve",
    "solve_many",
    "solve_or_raise",
]
