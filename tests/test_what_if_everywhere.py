"""Regret, plans for several scenarios and sensitivity, in every family that can be perturbed."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families import bigdl, bml, caramel, drizzle, fsdp, ibatch, iteration, overlap, yan
from planner.families.yan.layers import NeuronLayer
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost
from planner.model.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.network import Network
from planner.model.topologies import BCube, Failures, Switch
from planner.solving.deadline import NEVER, Deadline
from planner.solving.family import Family
from planner.solving.scenarios import MOST, SCENARIOS, Outlook, Scenario
from planner.solving.sensitivity import FACTORS, Knob, break_even, sensitivity
from planner.solving.what_if import regrets, robust_plan
from tests.bml.networks import damaged_networks
from tests.bml.plans import problems as bml_problems
from tests.caramel.window_strategies import small_graphs
from tests.fsdp.making import every_plan
from tests.fsdp.making import problems as fsdp_problems
from tests.overlap.slow import all_plans
from tests.overlap.strategies import problems as overlap_problems
from tests.strategies import affine_costs
from tests.strategies import problems as ibatch_problems
from tests.yan.yan_strategies import problems as yan_problems

LONG_S = 60
"""A guard against searches that do not end, nothing more."""


@dataclass(frozen=True)
class Case:
    """A family, problems of it, and one of them by hand."""

    family: Family[Any, Any, Any]
    drawn: st.SearchStrategy[Any]
    example: Any
    refused: tuple[str, ...] = ()
    robust: bool = True


@st.composite
def damaged(draw: st.DrawFn) -> bml.Problem:
    return draw(bml_problems(*draw(damaged_networks(most=1)), most=40))


GRAPH = Graph(
    (
        Op("f1", 100, "forward"),
        Op("f2", 300, "forward", ("f1",)),
        Op("b2", 500, "backward", ("f2",)),
        Op("b1", 200, "backward", ("b2",)),
    ),
    (
        Parameter("w1", 100, ("b1",), ("f1",)),
        Parameter("w2", 400, ("b2",), ("f2",)),
        Parameter("w3", 200, ("b2",), ("f2",)),
    ),
)

CHEAP = AffineCost(20, Fraction(1, 2))

CASES = {
    "ibatch": Case(
        ibatch.IBATCH,
        ibatch_problems(max_layers=4, objective="makespan"),
        ibatch.Problem(
            compute_ns=[200, 600, 100, 300],
            startup_ns=150,
            transfer_ns=[300, 100, 500, 200],
            direction="push",
        ),
    ),
    "caramel": Case(
        caramel.CARAMEL,
        st.builds(caramel.Problem, graph=small_graphs(), cost=affine_costs()),
        caramel.Problem(graph=GRAPH, cost=CHEAP),
    ),
    "iteration": Case(
        iteration.ITERATION,
        st.nothing(),
        iteration.Problem(
            GRAPH, Cluster("four", "", 4, Switch(4), Nic(Fraction(10**9), 100), memory_bytes=10**6)
        ),
    ),
    "fsdp": Case(
        fsdp.FSDP,
        fsdp_problems(),
        fsdp.Problem(
            forward_ns=[100, 200, 100, 100],
            backward_ns=[200, 400, 200, 200],
            parameter_bytes=[200, 600, 100, 300],
            activation_bytes=[50, 50, 50, 50],
            meshes=[fsdp.Mesh(shards=2, all_gather=CHEAP, reduce_scatter=CHEAP)],
            memory_bytes=3000,
        ),
        ("spread", "part"),
    ),
    "overlap": Case(
        overlap.OVERLAP,
        overlap_problems(),
        overlap.Problem(
            nodes=[
                overlap.Node("gather a"),
                overlap.Node("compute", (), 40),
                overlap.Node("wait a", (0,)),
                overlap.Node("use a", (2,), 30),
                overlap.Node("gather b"),
                overlap.Node("wait b", (4,)),
                overlap.Node("use b", (5, 3), 30),
            ],
            kinds=[overlap.Kind("gather", "group", ((0, 20), (100, 60)))],
            collectives=[overlap.Collective(0, 2, 0, 50, 5, 5), overlap.Collective(4, 5, 0, 50, 5)],
        ),
        ("late", "spread", "part"),
    ),
    "bml": Case(
        bml.BML,
        damaged(),
        bml.Problem(
            BCube(2, 2),
            Network(Fraction(10**9), 100),
            4000,
            failed=Failures(nics=frozenset({(0, 1)})),
        ),
        ("late", "spread", "part"),
    ),
    "yan": Case(
        yan.YAN,
        yan_problems(max_machines=4, max_layers=2, max_threads=2),
        yan.Problem(
            machines=4,
            cores=2,
            layers=[
                NeuronLayer("conv", "conv", 48, 432, 18, shape=(2, 6, 4), kernel=3, pool=2),
                NeuronLayer("full", "full", 3, 36, 39),
            ],
            constants=yan.Constants(
                muladd_ns=Fraction(1, 2),
                activation_ns=Fraction(2),
                error_ns=Fraction(2),
                latency_ns=[Fraction(10), Fraction(12)],
                nic_bits_per_s=Fraction(10**10),
                interference=[Fraction(1), Fraction("1.1")],
            ),
            samples=100,
            read_every=10,
        ),
        ("late", "spread", "part"),
    ),
    "bigdl": Case(
        bigdl.BIGDL,
        st.builds(
            bigdl.Problem,
            elements=st.integers(1, 60),
            element_bytes=st.integers(1, 4),
            nodes=st.integers(1, 5),
            partitions_per_node=st.integers(1, 3),
            network=st.builds(
                Network, st.integers(1, 10**9), st.integers(0, 50), st.fractions(0, 2)
            ),
        ),
        bigdl.Problem(
            elements=1000,
            element_bytes=4,
            nodes=4,
            partitions_per_node=2,
            network=Network(Fraction(10**9), 100, Fraction(1)),
        ),
        ("late", "spread", "part"),
    ),
    "drizzle": Case(
        drizzle.DRIZZLE,
        st.builds(
            drizzle.Problem,
            compute_ns=st.integers(1, 1000),
            tasks=st.integers(1, 20),
            task_ns=st.integers(0, 50),
            max_overhead=st.just(Fraction(1, 10)),
        ),
        drizzle.Problem(compute_ns=1000, tasks=4, task_ns=50, max_overhead=Fraction(1, 20)),
        ("bandwidth", "late", "spread", "part"),
        robust=False,
    ),
}

every_family = pytest.mark.parametrize("name", CASES)
robust_families = pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case.robust]
)
drawn_families = pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case.robust and name != "iteration"]
)

factors = st.sampled_from([Fraction(1, 2), Fraction(4, 5), Fraction(1), Fraction(2)])
scenarios = st.builds(Scenario, computation=factors, startup=factors, bandwidth=factors)
outlooks = st.builds(
    Outlook,
    st.lists(st.tuples(scenarios, st.integers(1, 3)), min_size=1, max_size=3).map(tuple),
    st.none() | st.sampled_from([Fraction(50), Fraction(90), Fraction(100)]),
)

SLOWER = Outlook(
    (
        (Scenario(), Fraction(2)),
        (Scenario(computation=Fraction(3, 2)), Fraction(1)),
        (Scenario(bandwidth=Fraction(1, 4)), Fraction(1)),
        (Scenario(startup=Fraction(4)), Fraction(1)),
    )
)


@every_family
@settings(max_examples=20)
@given(data=st.data())
def test_ones_change_nothing_and_numbers_without_meaning_are_refused(
    name: str, data: st.DataObject
) -> None:
    case = CASES[name]
    problem = case.example if case.drawn.is_empty else data.draw(case.drawn)
    assert case.family.perturb(problem, Scenario()) == problem
    others: dict[str, Any] = {"bandwidth": Fraction(2), "late": 1, "spread": 1, "part": "first"}
    for field in case.refused:
        with pytest.raises(NotApplicableError) as refused:
            case.family.perturb(problem, Scenario(**{field: others[field]}))
        assert refused.value.path == field
    for field in {"late", "part"} - set(case.refused):
        case.family.perturb(problem, Scenario(**{field: others[field]}))


@drawn_families
@settings(max_examples=20)
@given(data=st.data(), outlook=outlooks)
def test_a_robust_plan_is_a_plan_near_the_usual_one(
    name: str, data: st.DataObject, outlook: Outlook
) -> None:
    check_robust(CASES[name].family, data.draw(CASES[name].drawn), outlook)


@robust_families
def test_a_robust_plan_by_hand(name: str) -> None:
    family, problem = CASES[name].family, CASES[name].example
    for percentile in (None, Fraction(90), Fraction(60)):
        outlook = replace(SLOWER, percentile=percentile)
        check_robust(family, problem, outlook)
        if name in ("caramel", "iteration"):  # whose bounds are those of an op order
            continue
        variants = [family.perturb(problem, scenario) for scenario, _ in outlook.scenarios]
        bounds = [family.solve(variant).lower_bound_ns or 0 for variant in variants]
        _, prospect = robust_plan(family, problem, outlook, NEVER)
        assert prospect is not None
        assert prospect.bound == min(outlook.of(bounds), prospect.value)


def check_robust(family: Family[Any, Any, Any], problem: Any, outlook: Outlook) -> None:
    result, prospect = robust_plan(family, problem, outlook, NEVER)
    if result.plan is None:
        assert prospect is None
        return
    assert prospect is not None
    assert prospect.bound <= prospect.value <= prospect.usual_value
    assert family.price(problem, result.plan) == result.objective_ns
    assert prospect.usual_ns == family.solve(problem).objective_ns
    assert result.objective_ns is not None
    assert prospect.usual_ns <= result.objective_ns <= MOST * prospect.usual_ns
    fixed = family.fix_order(problem, result.plan)
    times = []
    for scenario, _ in outlook.scenarios:
        variant = family.perturb(fixed, scenario)
        times.append(family.price(variant, family.repriced(variant, result.plan)))
    assert outlook.of(times) == prospect.value


@pytest.mark.parametrize("name", [name for name in CASES if name != "iteration"])
@settings(max_examples=20)
@given(data=st.data())
def test_regret_lies_between_the_best_plan_found_and_the_bound(
    name: str, data: st.DataObject
) -> None:
    check_regret(CASES[name], data.draw(CASES[name].drawn))


@every_family
def test_the_regret_of_a_plan_by_hand(name: str) -> None:
    check_regret(CASES[name], CASES[name].example)


def check_regret(case: Case, problem: Any) -> None:
    family = case.family
    plan = family.solve(problem).plan
    if plan is None:
        return
    rows = regrets(family, problem, plan, NEVER)
    meant = [
        scenario
        for scenario in SCENARIOS
        if all(getattr(scenario, field) == getattr(Scenario(), field) for field in case.refused)
    ]
    if family.name not in ("iteration", "drizzle"):  # there a plan may break a limit
        assert [row.scenario for row in rows] == meant
    for row in rows:
        other = family.perturb(problem, row.scenario)
        assert row.plan_ns == family.price(other, family.repriced(other, plan))
        solved = family.solve(other)
        assert solved.objective_ns is not None
        assert row.best_ns <= min(row.plan_ns, solved.objective_ns)
        assert row.bound_ns is not None
        assert row.bound_ns <= row.best_ns
        assert row.at_least >= 1
        assert row.at_most is None or row.at_most >= row.at_least


def all_batches(problem: ibatch.Problem) -> Iterator[ibatch.Plan]:
    for count in range(problem.layers):
        for inner in combinations(range(1, problem.layers), count):
            yield problem.plan((0, *inner, problem.layers))


EVERY: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Iterator[Any]], bool]] = {
    "ibatch": (ibatch_problems(max_layers=4, objective="makespan"), all_batches, True),
    "fsdp": (fsdp_problems(max_layers=2), every_plan, False),
    "overlap": (overlap_problems(2, 2), all_plans, False),
}
"""Small problems, all plans of one, and whether the best over scenarios is always found."""


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=40)
@given(data=st.data(), outlook=outlooks)
def test_no_plan_is_below_the_bound_over_scenarios(
    name: str, data: st.DataObject, outlook: Outlook
) -> None:
    family: Family[Any, Any, Any] = CASES[name].family
    drawn, every, exact = EVERY[name]
    problem = data.draw(drawn)
    least = least_value(family, problem, outlook, every)
    result, prospect = robust_plan(family, problem, outlook, NEVER)
    assert (least is None) == (prospect is None) == (result.plan is None)
    if prospect is None or least is None:
        return
    assert prospect.bound <= least <= prospect.value
    if exact:
        assert least == prospect.value


def least_value(
    family: Family[Any, Any, Any],
    problem: Any,
    outlook: Outlook,
    every: Callable[[Any], Iterator[Any]],
) -> Fraction | None:
    """Return the least value of all plans that cost little more than the best; None without any."""
    priced = []
    for plan in every(problem):
        try:
            priced.append((family.price(problem, plan), plan))
        except InvalidPlanError:
            continue
    if not priced:
        return None
    most = MOST * min(time for time, _ in priced)
    variants = [family.perturb(problem, scenario) for scenario, _ in outlook.scenarios]
    return min(
        outlook.of([family.price(variant, plan) for variant in variants])
        for time, plan in priced
        if time <= most
    )


@pytest.mark.parametrize(
    ("name", "every"), [("ibatch", all_batches), ("fsdp", every_plan), ("overlap", all_plans)]
)
@pytest.mark.parametrize("percentile", [None, Fraction(90), Fraction(50)])
def test_the_plan_by_hand_is_the_best_of_all(
    name: str, every: Callable[[Any], Iterator[Any]], percentile: Fraction | None
) -> None:
    outlook = replace(SLOWER, percentile=percentile)
    family, problem = CASES[name].family, CASES[name].example
    if name == "fsdp":
        problem = replace(
            problem,
            **{
                field: getattr(problem, field)[:3]
                for field in ("forward_ns", "backward_ns", "parameter_bytes", "activation_bytes")
            },
        )
    _, prospect = robust_plan(family, problem, outlook, NEVER)
    assert prospect is not None
    assert prospect.value == least_value(family, problem, outlook, every)


@every_family
def test_a_short_time_leaves_an_answer(name: str) -> None:
    case, begin = CASES[name], time.perf_counter()
    family = case.family
    plan = family.solve(case.example).plan
    rows = regrets(family, case.example, plan, Deadline(0.001))
    assert len(rows) <= len(SCENARIOS)
    assert regrets(family, case.example, plan, Deadline(0)) == ()
    knob: Knob = "startup"
    sensitivity(family, case.example, plan, knob, FACTORS, Deadline(0.001))
    assert sensitivity(family, case.example, plan, knob, FACTORS, Deadline(0)) == ()
    if case.robust:
        result, prospect = robust_plan(family, case.example, SLOWER, Deadline(0.001))
        assert (result.plan is None) or prospect is None or prospect.value >= prospect.bound
    assert time.perf_counter() - begin < LONG_S


@robust_families
def test_times_in_other_units_have_the_same_plan(name: str) -> None:
    """Perturbing all times is how the units change; the smaller one leaves nothing to round."""
    family = CASES[name].family

    def made(factor: int) -> Any:
        unit = Scenario(
            computation=Fraction(factor), startup=Fraction(factor), bandwidth=Fraction(1, factor)
        )
        problem = family.perturb(CASES[name].example, unit)
        result, prospect = robust_plan(family, problem, SLOWER, NEVER)
        assert prospect is not None
        return result.plan, prospect.value / factor, prospect.bound / factor, prospect.usual_ns

    plan, value, bound, usual_ns = made(60)
    again, same_value, same_bound, longer_ns = made(240)
    assert (value, bound, 4 * usual_ns) == (same_value, same_bound, longer_ns)
    if name == "yan":
        plan, again = plan.configuration, again.configuration
    if name not in ("caramel", "iteration"):  # whose plans hold times
        assert plan == again


def test_a_problem_with_scenarios_without_meaning_is_refused_before_it_is_planned() -> None:
    wrong = Outlook(((Scenario(), Fraction(1)), (Scenario(late=Fraction(1)), Fraction(1))))
    with pytest.raises(InvalidInputError) as refused:
        robust_plan(overlap.OVERLAP, CASES["overlap"].example, wrong, Deadline(0))
    assert refused.value.path == "scenarios[1].late"


def test_a_configuration_for_scenarios_has_the_nominal_price() -> None:
    """Plans of yan hold prices: those of the scenarios they were made for are of no use."""
    example = CASES["yan"].example
    problem = replace(
        example,
        machines=7,
        read_every=50,
        top=1,  # so that another plan comes from a scenario
        constants=replace(
            example.constants,
            muladd_ns=Fraction(5),
            latency_ns=[Fraction(5), Fraction(600)],
            nic_bits_per_s=Fraction(10**8),
        ),
    )
    slow = Scenario(bandwidth=Fraction(1, 16)), Scenario(startup=Fraction(16))
    outlook = Outlook(((Scenario(), Fraction(1)), *((one, Fraction(5)) for one in slow)))
    check_robust(yan.YAN, problem, outlook)
    result, prospect = robust_plan(yan.YAN, problem, outlook, NEVER)
    assert result.plan is not None
    assert prospect is not None
    assert prospect.value < prospect.usual_value
    assert len(result.plan.ranking) == 1


def test_the_bound_of_fewer_choices_is_none_of_all() -> None:
    """Plans for a scenario are sought in the mode of the usual plan; the other is faster there."""
    cluster = Cluster("four", "", 4, Switch(4), Nic(Fraction(10**9), 1000), memory_bytes=10**6)
    problem = replace(CASES["iteration"].example, cluster=cluster)
    cheap = Scenario(startup=Fraction(1, 100))
    _, prospect = robust_plan(iteration.ITERATION, problem, Outlook(((cheap, Fraction(1)),)), NEVER)
    other = iteration.ITERATION.perturb(problem, cheap)
    best_ns = iteration.solve(other).objective_ns
    usual = iteration.solve(problem).plan
    assert usual is not None
    narrow = iteration.solve(iteration.ITERATION.narrow(other, usual)).lower_bound_ns
    assert prospect is not None
    assert best_ns is not None
    assert narrow is not None
    assert prospect.bound <= best_ns < narrow


# How a plan changes with one number.


@every_family
@pytest.mark.parametrize("knob", ["computation", "startup", "bandwidth"])
def test_a_sweep_has_the_best_plan_at_every_factor(name: str, knob: Knob) -> None:
    case, few = CASES[name], (Fraction(2), Fraction(1), Fraction(1, 4), Fraction(2))
    family, problem = case.family, case.example
    plan = family.solve(problem).plan
    if knob in case.refused:
        with pytest.raises(NotApplicableError) as refused:
            sensitivity(family, problem, plan, knob, few, NEVER)
        assert refused.value.path == knob
        return
    points = sensitivity(family, problem, plan, knob, few, NEVER)
    assert [point.factor for point in points] == [Fraction(1, 4), 1, 2]
    for point in points:
        changed: dict[str, Any] = {knob: point.factor}
        other = family.perturb(problem, Scenario(**changed))
        solved = family.solve(other)
        assert solved.objective_ns is not None
        assert point.best_ns == family.price(other, point.best) <= solved.objective_ns
        assert point.bound_ns is not None
        assert point.bound_ns <= point.best_ns
        if point.kept_ns is not None:
            assert point.best_ns <= point.kept_ns
            assert point.kept_ns == family.price(other, family.repriced(other, plan))
        else:
            assert name == "drizzle"  # a group too small for the overhead
        if "ddp" not in family.methods:
            assert point.ddp_ns is None


def test_known_plans_and_new_ones_are_priced_at_every_factor() -> None:
    family, problem = ibatch.IBATCH, CASES["ibatch"].example
    one, apart = problem.plan((0, 4)), problem.plan((0, 1, 2, 3, 4))
    asked = []

    def again(
        other: ibatch.Problem, least: int | None, _: Deadline
    ) -> tuple[list[ibatch.Plan], int]:
        asked.append(least)
        return [apart], 7

    points = sensitivity(
        family, problem, one, "startup", [Fraction(0) + 1, Fraction(10)], NEVER, again=again
    )
    assert [point.best for point in points] == [apart, one]
    assert [point.bound_ns for point in points] == [7, 7]
    assert asked == [point.kept_ns for point in points]
    points = sensitivity(
        family, problem, apart, "startup", [Fraction(10)], NEVER, known=[one], again=again
    )
    assert points[0].best == one
    assert points[0].best_ns < (points[0].kept_ns or 0)


def test_a_number_that_becomes_too_large_is_left_out_but_for_that_of_the_problem() -> None:
    large = ibatch.Problem(compute_ns=[2**61], startup_ns=1, transfer_ns=[1])
    plan = large.plan((0, 1))
    points = sensitivity(ibatch.IBATCH, large, plan, "computation", FACTORS, NEVER)
    assert [point.factor for point in points] == [f for f in FACTORS if f <= 2]


@pytest.mark.parametrize(
    ("beyond", "below", "found"),
    [
        (Fraction(3), None, 3),
        (None, Fraction(1, 3), Fraction(1, 3)),
        (Fraction(5), Fraction(1, 3), Fraction(1, 3)),
        (Fraction(3), Fraction(1, 5), 3),
        (Fraction(5, 2), Fraction(1, 3), Fraction(5, 2)),
        (Fraction(7, 2), Fraction(1, 3), Fraction(1, 3)),
        (Fraction(2000), None, None),
        (None, None, None),
    ],
)
def test_the_break_even_factor_is_the_nearest(
    beyond: Fraction | None, below: Fraction | None, found: Fraction | None
) -> None:
    def better(factor: Fraction) -> bool:
        above = beyond is not None and factor >= beyond
        return above or (below is not None and factor <= below)

    factor = break_even(better, NEVER)
    if found is None:
        assert factor is None
        return
    assert factor is not None
    assert better(factor)
    assert abs(factor / found - 1) < Fraction(1, 1000)
    assert break_even(better, Deadline(0)) is None


def test_where_another_plan_of_a_family_wins() -> None:
    """One batch wins where start-ups cost more: when two of them are dearer than to wait."""
    problem = ibatch.Problem(compute_ns=[100, 100], startup_ns=10, transfer_ns=[100, 100])
    apart, one = problem.plan((0, 1, 2)), problem.plan((0, 2))

    def better(factor: Fraction) -> bool:
        other = ibatch.IBATCH.perturb(problem, Scenario(startup=factor))
        return ibatch.IBATCH.price(other, one) < ibatch.IBATCH.price(other, apart)

    factor = break_even(better, NEVER)
    assert factor is not None
    assert better(factor)
    assert not better(factor * Fraction(9, 10))


def test_a_wrong_factor_is_an_invalid_input() -> None:
    with pytest.raises(InvalidInputError):
        sensitivity(
            ibatch.IBATCH,
            CASES["ibatch"].example,
            CASES["ibatch"].example.plan((0, 4)),
            "bandwidth",
            [Fraction(1), Fraction(0)],
            NEVER,
        )
