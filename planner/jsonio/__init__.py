"""The JSON interface; no other package reads or writes JSON documents.

Names load their modules at first use: to answer a request loads no readers of files and no schemas.
"""

from typing import TYPE_CHECKING

from planner.model.loading import loader

if TYPE_CHECKING:
    from planner.jsonio.clusters import read_cluster, shipped_clusters
    from planner.jsonio.interfaces import PROBLEMS
    from planner.jsonio.profiles import decode_profile, encode_profile, read_profile
    from planner.jsonio.results import decode_plan, encode_plan
    from planner.jsonio.schemas import schema
    from planner.jsonio.service import (
        Reply,
        decode_answer,
        decode_request,
        reply,
        solve,
        solve_or_raise,
    )
    from planner.jsonio.streams import solve_many

__all__ = [
    "PROBLEMS",
    "Reply",
    "decode_answer",
    "decode_plan",
    "decode_profile",
    "decode_request",
    "encode_plan",
    "encode_profile",
    "read_cluster",
    "read_profile",
    "reply",
    "schema",
    "shipped_clusters",
    "solve",
    "solve_many",
    "solve_or_raise",
]

__getattr__ = loader(
    __name__,
    {
        "clusters": ("read_cluster", "shipped_clusters"),
        "interfaces": ("PROBLEMS",),
        "profiles": ("decode_profile", "encode_profile", "read_profile"),
        "results": ("decode_plan", "encode_plan"),
        "schemas": ("schema",),
        "service": (
            *("Reply", "decode_answer", "decode_request"),
            *("reply", "solve", "solve_or_raise"),
        ),
        "streams": ("solve_many",),
    },
)
