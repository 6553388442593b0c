"""The JSON form of ``planner compare --peers``: every method, case by case and over all."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from planner.iteration.peers import PeerCase, Standing, standings
from planner.results import Result

__all__ = ["PeersReport", "document"]


class MethodReport(Struct, frozen=True, kw_only=True):
    """One method in one case."""

    status: str
    objective_ns: int | None
    algorithm: str | None
    mode: str | None
    transfers: int | None
    speedup_over_ddp: float | None
    over_joint_bound: float | None
    runtime_s: float


class CaseReport(Struct, frozen=True, kw_only=True):
    """All methods on one profile and one cluster."""

    profile: str
    cluster: str
    assumed_startups: bool
    computation_scale: float
    lower_bound_ns: int | None
    methods: dict[str, MethodReport]
    without_plan: dict[str, str]


class SpreadReport(Struct, frozen=True, kw_only=True):
    """Ratios over several cases."""

    geometric_mean: float
    least: float
    most: float


class StandingReport(Struct, frozen=True, kw_only=True):
    """One method over all cases of one scale of computation."""

    method: str
    computation_scale: float
    cases: int
    speedup_over_ddp: SpreadReport | UnsetType = UNSET
    over_joint_bound: SpreadReport | UnsetType = UNSET


class PeersReport(Struct, frozen=True, kw_only=True):
    """What ``planner compare --peers --json`` prints."""

    cases: tuple[CaseReport, ...]
    summary: tuple[StandingReport, ...]


def document(
    cases: Sequence[PeerCase], scales: Iterable[Fraction], methods: Sequence[str]
) -> PeersReport:
    """Return the JSON form of all cases.

    Parameters
    ----------
    cases : sequence of PeerCase
        All cases, of all scales.
    scales : iterable of Fraction
        Scales of computation, summed up apart.
    methods : sequence of str
        Methods to show.
    """
    return PeersReport(
        cases=tuple(_case(case, methods) for case in cases),
        summary=tuple(
            _standing(standing, scale)
            for scale in scales
            for standing in standings(
                [case for case in cases if case.computation == scale], methods
            )
        ),
    )


def _case(case: PeerCase, methods: Sequence[str]) -> CaseReport:
    results = {method: case.result(method) for method in methods}
    reasons = {method: case.reason(method) for method in methods}
    return CaseReport(
        profile=case.profile,
        cluster=case.cluster,
        assumed_startups=case.assumed_startups,
        computation_scale=float(case.computation),
        lower_bound_ns=case.bound_ns,
        methods={
            method: _method(case, method, result)
            for method, result in results.items()
            if result is not None
        },
        without_plan={method: reason for method, reason in reasons.items() if reason},
    )


def _method(case: PeerCase, method: str, result: Result[Any, Any]) -> MethodReport:
    plan = result.plan
    return MethodReport(
        status=result.status.value,
        objective_ns=result.objective_ns,
        algorithm=None if plan is None else " + ".join(plan.algorithms),
        mode=None if plan is None else plan.mode,
        transfers=None if plan is None else len(plan.transfers),
        speedup_over_ddp=case.speedup(method),
        over_joint_bound=case.over_bound(method),
        runtime_s=result.runtime_s,
    )


def _standing(standing: Standing, scale: Fraction) -> StandingReport:
    spreads = {
        name: SpreadReport(geometric_mean=spread.mean, least=spread.least, most=spread.most)
        for name, spread in (
            ("speedup_over_ddp", standing.speedup),
            ("over_joint_bound", standing.over_bound),
        )
        if spread is not None
    }
    return StandingReport(
        method=standing.method,
        computation_scale=float(scale),
        cases=standing.cases,
        **spreads,
    )
