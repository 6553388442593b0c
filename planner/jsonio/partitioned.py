"""The JSON form of what Yan's search finds for a whole job."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.iteration.partitioned import Partitioned
from planner.jsonio.types import Moment

__all__ = ["CutAnswer", "PartitionedAnswer", "partitioned_answer"]

Number = Annotated[int, Meta(ge=1)]


class CutAnswer(Struct, frozen=True, kw_only=True):
    """How one layer is run in a replica."""

    name: str
    partitions: Number
    threads: Number
    copies: Number


class PartitionedAnswer(Struct, frozen=True, kw_only=True):
    """Servers, replicas and cut layers by Yan's search; or why there are none."""

    status: str | UnsetType = UNSET
    epoch_ns: Moment | UnsetType = UNSET
    lower_bound_ns: Moment | UnsetType | None = UNSET
    parameter_servers: Number | UnsetType = UNSET
    replicas: Number | UnsetType = UNSET
    workers_per_replica: Number | UnsetType = UNSET
    layers: tuple[CutAnswer, ...] | UnsetType = UNSET
    assumptions: tuple[str, ...] | UnsetType = UNSET
    reason: str | UnsetType = UNSET


def partitioned_answer(partitioned: Partitioned) -> PartitionedAnswer:
    """Return the JSON form."""
    made, result = partitioned.made, partitioned.result
    if made is None or result is None or result.plan is None or result.objective_ns is None:
        return PartitionedAnswer(reason=partitioned.reason)
    configuration = result.plan.configuration
    return PartitionedAnswer(
        status=result.status,
        epoch_ns=result.objective_ns,
        lower_bound_ns=result.lower_bound_ns,
        parameter_servers=configuration.parameter_servers,
        replicas=configuration.replicas,
        workers_per_replica=configuration.workers_per_replica,
        layers=tuple(
            CutAnswer(
                name=layer.name,
                partitions=choice.partitions,
                threads=choice.threads,
                copies=choice.copies,
            )
            for layer, choice in zip(made.problem.layers, configuration.layers, strict=True)
        ),
        assumptions=made.assumptions,
    )
