"""Plans that cost little more if transfers or computation take longer, or channels share a rate.

Problem: a plan that hides all communication at the times as given may expose much of it at others.
Of the plans within `MAX_LOSS` of the best nominal makespan, which has the least mean makespan over
`SCENARIOS`, which is the one with the least mean regret?
Method: `planner.solving.what_if.robust_plan` chooses. Its candidates are list schedules of the
mergings of known plans, made for longer transfers or for one shared channel, and of mergings by
size, priced at all times; its neighbours merge the transfers of one kind by size, or split or join
one transfer.
Guarantee: no candidate exceeds the memory limit.
Complexity: one list schedule a candidate, O(n log n). Source: own.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random

from planner.families.overlap.evaluation import Plan, makespan_ns
from planner.families.overlap.list_schedule import Rules
from planner.families.overlap.merging import (
    groups_up_to,
    merge_order,
    mergeable_bytes,
    mergings_by_size,
    same_levels,
    split_or_join,
    unmerged,
)
from planner.families.overlap.problem import Collective, Kind, Node, Problem
from planner.families.overlap.search import LARGE, listed
from planner.solving.deadline import NEVER, Deadline
from planner.solving.scenarios import Scenario, ScenarioSet, refuse_changes

MAX_LOSS = Fraction(101, 100)
"""Largest loss of a robust plan at the nominal times, as a factor on the makespan."""

TRIES = 150
"""Neighbours that a search over scenarios tries."""


def _transfers(factor: Fraction) -> Scenario:
    return Scenario(startup=factor, bandwidth=1 / factor)


SCENARIOS = (
    _transfers(Fraction(5, 4)),
    _transfers(Fraction(3, 2)),
    _transfers(Fraction(2)),
    Scenario(computation=Fraction(4, 5)),
    Scenario(computation=Fraction(5, 4)),
    Scenario(shared=True),
)
"""Longer transfers, computation that is slower or faster, and channels that share one rate."""

_LISTED = (SCENARIOS[2], SCENARIOS[-1])
"""Scenarios that list schedules of known mergings are made for."""

USUAL = ScenarioSet(tuple((scenario, Fraction(1)) for scenario in (Scenario(), *SCENARIOS)))
"""The scenarios that a plan is chosen for unless a request has its own."""

_RULES = (
    Rules(),
    Rules(lead=0.3),
    Rules(reserve=4.0, lead=0.3),
    Rules(reserve=0.2, lead=0.0, ahead=0.1),
    Rules(reserve=0.2, lead=0.0, ahead=0.1, behind=0.1),
)


def perturbed(problem: Problem, scenario: Scenario) -> Problem:
    """Return the problem with the numbers of a scenario."""
    reason = "a graph of overlap has no passes and no spreads"
    refuse_changes(scenario, ("late", "spread", "part"), reason)
    nodes, collectives, factor = problem.nodes, problem.collectives, scenario.computation
    if factor != 1:
        nodes = tuple(_slowed(node, factor) for node in nodes)
        collectives = tuple(_packed(it, factor) for it in collectives)
    kinds = tuple(_scaled(kind, scenario) for kind in problem.kinds)
    return problem.retimed(nodes, kinds, collectives)


def _scaled(kind: Kind, scenario: Scenario) -> Kind:
    """Return a kind with the times of a scenario."""
    first = kind.times[0][1]
    times = (
        (size, round(first * scenario.startup + (time - first) / scenario.bandwidth))
        for size, time in kind.times
    )
    channel = "shared" if scenario.shared else kind.channel
    return replace(kind, channel=channel, times=tuple(times))


def _slowed(node: Node, factor: Fraction) -> Node:
    """Return a node whose computation takes another time."""
    spent = node.duration_ns
    return replace(node, duration_ns=round(spent * factor)) if spent else node


def _packed(collective: Collective, factor: Fraction) -> Collective:
    """Return a collective whose packing and unpacking take other times."""
    if not (collective.pack_ns or collective.unpack_ns):
        return collective
    pack, unpack = round(collective.pack_ns * factor), round(collective.unpack_ns * factor)
    return replace(collective, pack_ns=pack, unpack_ns=unpack)


def candidates(problem: Problem, plans: Sequence[Plan], deadline: Deadline) -> Iterator[Plan]:
    """Yield list schedules of known mergings, for several scenarios, and of mergings by size.

    Where channels share a rate, fewer and larger transfers are better than at the nominal times.
    """
    variants = [problem, *(perturbed(problem, scenario) for scenario in _LISTED)]
    known = dict.fromkeys(plan.merged for plan in plans)
    tried = [(it, merged, rules) for merged in known for rules in _RULES for it in variants]
    tried += [
        (problem, merged, rules)
        for merged in mergings_by_size(problem)
        for rules in (_RULES[0], _RULES[-1])
    ]
    for variant, merged, rules in tried:
        plan = listed(variant, merged, rules, deadline)
        if plan is not None:
            yield plan


def neighbours(problem: Problem, variants: Sequence[Problem], plan: Plan) -> Iterator[Plan]:
    """Yield list schedules with the transfers of one kind merged otherwise, or of one pair.

    First all collectives of a kind are merged by size, beginning with the kind that pays most for
    start-ups, and listed by the rules that suit the plan's own merging best. Where computation
    hides many small transfers, fewer and larger ones leave its channel more time, at next to no
    cost. Then one transfer is split or joined, for one of the variants. Where there is no list
    schedule, the plan itself is yielded, so that the caller can stop in time. Of large graphs,
    whose list schedules take long, there are no neighbours.
    """
    if len(problem.nodes) > LARGE:
        return
    place, by_need = merge_order(problem, unmerged(problem))
    kinds = [it.kind for it in problem.collectives]
    lasting = {
        rules: makespan_ns(problem, made)
        for rules in _RULES
        if (made := listed(problem, plan.merged, rules, NEVER)) is not None
    }
    usual = sorted(lasting, key=lasting.__getitem__)[:2]
    startups = _startups_ns(problem, plan)
    dearest = sorted(mergeable_bytes(problem), key=lambda kind: -startups.get(kind, 0))
    for kind, level, rules in product(dearest, same_levels(), usual):
        others = tuple(members for members in plan.merged if kinds[members[0]] != kind)
        groups = others + groups_up_to(problem, place, by_need, {kind: level})
        made = listed(problem, groups, rules, NEVER)
        yield plan if made is None else made
    random = Random(repr(plan.merged))  # a text, so that all processes draw the same
    mergeable = [number for number in by_need if problem.kinds[kinds[number]].mergeable]
    for _ in range(TRIES):
        cut = random.random() if random.random() < 0.5 else 0.0
        groups = split_or_join(plan.merged, mergeable, kinds, random.random(), cut)
        made = listed(random.choice(variants), groups, random.choice(_RULES), NEVER)
        yield plan if made is None else made


def _startups_ns(problem: Problem, plan: Plan) -> dict[int, int]:
    """Return the total start-up time of each kind's transfers (ns)."""
    alone = Counter(it.kind for it in problem.collectives)
    for members in plan.merged:
        alone[problem.collectives[members[0]].kind] -= len(members) - 1
    return {kind: count * problem.kinds[kind].times[0][1] for kind, count in alone.items()}
