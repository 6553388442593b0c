"""The JSON answers of scaling (Yan et al.), and the data of their pictures."""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.families.yan.configuration import (
    Configuration,
    LayerChoice,
    Plan,
    Ranked,
    check_segments,
)
from planner.families.yan.from_profile import ProfiledProblem
from planner.families.yan.model import Estimate
from planner.families.yan.problem import MAX_MACHINES, Problem
from planner.families.yan.segments import check_machines
from planner.jsonio.answer_base import WITH_PLAN, base_fields, check_base
from planner.jsonio.transfers import placed
from planner.jsonio.types import Index, Moment, as_document, says, unset_to_none
from planner.jsonio.what_if import WhatIfAnswer
from planner.model.errors import InvalidInputError
from planner.model.units import counted
from planner.model.validation import check_count, check_same, shown, total
from planner.solving.result import Result
from planner.solving.views import LayerTime, Point, Scaling, epoch_text

Machines = Annotated[int, Meta(ge=1, le=MAX_MACHINES)]
Number = Annotated[int, Meta(ge=1)]
Total = Annotated[int, Meta(ge=0)]


class ChoiceAnswer(Struct, frozen=True, kw_only=True):
    """How one layer is run."""

    partitions: Number
    threads: Number
    copies: Number


class MappedAnswer(ChoiceAnswer, frozen=True, kw_only=True):
    """How one layer is run, and on which worker of the replica each partition's copies are."""

    name: str
    mapping: tuple[tuple[Index, ...], ...]


class ConfigurationAnswer(Struct, frozen=True, kw_only=True):
    """How the job is spread over machines.

    Where machines differ, `machines` lists the servers' machines, then each replica's workers.
    """

    parameter_servers: Machines
    replicas: Machines
    workers_per_replica: Machines
    machines_used: Machines
    layers: Annotated[tuple[MappedAnswer, ...], Meta(min_length=1)]
    machines: tuple[Index, ...] | UnsetType = UNSET


class LayerBreakdown(Struct, frozen=True, kw_only=True):
    """The times that one layer adds to an epoch."""

    name: str
    forward_computation_ns: Moment
    forward_communication_ns: Moment
    backward_computation_ns: Moment
    backward_communication_ns: Moment
    weight_update_ns: Moment
    weight_reading_ns: Moment


class Breakdown(Struct, frozen=True, kw_only=True):
    """The parts of the time of an epoch, which add up to it."""

    layers: Annotated[tuple[LayerBreakdown, ...], Meta(min_length=1)]


class TopRow(Struct, frozen=True, kw_only=True):
    """The best configuration of a triple of workers, replicas and servers, or of some machines."""

    workers_per_replica: Machines
    replicas: Machines
    parameter_servers: Machines
    machines_used: Machines
    epoch_ns: Moment
    layers: Annotated[tuple[ChoiceAnswer, ...], Meta(min_length=1)]


class ExploredAnswer(Struct, frozen=True, kw_only=True):
    """The triples of the space that were visited, and the triples that bounds cut."""

    triples: Total
    triples_cut: Total


class YanAnswer(WhatIfAnswer, frozen=True, kw_only=True):
    """The configuration, the time of an epoch and a lower bound; or why there is no plan."""

    longest_ns: ClassVar[int] = 366 * 24 * 3600 * 10**9  # epochs of large data sets take days

    problem: Literal["yan"] = "yan"
    machines: Machines
    epoch_ns: Moment = WITH_PLAN
    configuration: ConfigurationAnswer = WITH_PLAN
    breakdown: Breakdown = WITH_PLAN
    top: tuple[TopRow, ...] | UnsetType = UNSET
    explored: ExploredAnswer | UnsetType = UNSET
    lower_bound_any_mapping_ns: Moment | UnsetType | None = UNSET
    pareto: tuple[TopRow, ...] | UnsetType = UNSET
    layers: tuple[Index, ...] | UnsetType = UNSET
    batch_size: Annotated[int, Meta(ge=1, description="samples that are one here")] | UnsetType = (
        UNSET
    )
    assumptions: Annotated[
        tuple[str, ...] | UnsetType, says("beyond the profile it was made of")
    ] = UNSET

    def sentence(self) -> str:
        """Return one line about the plan."""
        point = _point(self.configuration, self.epoch_ns)
        return (
            f"An epoch takes {epoch_text(self.epoch_ns)} with {point.words} on "
            f"{point.machines:,} of {counted(self.machines, 'machine')}"
        )


def answer(made: ProfiledProblem, result: Result[Plan, Estimate]) -> YanAnswer:
    """Return the JSON form of a result, with the assumptions beyond the profile.

    Raises InvalidInputError if an epoch takes more than 63 bits of nanoseconds.
    """
    problem = made.problem
    known = {
        **base_fields(YanAnswer, result),
        "machines": problem.machines,
        "batch_size": made.batch_size if made.assumptions else UNSET,
        "assumptions": made.assumptions or UNSET,
    }
    plan, estimate = result.plan, result.evaluation
    if plan is None:
        return YanAnswer(**known)
    assert estimate is not None
    return YanAnswer(
        **known,
        epoch_ns=_rounded(estimate.epoch),
        configuration=_configuration(problem, plan.configuration),
        breakdown=_breakdown(problem, estimate),
        top=top_rows(plan.ranking),
        explored=as_document(ExploredAnswer, plan.explored),
        lower_bound_any_mapping_ns=plan.any_mapping_bound_ns,
    )


def _rounded(epoch: Fraction) -> int:
    return total(-int(-epoch // 1), "samples", "an epoch in nanoseconds")


def _configuration(problem: Problem, configuration: Configuration) -> ConfigurationAnswer:
    return as_document(
        ConfigurationAnswer,
        configuration,
        layers=tuple(
            as_document(MappedAnswer, choice, name=layer.name)
            for layer, choice in zip(problem.layers, configuration.layers, strict=True)
        ),
    )


def _breakdown(problem: Problem, estimate: Estimate) -> Breakdown:
    """Return the times in whole nanoseconds; they add up to the epoch, rounded up."""
    phases = _whole([time for times in estimate.layers for time in times])
    rows = tuple(
        LayerBreakdown(name=layer.name, **{f"{phase}_ns": next(phases) for phase in times._fields})
        for layer, times in zip(problem.layers, estimate.layers, strict=True)
    )
    return Breakdown(layers=rows)


def _whole(times: Sequence[Fraction]) -> Iterator[int]:
    """Yield integers whose partial sums are the exact partial sums, rounded up."""
    exact, before = Fraction(0), 0
    for time in times:
        exact += time
        after = -int(-exact // 1)
        yield after - before
        before = after


def top_rows(ranking: Iterable[Ranked]) -> tuple[TopRow, ...]:
    """Return the JSON form of ranked configurations."""
    return tuple(
        as_document(TopRow, ranked.configuration, epoch_ns=_rounded(ranked.epoch))
        for ranked in ranking
    )


# ---
# Answers that are read back: their summary, and the data of their picture.


def scaling(answer: YanAnswer) -> Scaling:
    """Check an answer and return the data of its picture.

    Raises InvalidInputError, with a path, if there is no configuration or the parts contradict each
    other.
    """
    configuration, breakdown, epoch = answer.configuration, answer.breakdown, answer.epoch_ns
    check_base(answer, "configuration", costs="epoch_ns")
    anywhere = answer.lower_bound_any_mapping_ns
    if isinstance(anywhere, int) and anywhere > epoch:
        raise InvalidInputError("lower_bound_any_mapping_ns", f"more than epoch_ns ({epoch})")
    _check_configuration(configuration, answer.machines)
    layers = _layers(breakdown, configuration, epoch)
    best = _point(configuration, epoch)
    return Scaling(
        layers,
        best,
        _ranking(unset_to_none(answer.top) or (), best, len(configuration.layers)),
        _points(unset_to_none(answer.pareto) or (), "pareto"),
    )


def _point(triple: ConfigurationAnswer | TopRow, epoch_ns: int) -> Point:
    return Point(triple.workers_per_replica, triple.replicas, triple.parameter_servers, epoch_ns)


def _check_configuration(configuration: ConfigurationAnswer, machines: int) -> None:
    used = _point(configuration, 0).machines
    check_same(configuration.machines_used, used, "configuration.machines_used")
    if used > machines:
        raise InvalidInputError("machines", f"expected an integer >= {used}, got {machines}")
    for place, layer in enumerate(configuration.layers):
        choice = LayerChoice(layer.partitions, layer.threads, layer.copies, layer.mapping)
        if not layer.mapping:
            raise InvalidInputError(f"configuration.layers[{place}].mapping", "expected workers")
        check_segments(choice, configuration.workers_per_replica, f"configuration.layers[{place}]")
    if configuration.machines is not UNSET:
        check_machines(configuration.machines, used, machines, "configuration.machines")


def _layers(
    breakdown: Breakdown, configuration: ConfigurationAnswer, epoch: int
) -> tuple[LayerTime, ...]:
    count = len(configuration.layers)
    check_count(breakdown.layers, count, "breakdown.layers", "configuration.layers")
    for place, (row, choice) in enumerate(zip(breakdown.layers, configuration.layers, strict=True)):
        if row.name != choice.name:
            raise InvalidInputError(
                f"breakdown.layers[{place}].name", f"expected {shown(choice.name)}"
            )
    layers = tuple(
        LayerTime(
            row.name,
            (
                row.forward_computation_ns,
                row.backward_computation_ns,
                row.weight_update_ns,
                row.forward_communication_ns + row.backward_communication_ns,
                row.weight_reading_ns,
            ),
        )
        for row in breakdown.layers
    )
    if sum(layer.total_ns for layer in layers) != epoch:
        raise InvalidInputError("breakdown", f"the parts do not add up to epoch_ns ({epoch})")
    return layers


def _ranking(rows: Iterable[TopRow], best: Point, layers: int) -> tuple[Point, ...]:
    points = _points(rows, "top")
    for path, row in placed("top", rows):
        check_count(row.layers, layers, f"{path}.layers", "configuration.layers")
    times = [point.epoch_ns for point in points]
    if points and (points[0] != best or times != sorted(times)):
        raise InvalidInputError("top", "expected the configuration first, and the others by time")
    return points or (best,)


def _points(rows: Iterable[TopRow], name: str) -> tuple[Point, ...]:
    points = []
    for path, row in placed(name, rows):
        points.append(_point(row, row.epoch_ns))
        check_same(row.machines_used, points[-1].machines, f"{path}.machines_used")
    return tuple(points)
