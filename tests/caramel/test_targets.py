"""Plans under the rules of targets, against all buckets there are and against slow replays."""

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner import AffineCost
from planner.families.caramel import Plan, Problem, buckets, evaluate, for_target, solve
from planner.families.caramel.baselines import horovod, whole
from planner.families.caramel.buckets import best_buckets, every_size, sizes_that_make
from planner.families.caramel.for_target import broken_rule, exported, plan_of_buckets, target_view
from planner.model.contention import Interference
from planner.model.costs import TableCost, TransferCost
from planner.solving import targets
from planner.solving.bucketing import ddp_buckets, fitting_buckets
from planner.solving.deadline import NEVER
from planner.solving.targets import EVERY, FSDP2, TARGETS, Buckets, Target, target_of
from planner.solving.tie_break import DELAYS, NOMINAL, Step, delayed_makespan
from planner.testing.strategies import affine_costs, costs
from tests.caramel.graph_strategies import graphs
from tests.caramel.making import solved
from tests.formats.refused import refused
from tests.iteration.making import chain
from tests.present import present

SMALL = {
    "ddp": replace(TARGETS["ddp"], default_bytes=(15, 60)),
    "horovod": replace(TARGETS["horovod"], default_bytes=(60, 60), cycle_ns=3),
    "deepspeed": replace(TARGETS["deepspeed"], default_elements=70),
    "megatron": replace(TARGETS["megatron"], default_elements=40, elements_per_worker=15),
}
"""The targets with defaults for graphs of some bytes."""

some_sizes = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def problems(target: Target) -> st.SearchStrategy[Problem]:
    workers, seeds = st.integers(1, 4), st.integers(0, 3)
    return st.builds(
        Problem, graphs(), costs(), workers=workers, seed=seeds, target=st.just(target)
    )


def compositions(count: int) -> Iterator[list[int]]:
    """Yield every way of cutting so many parameters into consecutive buckets."""
    if not count:
        yield []
    for first in range(1, count + 1):
        for rest in compositions(count - first):
            yield [first, *rest]


def spans(counts: Sequence[int]) -> list[tuple[int, int]]:
    """Return the range of each of some consecutive buckets, given their numbers of parameters."""
    return list(pairwise(accumulate(counts, initial=0)))


def end_of(
    groups: Iterable[Sequence[int]], ready: Sequence[int], sizes: Sequence[int], cost: TransferCost
) -> int:
    """Return when the last of some groups of parameters, sent in turn, has arrived."""
    free = 0
    for group in groups:
        free = max(free, *(ready[j] for j in group)) + cost.cost_ns(sum(sizes[j] for j in group))
    return free


def broken(problem: Problem, target: Target, plan: Plan) -> str:
    return broken_rule(problem, target, plan) or ""


def replayed(problem: Problem, target: Target, counts: Sequence[int]) -> int:
    """Return what an iteration takes with buckets, step by step, by the rules of the target."""
    known, view = problem.windows, target_view(problem, target)
    waiting = [
        (max(view.ready[start:stop]), problem.cost.cost_ns(sum(view.sizes[start:stop])))
        for start, stop in spans(counts)
    ]
    now = free = work = 0
    if target.order == "reversed":
        waiting.sort(key=lambda bucket: bucket[0])
    if target.cycle_ns:
        while waiting:
            while waiting and waiting[0][0] <= now:
                free = max(free, now) + waiting.pop(0)[1]
            now = max(now + target.cycle_ns, free)
    elif target.leaves_late:
        triggers = [max(view.ready[: stop + 1]) for _, stop in spans(counts)[:-1]]
        for trigger, (_, lasts) in zip([*triggers, known.backward_ns], waiting, strict=True):
            now = max(now + trigger - work, free)  # computes, then waits for the bucket before
            work, free = trigger, now + lasts
    else:
        for ready, lasts in waiting:
            free = max(free, ready) + lasts
    return max(free, known.backward_ns) + known.forward_ns


def filled(sizes: Sequence[int], size: int) -> list[int]:
    return ddp_buckets(sizes, size, size)


def allowed(problem: Problem, target: Target) -> list[list[int]]:
    """Return all buckets that the target can be told to make."""
    sizes, kind = target_view(problem, target).sizes, target.buckets
    if kind == "any":
        return list(compositions(len(sizes)))
    rule = fitting_buckets if kind == "fitting" else filled
    return [rule(sizes, size) for size in range(1, sum(sizes) + 1)]


rows = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 60)), min_size=1, max_size=8)
"""Sizes of parameters, and when their gradients are ready."""


@pytest.mark.parametrize("robust", [buckets.ROBUST, 0])  # as of very many parameters
@given(rows=rows, cost=costs())
def test_buckets_are_the_best_of_all_consecutive_ones(
    robust: int, rows: list[tuple[int, int]], cost: AffineCost | TableCost
) -> None:
    sizes, ready = map(list, zip(*rows, strict=True))

    def end(counts: Sequence[int]) -> int:
        return end_of((range(*span) for span in spans(counts)), ready, sizes, cost)

    with patch.object(buckets, "ROBUST", robust):
        found, counts = best_buckets(ready, sizes, cost, NEVER)
    assert end(counts) == found == min(map(end, compositions(len(sizes))))


@given(rows, affine_costs(), st.integers(0, 90))
@example([(1, 100 * place) for place in range(10)], AffineCost(1, Fraction(1)), 0)
def test_of_equally_early_buckets_the_most_robust_then_the_fewest(
    rows: list[tuple[int, int]], cost: AffineCost, until: int
) -> None:
    cost = AffineCost(cost.startup_ns, Fraction(round(cost.ns_per_byte)))
    sizes, ready = map(list, zip(*rows, strict=True))

    def rank(counts: Sequence[int]) -> tuple[int, ...]:
        steps = [Step(max(ready[a:b]), cost.cost_ns(sum(sizes[a:b])), 0) for a, b in spans(counts)]
        ends = [delayed_makespan(delay, steps, until) for delay in (NOMINAL, *DELAYS)]
        return (*ends, len(counts))

    _, counts = best_buckets(ready, sizes, cost, NEVER, until_ns=until)
    assert rank(counts) == min(map(rank, compositions(len(sizes))))


@given(some_sizes, st.sampled_from(["filled", "fitting"]))
def test_every_size_makes_some_of_the_listed_buckets(sizes: list[int], kind: Buckets) -> None:
    rule = fitting_buckets if kind == "fitting" else filled
    made = {size: rule(sizes, size) for size in range(1, sum(sizes) + 1)}
    listed = list(every_size(sizes, kind))
    assert {tuple(counts) for _, counts in listed} == set(map(tuple, made.values()))
    assert all(made[size] == counts for size, counts in listed)
    for counts in compositions(len(sizes)):
        right = [size for size, made_of_it in made.items() if made_of_it == counts]
        between = sizes_that_make(sizes, counts, kind)
        assert (between is None) == (not right)
        if between is not None:
            low, high = between
            assert low == right[0]
            assert low == sum(sizes) or (high or sum(sizes)) == right[-1]


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=200)
@given(st.data())
def test_buckets_leave_when_the_target_sends_them_and_the_best_are_found(
    name: str, data: st.DataObject
) -> None:
    target = SMALL[name]
    problem = data.draw(problems(target))
    every = allowed(problem, target)
    counts = data.draw(st.sampled_from(every))
    plan = plan_of_buckets(problem, target, target_view(problem, target), counts)
    assert evaluate(problem, plan).iteration_ns == replayed(problem, target, counts)
    best, default = solved(problem), solved(problem, name)
    assert not broken(problem, target, plan)
    assert not broken(problem, target, best.plan)
    least = min(replayed(problem, target, counts) for counts in every)
    assert best.bound_ns <= least <= best.iteration_ns <= default.iteration_ns
    assert target.cycle_ns or best.iteration_ns == best.bound_ns
    assert best.bound_ns == default.bound_ns


@given(st.data())
def test_defaults_are_what_the_systems_do(data: st.DataObject) -> None:
    problem = data.draw(problems(SMALL["horovod"]))
    ours = solved(problem, "horovod")
    theirs = present(horovod(problem, NEVER, 3, 60).plan)
    assert ours.plan.groups == theirs.groups
    assert ours.iteration_ns == evaluate(problem, theirs).iteration_ns
    usual = replace(problem, target=None)
    for name in ("ddp", "horovod"):
        own = replace(problem, target=TARGETS[name])
        assert solved(own, name).iteration_ns == solved(usual, name).iteration_ns


def test_megatron_s_default_grows_with_the_workers() -> None:
    assert TARGETS["megatron"].limits(8, 4) == (160_000_000, 160_000_000)
    assert TARGETS["megatron"].limits(64, 2) == (128_000_000, 128_000_000)
    assert TARGETS["deepspeed"].limits(8, 2) == (10**9, 10**9)
    assert TARGETS["ddp"].limits(8, 2) == (2**20, 25 * 2**20)


@pytest.mark.parametrize("name", SMALL)
@given(st.data())
def test_plans_that_break_a_rule_are_noticed(name: str, data: st.DataObject) -> None:
    target = SMALL[name]
    problem = data.draw(problems(target))
    free, plan = replace(problem, target=None), solved(problem).plan
    assert "waits for all" in broken(free, target, replace(plan, barrier=False))
    assert "all-reduces" in broken(free, target, replace(plan, traffic=Fraction(2)))
    group, *others = plan.groups
    part, *parts = group.parts
    if part.stop > 1:
        rest = replace(group, parts=(part._replace(stop=1), *parts))
        other = replace(group, parts=(part._replace(start=1),))
        cut = replace(plan, groups=(rest, other, *others))
        assert "whole parameters" in broken(free, target, cut)
    later = replace(group, not_before_ns=group.not_before_ns + 1)
    assert broken(free, target, replace(plan, groups=(later, *others)))
    view = target_view(problem, target)
    if len(view.order) > 2:
        first, *middle, last = view.order
        apart = (whole(free, [first, last]), whole(free, middle))
        assert "an order of its own" in broken(free, target, replace(plan, groups=apart))
    making = allowed(problem, target)
    for counts in compositions(len(view.order)):
        if counts not in making:
            made = plan_of_buckets(problem, target, view, counts)
            assert "one size" in broken(problem, target, made)


@pytest.mark.parametrize("name", SMALL)
@given(st.data())
def test_interference_never_makes_a_plan_slower_than_the_default(
    name: str, data: st.DataObject
) -> None:
    beside = Interference(data.draw(st.integers(0, 3)), Fraction(1, 20), Fraction(5, 4), 1)
    problem = replace(data.draw(problems(SMALL[name])), interference=beside)
    best, default = solved(problem), solved(problem, name)
    assert best.bound_ns <= best.iteration_ns <= default.iteration_ns


def of_three() -> Problem:
    """Return a new problem, whose graph remembers nothing."""
    return Problem(chain((1, 4, 5), (1, 4, 6), (1, 4, 7)), AffineCost(1, Fraction(1)), workers=2)


def test_a_plan_with_orders_for_other_workers_is_noticed_before_orders_are_drawn() -> None:
    plan = solved(replace(of_three(), target=TARGETS["ddp"])).plan
    many = replace(of_three(), workers=2**16)
    assert "enforces no order" in broken(many, TARGETS["ddp"], plan)
    assert not any(key[0] == "drawn_orders" for key in many.graph.memo)


def test_what_a_target_does_not_do_is_refused() -> None:
    problem = replace(of_three(), target=TARGETS["ddp"])
    for method in ("search", "exact", "ps", "exact_split", "megatron"):
        with refused(None, "expected one of auto, buckets, ddp"):
            solve(problem, method=method)
    with refused(None, "expected one of"):
        solve(replace(problem, target=None), method=for_target.BUCKETS)
    with refused(None, "planner plan"):
        replace(problem, target=FSDP2)
    with refused(None, "expected a Target"):
        replace(problem, target="ddp")  # type: ignore[arg-type]


def test_targets_are_found_by_name() -> None:
    assert target_of(targets.PLANNER) is None
    assert [target_of(name) for name in EVERY] == list(EVERY.values())
    with refused("for", "did you mean 'ddp'"):
        target_of("dpp", "for")
    assert set(targets.TARGET_NAMES) == {*EVERY, targets.PLANNER}


def test_every_target_has_the_rules_that_plans_keep_to() -> None:
    path = Path(__file__).parents[2] / "docs" / "target_rules.toml"
    rules = tomllib.loads(path.read_text(encoding="utf-8"))
    assert rules.keys() == EVERY.keys()
    topics = {"barrier", "pieces", "order", "buckets", "leaves", "default", "algorithms"}
    for rows in rules.values():
        assert {about for about, _, _ in rows} >= topics
        assert all(source.rsplit(":")[-1][0].isdigit() for _, _, source in rows)


def test_the_nearest_size_is_not_sought_among_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = of_three()
    plan = solved(problem, "layer_by_layer").plan
    known = exported(problem, plan, NEVER)
    assert all(one.plan_ns is not None for one in known.values())
    monkeypatch.setattr(for_target, "MOST_LOOKED_AT", 8)
    limited = exported(problem, plan, NEVER)
    unknown = {name for name, one in limited.items() if one.plan_ns is None}
    assert unknown == {"deepspeed", "megatron"}
    assert "too many groups (3)" in limited["deepspeed"].reason
    assert limited["ddp"] == known["ddp"]
