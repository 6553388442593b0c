"""Validate scaling answers that are read back, and extract the data of their picture."""

from collections.abc import Iterable

from msgspec import UNSET

from planner.families.yan.checker import check_machines
from planner.families.yan.configuration import LayerChoice, check_segments
from planner.jsonio.heads import check_head, made_by
from planner.jsonio.types import or_none
from planner.jsonio.yan_answer import (
    Breakdown,
    ConfigurationAnswer,
    FrontRow,
    SensitivityAnswer,
    TopRow,
    YanAnswer,
)
from planner.model.errors import InvalidInputError
from planner.model.units import counted
from planner.model.validation import check_count
from planner.solving.views import ConstantsRegret, LayerTime, Point, Range, Scaling, epoch_text

__all__ = ["headline", "scaling"]


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
    _check_configuration(configuration, answer.machines)
    check_count(
        breakdown.layers, len(configuration.layers), "breakdown.layers", "configuration.layers"
    )
    layers = _layers(breakdown)
    if sum(layer.total_ns for layer in layers) != epoch:
        raise InvalidInputError("breakdown", f"the parts do not add up to epoch_ns ({epoch})")
    best = _point(configuration, epoch)
    return Scaling(
        layers,
        best,
        _points(or_none(answer.top)) or (best,),
        _points(or_none(answer.landscape)),
        _points(or_none(answer.pareto)),
        *_sensitivity(or_none(answer.sensitivity)),
    )


def _point(triple: ConfigurationAnswer | TopRow | FrontRow, epoch_ns: int) -> Point:
    return Point(triple.workers_per_replica, triple.replicas, triple.parameter_servers, epoch_ns)


def _points(rows: Iterable[TopRow | FrontRow] | None) -> tuple[Point, ...]:
    return tuple(_point(row, row.epoch_ns) for row in rows or ())


def _check_configuration(configuration: ConfigurationAnswer, machines: int) -> None:
    used = _point(configuration, 0).machines
    if used > machines:
        raise InvalidInputError("machines", f"expected an integer >= {used}, got {machines}")
    for place, layer in enumerate(configuration.layers):
        path = f"configuration.layers[{place}]"
        choice = LayerChoice(layer.partitions, layer.threads, layer.copies, layer.mapping)
        if not layer.mapping:
            raise InvalidInputError(f"{path}.mapping", "expected workers")
        check_segments(choice, configuration.workers_per_replica, path)
    if configuration.machines is not UNSET:
        check_machines(configuration.machines, used, machines, "configuration.machines")


def _layers(breakdown: Breakdown) -> tuple[LayerTime, ...]:
    return tuple(
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


def _sensitivity(
    sensitivity: SensitivityAnswer | None,
) -> tuple[tuple[Range, ...], ConstantsRegret | None]:
    if sensitivity is None:
        return (), None
    ranges = tuple(Range(constant, *ends) for constant, ends in sensitivity.intervals.items())
    return ranges, ConstantsRegret(sensitivity.regret, sensitivity.mean_regret, sensitivity.error)
