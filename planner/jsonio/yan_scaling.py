"""Validate scaling answers that are read back, and extract the data of their picture."""

from collections.abc import Iterable, Mapping
from math import isfinite

from msgspec import UNSET

from planner.families.yan.checker import check_machines
from planner.families.yan.configuration import LayerChoice, check_segments
from planner.jsonio.heads import check_head, made_by
from planner.jsonio.schedules import placed
from planner.jsonio.types import or_none
from planner.jsonio.yan_answer import (
    Breakdown,
    ConfigurationAnswer,
    FrontRow,
    TopRow,
    YanAnswer,
)
from planner.model.errors import InvalidInputError
from planner.model.units import counted
from planner.model.validation import check_count, check_same, shown
from planner.solving.views import ConstantsRegret, LayerTime, Point, Range, Scaling, epoch_text


def headline(answer: YanAnswer) -> str:
    """Return a one-line summary: the configuration and its cost."""
    configuration = answer.configuration
    if configuration is UNSET or answer.epoch_ns is UNSET:
        return f"There is no plan ({made_by(answer)})"
    point = _point(configuration, answer.epoch_ns)
    return (
        f"An epoch takes {epoch_text(answer.epoch_ns)} with {point.words} on {point.machines:,} of "
        f"{counted(answer.machines, 'machine')} ({made_by(answer)})"
    )


def scaling(answer: YanAnswer) -> Scaling:
    """Check an answer and return the data of its picture.

    Raises InvalidInputError, with a path, if there is no configuration or the parts contradict each
    other.
    """
    configuration, breakdown, epoch = answer.configuration, answer.breakdown, answer.epoch_ns
    check_head(answer, "configuration", "epoch_ns", "breakdown", costs="epoch_ns")
    assert configuration is not UNSET
    assert epoch is not UNSET
    assert breakdown is not UNSET
    anywhere = answer.lower_bound_any_mapping_ns
    if isinstance(anywhere, int) and anywhere > epoch:
        raise InvalidInputError("lower_bound_any_mapping_ns", f"more than epoch_ns ({epoch})")
    _check_configuration(configuration, answer.machines)
    layers = _layers(breakdown, configuration, epoch)
    best = _point(configuration, epoch)
    study = or_none(answer.sensitivity)
    return Scaling(
        layers,
        best,
        _ranking(or_none(answer.top) or (), best, len(configuration.layers)),
        _points(or_none(answer.landscape) or (), "landscape"),
        _points(or_none(answer.pareto) or (), "pareto"),
        () if study is None else _ranges(study.intervals),
        None if study is None else ConstantsRegret(study.regret, study.mean_regret, study.error),
    )


def _point(triple: ConfigurationAnswer | TopRow | FrontRow, epoch_ns: int) -> Point:
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


def _points(rows: Iterable[TopRow | FrontRow], name: str) -> tuple[Point, ...]:
    points = []
    for path, row in placed(name, rows):
        points.append(_point(row, row.epoch_ns))
        field = "machines" if isinstance(row, FrontRow) else "machines_used"
        check_same(getattr(row, field), points[-1].machines, f"{path}.{field}")
    return tuple(points)


def _ranges(intervals: Mapping[str, tuple[float | None, float | None]]) -> tuple[Range, ...]:
    for constant, ends in intervals.items():
        for place, end in enumerate(ends):
            if end is not None and not (isfinite(end) and end > 0):
                raise InvalidInputError(
                    f"sensitivity.intervals.{constant}[{place}]",
                    f"expected a number > 0, got {shown(end)}",
                )
    return tuple(Range(constant, *ends) for constant, ends in intervals.items())
