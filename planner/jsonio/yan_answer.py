"""The JSON answers of scaling (Yan et al.)."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from planner.families.yan.configuration import Configuration, Plan, Ranked
from planner.families.yan.model import Estimate
from planner.families.yan.problem import MAX_MACHINES, Problem
from planner.jsonio.heads import head
from planner.jsonio.types import Index, Moment, filled
from planner.jsonio.what_if import WhatIfAnswer
from planner.model.errors import NotApplicableError
from planner.model.validation import total
from planner.solving.deadline import NEVER, Deadline, TimeUpError
from planner.solving.result import Result, Status

Machines = Annotated[int, Meta(ge=1, le=MAX_MACHINES)]
Number = Annotated[int, Meta(ge=1)]
Total = Annotated[int, Meta(ge=0)]


class ChoiceAnswer(Struct, frozen=True, kw_only=True):
    """How one layer is run."""

    partitions: Number
    threads: Number
    copies: Number


class MappedAnswer(Struct, frozen=True, kw_only=True):
    """How one layer is run, and on which worker of the replica each partition's copies are."""

    name: str
    partitions: Number
    threads: Number
    copies: Number
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
    """What one layer adds to an epoch."""

    name: str
    forward_computation_ns: Moment
    forward_communication_ns: Moment
    backward_computation_ns: Moment
    backward_communication_ns: Moment
    weight_update_ns: Moment
    weight_reading_ns: Moment


class Breakdown(Struct, frozen=True, kw_only=True):
    """Where the time of an epoch goes; the parts add up to it."""

    layers: Annotated[tuple[LayerBreakdown, ...], Meta(min_length=1)]
    computation_ns: Moment
    communication_ns: Moment
    weight_reading_ns: Moment


class FrontRow(Struct, frozen=True, kw_only=True):
    """The best configuration of some machines, and what an epoch takes in it."""

    machines: Machines
    epoch_ns: Moment
    workers_per_replica: Machines
    replicas: Machines
    parameter_servers: Machines


class TopRow(Struct, frozen=True, kw_only=True):
    """The best configuration of a triple of workers, replicas and servers."""

    workers_per_replica: Machines
    replicas: Machines
    parameter_servers: Machines
    machines_used: Machines
    epoch_ns: Moment
    layers: Annotated[tuple[ChoiceAnswer, ...], Meta(min_length=1)]


class ExploredAnswer(Struct, frozen=True, kw_only=True):
    """How much of the space was looked at, and how much of it bounds cut."""

    triples: Total
    triples_cut: Total
    states: Total
    states_cut: Total


class SensitivityAnswer(Struct, frozen=True, kw_only=True):
    """What errors of the constants do.

    `intervals` holds the factors of each constant between which the configuration stays the best;
    null where no end was found. `regret` is how much slower than the best it is at worst if
    every constant is off by `error`, `regret_at` at which factors, and `mean_regret` on average
    over all combinations.
    """

    intervals: dict[str, tuple[float | None, float | None]]
    regret: float
    regret_at: dict[str, float]
    mean_regret: float
    error: float


class YanAnswer(WhatIfAnswer, frozen=True, kw_only=True):
    """The configuration, what an epoch takes and the proof; or why there is none."""

    longest_ns: ClassVar[int] = 366 * 24 * 3600 * 10**9  # epochs of large data sets take days

    problem: Literal["yan"] = "yan"
    machines: Machines
    epoch_ns: Moment | UnsetType = UNSET
    configuration: ConfigurationAnswer | UnsetType = UNSET
    breakdown: Breakdown | UnsetType = UNSET
    top: tuple[TopRow, ...] | UnsetType = UNSET
    explored: ExploredAnswer | UnsetType = UNSET
    lower_bound_any_mapping_ns: Moment | UnsetType | None = UNSET
    pareto: tuple[FrontRow, ...] | UnsetType = UNSET
    landscape: tuple[FrontRow, ...] | UnsetType = UNSET
    sensitivity: SensitivityAnswer | UnsetType = UNSET
    layers: tuple[Index, ...] | UnsetType = UNSET
    batch_size: Annotated[int, Meta(ge=1, description="samples that are one here")] | UnsetType = (
        UNSET
    )
    assumptions: (
        Annotated[tuple[str, ...], Meta(description="beyond the profile it was made of")]
        | UnsetType
    ) = UNSET


def answer(problem: Problem, result: Result[Plan, Estimate]) -> YanAnswer:
    """Return the JSON form of a result.

    Raises InvalidInputError if an epoch takes more than 63 bits of nanoseconds.
    """
    base = YanAnswer(
        **head(YanAnswer, result),
        machines=problem.machines,
    )
    plan = result.plan
    if plan is None:
        return base
    estimate = result.evaluation
    assert estimate is not None
    return msgspec.structs.replace(
        base,
        epoch_ns=_rounded(estimate.epoch),
        configuration=_configuration(problem, plan.configuration),
        breakdown=_breakdown(problem, estimate),
        top=tuple(_top_row(ranked) for ranked in plan.ranking),
        explored=filled(ExploredAnswer, plan.explored),
        lower_bound_any_mapping_ns=plan.any_mapping_bound_ns,
    )


def refuse_sensitivity(problem: Problem, method: str) -> None:
    """Raise an error unless the method finds the best configuration of the whole space."""
    if problem.fixed:
        raise NotApplicableError(
            "sensitivity",
            "only of the best configuration of the whole space, not of those in fixed: ask without "
            "fixed",
        )
    if method not in ("auto", "exact") or not problem.uniform:
        name = method if problem.uniform else "ordered"
        raise NotApplicableError(
            "sensitivity",
            "only of the configuration that is proven best, by method auto or exact on machines "
            f"that are alike, not with {name}",
        )


def with_extras(
    base: YanAnswer,
    problem: Problem,
    result: Result[Plan, Estimate],
    *,
    pareto: bool = False,
    landscape: bool = False,
    sensitivity: bool = False,
    deadline: Deadline = NEVER,
) -> YanAnswer:
    """Return the answer with Pareto front, landscape and sensitivity, where requested.

    An answer without a configuration gets none. At the deadline the front and the landscape are
    cut; the part they cover is correct. Sensitivity is given only if complete, and only if the
    search was not cut: otherwise the configuration may not be the best.
    """
    if result.plan is None:
        return base
    if pareto:
        from planner.families.yan.pareto import pareto_front

        base = msgspec.structs.replace(
            base, pareto=_front_rows(pareto_front(problem, deadline=deadline))
        )
    if landscape:
        from planner.families.yan.landscape import landscape as best_of_each

        base = msgspec.structs.replace(
            base, landscape=_front_rows(best_of_each(problem, deadline=deadline))
        )
    if sensitivity:
        refuse_sensitivity(problem, result.method)
    if sensitivity and result.status is not Status.TIME_LIMIT:
        from planner.families.yan.sensitivity import sensitivity as study

        try:
            analysis = study(problem, result.plan.configuration, deadline=deadline)
        except TimeUpError:
            return base
        base = msgspec.structs.replace(
            base,
            sensitivity=SensitivityAnswer(
                intervals={
                    interval.constant: (_number(interval.low), _number(interval.high))
                    for interval in analysis.intervals
                },
                regret=float(analysis.regret),
                regret_at={name: float(factor) for name, factor in analysis.regret_constants},
                mean_regret=float(analysis.mean_regret),
                error=float(analysis.error),
            ),
        )
    return base


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def _rounded(epoch: Fraction) -> int:
    return total(-int(-epoch // 1), "samples", "an epoch in nanoseconds")


def _configuration(problem: Problem, configuration: Configuration) -> ConfigurationAnswer:
    return filled(
        ConfigurationAnswer,
        configuration,
        layers=tuple(
            filled(MappedAnswer, choice, name=layer.name)
            for layer, choice in zip(problem.layers, configuration.layers, strict=True)
        ),
        machines=UNSET if configuration.machines is None else configuration.machines,
    )


def _breakdown(problem: Problem, estimate: Estimate) -> Breakdown:
    """Return the times in whole nanoseconds; they add up to the epoch, rounded up."""
    phases = _whole([time for times in estimate.layers for time in times])
    rows = tuple(
        LayerBreakdown(
            name=layer.name,
            forward_computation_ns=next(phases),
            forward_communication_ns=next(phases),
            backward_computation_ns=next(phases),
            backward_communication_ns=next(phases),
            weight_update_ns=next(phases),
            weight_reading_ns=next(phases),
        )
        for layer in problem.layers
    )
    return Breakdown(
        layers=rows,
        computation_ns=sum(
            row.forward_computation_ns + row.backward_computation_ns + row.weight_update_ns
            for row in rows
        ),
        communication_ns=sum(
            row.forward_communication_ns + row.backward_communication_ns for row in rows
        ),
        weight_reading_ns=sum(row.weight_reading_ns for row in rows),
    )


def _whole(times: Sequence[Fraction]) -> Iterator[int]:
    """Yield integers whose partial sums are the exact partial sums, rounded up."""
    exact, before = Fraction(0), 0
    for time in times:
        exact += time
        after = -int(-exact // 1)
        yield after - before
        before = after


def _top_row(ranked: Ranked) -> TopRow:
    configuration = ranked.configuration
    return filled(
        TopRow,
        configuration,
        epoch_ns=_rounded(ranked.epoch),
        layers=tuple(filled(ChoiceAnswer, choice) for choice in configuration.layers),
    )


def _front_rows(ranking: Sequence[Ranked]) -> tuple[FrontRow, ...]:
    return tuple(
        filled(
            FrontRow,
            ranked.configuration,
            machines=ranked.configuration.machines_used,
            epoch_ns=_rounded(ranked.epoch),
        )
        for ranked in ranking
    )
