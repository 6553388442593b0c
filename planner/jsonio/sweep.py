"""The file of a sweep: what is varied."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.jsonio.types import Seconds

__all__ = ["SweepDocument"]

Names = Annotated[tuple[str, ...], Meta(min_length=1)]
Values = Annotated[tuple[Any, ...], Meta(min_length=1)]


class SweepDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every profile on every cluster, with every combination of options."""

    profiles: Annotated[Names, Meta(description="files, also by patterns such as `*.json`")]
    clusters: Annotated[Names, Meta(description="files, patterns, or names of shipped clusters")]
    options: Annotated[
        dict[str, Values],
        Meta(description="values of fields of an `iteration` request, each a list"),
    ] = {}
    time_limit_s: Seconds | UnsetType = UNSET
