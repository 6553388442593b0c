"""Validate scaling answers that are read back, and extract the data of their picture."""

from collections.abc import Iterable
from math import isfinite

from msgspec import UNSET

from planner.families.yan.checker import check_machines
from planner.families.yan.configuration import LayerChoice, check_segments
from planner.jsonio.heads import check_head, made_by
from planner.jsonio.yan_answer import (
    Breakdown,
    ChoiceAnswer,
    ConfigurationAnswer,
    FrontRow,
    SensitivityAnswer,
    TopRow,
    YanAnswer,
)
from planner.model.errors import InvalidInputError
from planner.model.units import counted
from planner.model.validation import check_count, shown
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
    ranking = _ranking(() if answer.top is UNSET else answer.top, best, len(configuration.layers))
    front = () if answer.pareto is UNSET else answer.pareto
    return Scaling(
        layers,
        best,
        ranking,
        _points(() if answer.landscape is UNSET else answer.landscape, "landscape"),
        _points(front, "pareto"),
        *_sensitivity(answer.sensitivity if answer.sensitivity is not UNSET else None),
    )


def _point(triple: ConfigurationAnswer | TopRow | FrontRow, epoch_ns: int) -> Point:
    return Point(triple.workers_per_replica, triple.replicas, triple.parameter_servers, epoch_ns)


def _check_used(stated: int, used: int, path: str) -> None:
    if stated != used:
        what = "parameter_servers + replicas x workers_per_replica"
        raise InvalidInputError(path, f"expected {what} ({used}), got {stated}")


def _check_configuration(configuration: ConfigurationAnswer, machines: int) -> None:
    used = _point(configuration, 0).machines
    _check_used(configuration.machines_used, used, "configuration.machines_used")
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
    *computation, communication, reading = map(
        sum, zip(*(layer.phases_ns for layer in layers), strict=True)
    )
    for name, value in (
        ("computation_ns", sum(computation)),
        ("communication_ns", communication),
        ("weight_reading_ns", reading),
    ):
        if getattr(breakdown, name) != value:
            raise InvalidInputError(
                f"breakdown.{name}", f"expected the sum over the layers ({value})"
            )
    if sum(layer.total_ns for layer in layers) != epoch:
        raise InvalidInputError("breakdown", f"the parts do not add up to epoch_ns ({epoch})")
    return layers


def _ranking(rows: Iterable[TopRow], best: Point, layers: int) -> tuple[Point, ...]:
    points: list[Point] = []
    seen: set[tuple[str, tuple[ChoiceAnswer, ...]]] = set()
    for place, row in enumerate(rows):
        point = _point(row, row.epoch_ns)
        path = f"top[{place}]"
        _check_used(row.machines_used, point.machines, f"{path}.machines_used")
        configuration = point.label, row.layers
        if configuration in seen:
            raise InvalidInputError(path, f"{point.label} with these layers is given twice")
        seen.add(configuration)
        least = points[-1].epoch_ns if points else best.epoch_ns
        if point.epoch_ns < least:
            raise InvalidInputError(
                f"{path}.epoch_ns", f"expected an integer >= {least}, got {point.epoch_ns}"
            )
        check_count(row.layers, layers, f"{path}.layers", "configuration.layers")
        points.append(point)
    if points and points[0] != best:
        raise InvalidInputError("top[0]", "expected the configuration")
    return tuple(points) or (best,)


def _points(rows: Iterable[FrontRow], path: str) -> tuple[Point, ...]:
    points: list[Point] = []
    for place, row in enumerate(rows):
        point = _point(row, row.epoch_ns)
        _check_used(row.machines, point.machines, f"{path}[{place}].machines")
        if path == "pareto" and points:
            before = points[-1]
            if point.machines <= before.machines:
                raise InvalidInputError(
                    f"{path}[{place}].machines", "expected more than in the row before"
                )
            if point.epoch_ns > before.epoch_ns:
                raise InvalidInputError(
                    f"{path}[{place}].epoch_ns", "expected at most that of the row before"
                )
        points.append(point)
    return tuple(points)


def _sensitivity(
    sensitivity: SensitivityAnswer | None,
) -> tuple[tuple[Range, ...], ConstantsRegret | None]:
    if sensitivity is None:
        return (), None
    for name in ("regret", "mean_regret", "error"):
        value = getattr(sensitivity, name)
        if not isfinite(value) or value < 0:
            raise InvalidInputError(
                f"sensitivity.{name}", f"expected a number >= 0, got {shown(value)}"
            )
    for constant, ends in sensitivity.intervals.items():
        for place, end in enumerate(ends):
            if end is not None and not (isfinite(end) and end > 0):
                raise InvalidInputError(
                    f"sensitivity.intervals.{constant}[{place}]",
                    f"expected a number > 0, got {shown(end)}",
                )
    ranges = tuple(Range(constant, *ends) for constant, ends in sensitivity.intervals.items())
    return ranges, ConstantsRegret(sensitivity.regret, sensitivity.mean_regret, sensitivity.error)
