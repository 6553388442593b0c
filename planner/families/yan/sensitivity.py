"""Sensitivity of the best configuration to errors of the constants.

Problem: for each constant, within which factors does a configuration stay the best? And how much
does it lose (regret) if all constants are wrong at once?
Method: from crossing to crossing of two cost curves, Newton's method for parametric problems;
regret at all corners of the box of errors. The configuration's own price cuts every search.

Guarantee: at an end nothing is better, and at most `TOLERANCE` beyond it the named configuration
is; regret is exact; under the canonical mapping. Limits, proof and measured times: docs/yan.md,
"Why sensitivity intervals are right". Complexity: some 5 searches (`planner.families.yan.exact`)
for each of up to 12 ends, and 64 for regret. Source: own; Eisner and Severance, JACM 1976.
"""

from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import count, product
from math import isqrt
from typing import Any

from planner.families.yan.configuration import Configuration, Ranked
from planner.families.yan.model import estimate
from planner.families.yan.problem import DEPENDS, Problem, refuse_different
from planner.families.yan.search import Engine
from planner.model.errors import InvalidInputError
from planner.model.validation import shown
from planner.solving.deadline import NEVER, Deadline

FARTHEST = 1_000
"""Factors are examined from 1 / FARTHEST to FARTHEST."""

TOLERANCE = Fraction(1, 10**6)
"""Relative distance from an end within which another configuration is better."""

ERROR = Fraction(1, 4)
"""Default relative error of the constants, up or down."""

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


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Effect of errors of the constants on a configuration.

    Regret is the relative excess of an epoch over the best configuration, at combinations of
    constants that are each `error` (relative) lower or higher.
    """

    intervals: tuple[FactorRange, ...]  # none for `interference` without interference
    regret: Fraction  # at the worst combination
    regret_constants: tuple[tuple[str, Fraction], ...]  # factors of the worst combination
    error: Fraction
    mean_regret: Fraction  # over all combinations


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
    problem: Problem,
    configuration: Configuration,
    *,
    error: Fraction = ERROR,
    deadline: Deadline = NEVER,
) -> Sensitivity:
    """Return the factors of the constants within which a configuration stays the best.

    Parameters
    ----------
    problem : Problem
        The network, the machines and the constants; its `fixed` is ignored.
    configuration : Configuration
        The best one, as method `exact` finds it.
    error : Fraction
        Relative error of every constant, for regret: at least 0, below 1.
    deadline : Deadline
        When to give up.

    Raises
    ------
    NotApplicableError
        If machines differ.
    InvalidPlanError
        If `configuration` is not valid for the problem.
    InvalidInputError
        If `configuration` is not the best one, or `error`, or a constant with it, is out of range.
    TimeUpError
        At the deadline.
    """
    refuse_different(problem, "sensitivity", DEPENDS)
    if not 0 <= error < 1:
        raise InvalidInputError("error", f"expected a number in [0, 1), got {shown(error)}")
    study = _Study(problem, configuration, deadline)
    study.check()
    names = CONSTANTS
    if max(problem.constants.interference[: problem.threads]) <= 1:
        names = names[:-1]
    factors = sorted({1 - error, 1 + error})
    combinations = [
        tuple(zip(names, each, strict=True)) for each in product(factors, repeat=len(names))
    ]
    intervals = []
    for name in names:
        low, below = study.end(name, upwards=False)
        high, above = study.end(name, upwards=True)
        intervals.append(FactorRange(name, low, high, below, above))
    regrets = [study.regret(combination) for combination in combinations]
    worst = max(range(len(regrets)), key=regrets.__getitem__)
    return Sensitivity(
        tuple(intervals),
        regrets[worst],
        combinations[worst],
        Fraction(error),
        sum(regrets, Fraction(0)) / len(regrets),
    )


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

    def regret(self, combination: tuple[tuple[str, Fraction], ...]) -> Fraction:
        """Return the relative excess over the best configuration under other constants."""
        problem = self.problem
        for name, factor in combination:
            problem = scaled(problem, name, factor)
        better = self._better(problem)
        if better is None:
            return Fraction(0)
        return estimate(problem, self.configuration).epoch / better.epoch - 1

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
