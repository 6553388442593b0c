"""Whole iterations for a target: its algorithms, its room, and its own default."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInputError
from planner.families.caramel import solve as solve_gradients
from planner.families.caramel.for_target import BUCKETS, target_view
from planner.families.iteration import ALGORITHMS, Problem, Synchronisation, solve
from planner.families.iteration.for_target import exported
from planner.model.errors import NotApplicableError
from planner.solving.deadline import NEVER
from planner.solving.targets import TARGETS
from tests.caramel.test_targets import SMALL, compositions, end_of, spans
from tests.iteration.iteration_strategies import clusters, problems
from tests.iteration.making import binding, solved

NAMES = st.sampled_from(sorted(SMALL))


whole = problems(cluster=clusters().filter(lambda cluster: not cluster.failed))
"""On some BCubes where something has failed there is no ring."""


def for_target(problem: Problem, name: str) -> Problem:
    options = {"algorithms": ("ring",), "modes": ("replicated",), "max_transfer_bytes": None}
    return replace(problem, target=SMALL[name], **options)  # type: ignore[arg-type]


def ring(problem: Problem) -> Synchronisation:
    (option,) = (one for one in problem.single if one.depth == 1)
    return option


@given(whole, NAMES)
def test_the_best_plan_for_a_target_is_that_of_its_ring(problem: Problem, name: str) -> None:
    mine = for_target(problem, name)
    plan, objective, least = solved(mine)
    assert plan.mode == "replicated"
    assert set(plan.algorithms) <= {"ring", "none"}
    assert objective <= solved(mine, name).iteration_ns
    cost = ring(mine).all_reduce
    gradients = mine.gradients[ring(mine).algorithm]
    own = solve_gradients(replace(gradients, cost=cost, target=SMALL[name]))
    assert (objective, least) == (own.objective_ns, own.lower_bound_ns)
    for other, target in TARGETS.items():  # each plan is priced under its target's own rules
        best = solved(replace(mine, target=target))
        default = solved(replace(mine, target=target), other)
        priced = exported(mine, best.plan, NEVER)[other]
        assert (priced.plan_ns, priced.default_ns) == (best.iteration_ns, default.iteration_ns)


@given(whole, st.integers(1, 90))
def test_no_bucket_is_larger_than_there_is_room_for(problem: Problem, cap: int) -> None:
    mine = replace(for_target(problem, "ddp"), max_transfer_bytes=cap, element_bytes=1)
    if max(mine.pushed) > cap:
        assert binding(mine)[0] == ("max_transfer_bytes",)
        return
    option = ring(mine)
    view = target_view(mine.gradients[option.algorithm], SMALL["ddp"])
    known = mine.base.windows
    every = ([range(*span) for span in spans(counts)] for counts in compositions(len(view.sizes)))
    ends = [
        end_of(groups, view.ready, view.sizes, option.all_reduce)
        for groups in every
        if all(sum(view.sizes[j] for j in group) <= cap for group in groups)
    ]
    _, objective, least = solved(mine)
    assert objective == least == max(min(ends), known.backward_ns) + known.forward_ns


@given(whole, NAMES)
def test_what_a_target_cannot_be_told_is_refused(problem: Problem, name: str) -> None:
    mine = for_target(problem, name)
    with pytest.raises(NotApplicableError, match="are replicated"):
        solve(replace(mine, modes=("sharded",)))
    with pytest.raises(InvalidInputError, match=f"expected one of auto, {BUCKETS}, {name}"):
        solve(replace(mine, algorithms=ALGORITHMS), method="joint")
    with pytest.raises(InvalidInputError, match="expected a Target"):
        replace(mine, target=name)  # type: ignore[arg-type]
    if mine.cluster.workers > 1:
        with pytest.raises(NotApplicableError, match="told of ring only"):
            solve(replace(mine, algorithms=("shuffle",)))
    free = replace(mine, target=None, modes=("sharded",))
    plan = solved(free, "ps").plan
    for one in exported(free, plan, NEVER).values() if plan.mode == "sharded" else ():
        assert one.plan_ns is None
        assert "shards parameters" in one.reason
