"""Sensitivity of the best configuration to errors of the constants.

Problem: for each constant, within which factors does a configuration stay the best?
Method: from crossing to crossing of two cost curves, Newton's method for parametric problems. The
configuration's own price cuts every search.

Guarantee: at an end nothing is better, and at most `TOLERANCE` beyond it the named configuration
is; under the canonical mapping. Limits, proof and measured times: docs/yan.md, "Why sensitivity
intervals are right". Complexity: some 5 searches (`planner.families.yan.exact`) for each of up to
12 ends. Source: own; Eisner and Severance, JACM 1976.
"""

from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import count
from math import isqrt
from typing import Any

from planner.families.yan.configuration import Configuration, Ranked
from planner.families.yan.model import estimate
from planner.families.yan.problem import DEPENDS, Problem, refuse_different
from planner.families.yan.search import Engine
from planner.model.errors import InvalidInputError
from planner.solving.deadline import NEVER, Deadline

FARTHEST = 1_000
"""Factors are examined from 1 / FARTHEST to FARTHEST."""

TOLERANCE = Fraction(1, 10**6)
"""Relative distance from an end within which another configuration is better."""

DIGITS = 9
"""Significant digits of a factor."""

CONSTANTS: tuple[str, ...] = (
    "muladd_ns",
    "activation_ns",
    "error_ns",
    "latency_ns",
    "nic_bits_per_s",
    "interference",
)


@dataclass(frozen=True, slots=True)
class FactorRange:
    """Factors of a constant from `low` to `high` between which a configuration stays the best.

    All of `latency_ns` is scaled at once; of `interference` the part above 1. An end is None if the
    configuration is the best as far as examined; `low_beaten_by` and `high_beaten_by` are the
    better configurations just beyond the ends.
    """

    constant: str
    low: Fraction | None
    high: Fraction | None
    low_beaten_by: Configuration | None = None
    high_beaten_by: Configuration | None = None


def scaled(problem: Problem, constant: str, factor: Fraction) -> Problem:
    """Return the problem with one constant scaled; of `interference` only the part above 1.

    InvalidInputError if the value is too large, or has too many decimals.
    """
    constants = problem.constants
    if constant == "muladd_ns":  # measured times consist of multiply-adds, too
        problem = replace(problem, layers=[layer.times(factor) for layer in problem.layers])
    value: Any
    if constant == "interference":
        value = [
            1 + factor * (slowdown - 1) if slowdown > 1 else slowdown
            for slowdown in constants.interference
        ]
    elif constant == "latency_ns":
        value = [factor * latency for latency in constants.latency_ns]
    else:
        value = factor * getattr(constants, constant)
    return replace(problem, constants=replace(constants, **{constant: value}))


def sensitivity(
    problem: Problem, configuration: Configuration, *, deadline: Deadline = NEVER
) -> tuple[FactorRange, ...]:
    """Return the factors of each constant within which a configuration stays the best.

    Parameters
    ----------
    problem : Problem
        The network, the machines and the constants; its `fixed` is ignored.
    configuration : Configuration
        The best one, as method `exact` finds it.
    deadline : Deadline
        When to give up.

    Returns
    -------
    tuple of FactorRange
        None for `interference` if no number of threads slows down computation.

    Raises
    ------
    NotApplicableError
        If machines differ.
    InvalidPlanError
        If `configuration` is not valid for the problem.
    InvalidInputError
        If `configuration` is not the best one.
    TimeUpError
        At the deadline.
    """
    refuse_different(problem, "sensitivity", DEPENDS)
    study = _Study(problem, configuration, deadline)
    study.check()
    names = CONSTANTS
    if max(problem.constants.interference[: problem.threads]) <= 1:
        names = names[:-1]
    intervals = []
    for name in names:
        low, below = study.end(name, upwards=False)
        high, above = study.end(name, upwards=True)
        intervals.append(FactorRange(name, low, high, below, above))
    return tuple(intervals)


@dataclass(frozen=True)
class _Study:
    """One configuration, under other constants."""

    problem: Problem
    configuration: Configuration
    deadline: Deadline

    def check(self) -> None:
        """Raise InvalidInputError unless the configuration is the best."""
        better = self._better(self.problem)
        if better is not None:
            workers, replicas, servers = better.configuration.triple
            raise InvalidInputError(
                "configuration",
                f"expected the best one, but with {workers} workers, {replicas} replicas and "
                f"{servers} servers an epoch takes {float(better.epoch):.6g} ns, in this one "
                f"{float(estimate(self.problem, self.configuration).epoch):.6g} ns",
            )

    def _better(self, problem: Problem) -> Ranked | None:
        """Return the best configuration if it beats the studied one."""
        self.deadline.check()
        price = estimate(problem, self.configuration).epoch
        engine = Engine(problem)
        below = float(price) * (1 + 4 * engine.tables.error)
        result = engine.search(1, Deadline(None), below)
        ranking = engine.ranked(solution.triple for solution in result.solutions)
        return ranking[0] if ranking and ranking[0].epoch < price else None

    def end(self, name: str, *, upwards: bool) -> tuple[Fraction | None, Configuration | None]:
        """Return the last good factor of a constant, and the better configuration beyond."""
        factor, beaten_by = self._farthest(name, upwards=upwards), None
        while factor != 1:
            better = self._better(scaled(self.problem, name, factor))
            if better is None:
                break
            beaten_by = better.configuration
            factor = self._crossing(name, beaten_by, factor)
        return (None if beaten_by is None else factor), beaten_by

    def _farthest(self, name: str, *, upwards: bool) -> Fraction:
        """Return the factor to start from, within the constant's own range; 1 if none."""
        far = FARTHEST
        while far > 1:
            factor = Fraction(far) if upwards else Fraction(1, far)
            try:  # leave room for decimals
                scaled(self.problem, name, factor - Fraction(1, 10 ** (3 * DIGITS)))
            except InvalidInputError:
                far //= 10
            else:
                return factor
        return Fraction(1)

    def _crossing(self, name: str, rival: Configuration, far: Fraction) -> Fraction:
        """Return a factor at which `rival`, better at `far`, is not yet better.

        It is at most `TOLERANCE` farther.
        """

        def lead(factor: Fraction) -> Fraction:
            problem = scaled(self.problem, name, factor)
            mine = estimate(problem, self.configuration).epoch
            return estimate(problem, rival).epoch - mine

        near, near_lead, far_lead = Fraction(1), lead(Fraction(1)), lead(far)
        for turn in count():
            if abs(far - near) <= TOLERANCE * near:
                break
            if turn % 3 == 0:  # where the two costs are equal, if they are affine
                share = near_lead / (near_lead - far_lead)
                factor = _line(near, far, share, inverse=name == "nic_bits_per_s")
            elif turn % 3 == 1:  # the end, if it is close
                factor = near * (1 + TOLERANCE if near < far else 1 - TOLERANCE)
            else:  # about the geometric mean
                unit = 10 ** (4 * DIGITS)
                factor = Fraction(isqrt(int(near * far * unit)), isqrt(unit))
            if not min(near, far) < factor < max(near, far):
                continue
            lead_here = lead(factor)
            if lead_here >= 0:
                near, near_lead = factor, lead_here
            else:
                far, far_lead = factor, lead_here
        return near


def _line(near: Fraction, far: Fraction, share: Fraction, *, inverse: bool) -> Fraction:
    """Return the factor at which two affine costs are equal, rounded towards `near`."""
    if inverse:
        crossing = 1 / (1 / near + (1 / far - 1 / near) * share)
    else:
        crossing = near + (far - near) * share
    context = Context(DIGITS, ROUND_FLOOR if near < far else ROUND_CEILING)
    return Fraction(context.divide(Decimal(crossing.numerator), Decimal(crossing.denominator)))
