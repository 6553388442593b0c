"""The scalar types of the JSON interface, with their ranges and units."""

from typing import Annotated

from msgspec import Meta

from planner.validation import MAX_VALUE

__all__ = ["LayerRange", "PositiveSize", "Rows", "Seconds", "Size", "Sizes", "Time", "Times"]

Time = Annotated[int, Meta(ge=0, le=MAX_VALUE, description="nanoseconds")]
Size = Annotated[int, Meta(ge=0, le=MAX_VALUE, description="bytes")]
PositiveSize = Annotated[int, Meta(ge=1, le=MAX_VALUE, description="bytes")]
Times = Annotated[
    tuple[Time, ...], Meta(min_length=1, description="one value a layer, layer 0 first")
]
Sizes = Annotated[
    tuple[Size, ...], Meta(min_length=1, description="one value a layer, layer 0 first")
]
Rows = Annotated[
    tuple[tuple[Size, Time], ...],
    Meta(
        min_length=2,
        description="measured [bytes, ns] pairs, bytes increasing; linear between, extended by the "
        "last slope",
    ),
]
Seconds = Annotated[float, Meta(gt=0, le=1e9, description="seconds")]
LayerRange = Annotated[tuple[int, int], Meta(description="half-open: [a, b] holds layers a … b-1")]
