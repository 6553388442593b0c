"""Regret, plans for scenarios, and advice by themselves, of a family that is made up."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.model.errors import InvalidInputError, NotApplicableError
from planner.solving.advice import advise
from planner.solving.bucketing import DDP_BUCKET_MB, DDP_LIMITS
from planner.solving.deadline import NEVER, Deadline
from planner.solving.methods import Method, Outcome
from planner.solving.result import Infeasibility, Result
from planner.solving.scenarios import SCENARIOS, SLOWER, Scenario, ScenarioSet
from planner.solving.what_if import Regret, regrets, robust_plan
from tests.words import Words

times = st.integers(1, 1000)


def method(name: str, cost: int | None, bound: int | None, *, limited: bool) -> Method[str, str]:
    def run(_: str, deadline: Deadline) -> Outcome[str]:
        assert limited == (deadline.remaining_s is not None)
        if cost is None:
            return Outcome(None, infeasibility=Infeasibility("", ()))
        return Outcome(name, bound)

    return run


def not_applicable(_: str, __: Deadline) -> Outcome[str]:
    raise NotApplicableError("method", "does not apply")


def rows(
    kept: int,
    known: Mapping[str, tuple[int | None, int | None]],
    deadline: Deadline = NEVER,
    refused: Scenario | None = None,
) -> tuple[Regret[str], ...]:
    """What is said of a plan that costs `kept`, where methods cost and prove what is `known`."""

    class Disturbed(Words):
        def perturb(self, problem: str, scenario: Scenario) -> str:
            if scenario == refused:
                raise InvalidInputError("network", "too large")
            return problem

    limited = deadline is not NEVER
    methods = {name: method(name, *both, limited=limited) for name, both in known.items()}
    costs = {name: cost for name, (cost, _) in known.items() if cost is not None}
    family = Disturbed({"the plan": kept, **costs}, {"ddp": not_applicable, **methods})
    return regrets(family, "a problem", "the plan", deadline)


@given(times, times, times, times, times)
def test_the_best_is_the_best_of_all_and_no_bound_is_above_it(
    kept: int, auto: int, bound: int, ddp: int, layers: int
) -> None:
    """A bound may be one of another op order than the plan's."""
    bound = min(bound, auto)
    found = rows(kept, {"auto": (auto, bound), "ddp": (ddp, None), "layer_by_layer": (layers, 1)})
    assert [row.scenario for row in found] == list(SCENARIOS)
    best = min(kept, auto, ddp, layers)
    row = found[0]
    assert (row.plan_ns, row.best_ns, row.bound_ns) == (kept, best, min(bound, best))
    assert (row.ddp_ns, row.layers_ns) == (ddp, layers)
    assert row.at_least == Fraction(kept, best)
    assert row.at_most == Fraction(kept, min(bound, best))


def test_what_is_not_known_is_not_said() -> None:
    (row, *_) = rows(7, {"auto": (None, None)})
    assert (row.best_ns, row.bound_ns, row.ddp_ns, row.layers_ns) == (7, None, None, None)
    assert row.at_least == 1
    assert row.at_most is None
    (row, *_) = rows(0, {"auto": (0, 0)})
    assert row.at_least == row.at_most == 1


@pytest.mark.parametrize("refused", SCENARIOS)
def test_a_scenario_that_cannot_be_is_left_out(refused: Scenario) -> None:
    found = rows(7, {"auto": (5, 4)}, refused=refused)
    assert [row.scenario for row in found] == [
        scenario for scenario in SCENARIOS if scenario != refused
    ]


def test_each_scenario_has_a_share_of_the_time() -> None:
    assert len(rows(7, {"auto": (5, 4)}, Deadline(100))) == len(SCENARIOS)


@given(times, st.none() | times, st.lists(st.none() | times, min_size=7, max_size=7))
@example(100, None, [102, *[None] * 6])
@example(100, None, [103, *[None] * 6])
def test_ddp_has_the_best_of_its_bucket_sizes(
    plan: int, bound: int | None, prices: list[int | None]
) -> None:
    limits = [DDP_LIMITS, *((size * 2**20, size * 2**20) for size in DDP_BUCKET_MB)]
    priced = dict(zip(limits, prices, strict=True))

    class Bucketed(Words):
        def ddp_price(self, _: str, limits: tuple[int, int], __: Deadline) -> int | None:
            return priced[limits]

    bound = None if bound is None else min(bound, plan)
    result: Result[str, int] = Result("auto", "a plan", plan, bound, 0.0)
    found = advise(Bucketed({}, {}), "a problem", result, NEVER)
    known = [price for price in prices if price is not None]
    if not known:
        assert found is None
        return
    assert found is not None
    assert found.ddp_ns == min(known)
    assert [None, *DDP_BUCKET_MB][prices.index(min(known))] == found.bucket_mb
    assert found.keep_ddp == (100 * min(known) < 103 * plan)
    assert found.at_most == (None if bound is None else Fraction(min(known), bound))


def test_a_family_s_candidates_follow_from_every_plan_that_is_made() -> None:
    """The usual one, those of the scenarios, and of longer times."""
    scenario = SCENARIOS[0]
    names = {Scenario(): "a problem", scenario: "of it", **dict.fromkeys(SLOWER, "longer")}
    assert len(names) == 2 + len(SLOWER)
    seen: list[str] = []

    class Disturbed(Words):
        def perturb(self, problem: str, scenario: Scenario) -> str:
            return names[scenario]

        def candidates(self, problem: str, plans: Sequence[str], _: Deadline) -> Iterator[str]:
            seen.extend(plans)
            yield from (f"{plan}!" for plan in plans)

    def auto(problem: str, _: Deadline) -> Outcome[str]:
        return Outcome(f"for {problem}", 0)

    plans = ["for a problem", "for of it", "for longer"]
    family = Disturbed({**dict.fromkeys(plans, 100), "for longer!": 99}, {"auto": auto})
    result, _ = robust_plan(family, "a problem", ScenarioSet(((scenario, Fraction(1)),)), NEVER)
    assert list(dict.fromkeys(seen)) == plans
    assert result.plan == "for longer!"
