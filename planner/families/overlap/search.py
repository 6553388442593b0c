"""Heuristics: the graph's own order, one list schedule, and local search over rules and mergings.

`own_order` changes nothing. `greedy` is one list schedule with look-ahead, O(n log n). `search`
tries rules of list scheduling, mergings by size, then changes of single transfers from the
incumbent; each list schedule costs O(n log n).

Guarantee: never worse than the graph's own order if that keeps to the limit. Source: own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random

from planner.families.overlap.bounds import lower_bound_ns
from planner.families.overlap.evaluation import (
    Evaluation,
    Plan,
    evaluate,
    own_order,
    peak_memory,
)
from planner.families.overlap.list_schedule import (
    Rules,
    Units,
    list_schedule,
    profile_of,
    topological,
)
from planner.families.overlap.merging import (
    MAX_LEVEL,
    Level,
    contract,
    groups_up_to,
    merge_order,
    mergeable_bytes,
    same_levels,
    split_or_join,
    unmerged,
)
from planner.families.overlap.problem import Problem, read_until_waits
from planner.solving.deadline import NEVER, Deadline
from planner.solving.family import OUT_OF_TIME
from planner.solving.methods import Outcome, named
from planner.solving.result import Infeasibility

_TRIES = 400
"""Single changes tried without a time limit."""

_TRIES_OF_PAIR = 50
"""Single changes tried per pair of collectives with a time limit."""

LARGE = 50_000
"""Beyond this many nodes and without a time limit, only one list schedule is tried."""

_RULES = (
    Rules(),
    Rules(lead=0.0),
    Rules(lead=0.3),
    Rules(lead=3.0),
    Rules(reserve=0.2, lead=0.0),
    Rules(reserve=4.0, lead=0.3),
    Rules(reserve=0.2, lead=0.0, ahead=0.1),
    Rules(reserve=0.2, lead=0.0, ahead=0.03),
    Rules(reserve=0.0, lead=0.0, behind=0.1),
    Rules(reserve=0.2, lead=0.0, ahead=0.1, behind=0.1),
)


def own(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Return the graph's original order."""
    best = _Best(problem)
    best.tried(own_order(problem))
    return _outcome(problem, best)


def greedy(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Return one list schedule, or the graph's own order if that is no worse."""
    best = _Best(problem, deadline)
    best.tried(own_order(problem))
    units = unmerged(problem)
    best.scheduled(units, range(len(units.missing)), _RULES[0])
    return _outcome(problem, best)


def search(problem: Problem, deadline: Deadline, *, start: Plan | None = None) -> Outcome[Plan]:
    """Search for a short makespan, beginning with `start` if that is given.

    Without a time limit, stops after a few hundred list schedules; with one, also when little is
    left to try.
    """
    best = _Best(problem, deadline)
    best.tried(own_order(problem))
    if start is not None:
        best.tried(start)
    units = unmerged(problem)
    nodes = range(len(units.missing))
    best.scheduled(units, nodes, _RULES[0])
    if best.plan is None:  # a proof of infeasibility saves the search
        if proven_infeasible(problem) is not None:
            return _outcome(problem, best)
        from planner.families.overlap.exact import applicable, solve_exact

        if applicable(problem):
            return named("exact", solve_exact)(problem, deadline)
    if len(nodes) > LARGE and deadline.remaining_s is None:
        return _outcome(problem, best)
    best.bound, _ = lower_bound_ns(problem, deadline)
    if best.plan is not None:
        deadline.report_incumbent(best.plan, best.bound)
    timed = deadline.remaining_s is not None
    tries = max(_TRIES, timed * _TRIES_OF_PAIR * len(problem.collectives) ** 2)
    for step in _steps(problem, units, best, start, tries):
        if deadline.passed or best.proven:
            break
        step()
    return _outcome(problem, best)


def _steps(
    problem: Problem, units: Units, best: "_Best", start: Plan | None, tries: int
) -> Iterator[Callable[[], object]]:
    nodes = range(len(units.missing))
    place, by_need = merge_order(problem, units)
    mergeable = [
        number for number in by_need if problem.kinds[problem.collectives[number].kind].mergeable
    ]
    if start is not None:
        yield partial(best.merging, start.merged, None)
    for rules in _RULES[1:]:
        yield partial(best.scheduled, units, nodes, rules)
    total = mergeable_bytes(problem)
    # First the same level for every kind, then kind by kind.
    levels = _Levels(problem, best, place, by_need)
    for level in same_levels():
        yield partial(levels.tried, dict.fromkeys(total, level))
    for rules in _RULES:
        yield partial(best.merging, best.groups, rules)
    while levels.better():
        for kind in total:
            for level in levels.around(kind):
                yield partial(levels.tried, {**levels.best_level, kind: level})
    for rules in _RULES:
        yield partial(best.merging, best.groups, rules)
    random = Random(1)
    kinds = [it.kind for it in problem.collectives]
    for _ in range(tries):
        groups = best.groups
        for _ in range(random.choice((1, 1, 2, 4, 8))):
            cut = random.random() if random.random() < 0.5 else 0.0
            groups = split_or_join(groups, mergeable, kinds, random.random(), cut)
        rules = best.rules if random.random() < 0.8 else _drawn(random)
        yield partial(best.merging, groups, rules)


def _drawn(random: Random) -> Rules:
    """Return random rules."""
    return Rules(
        reserve=random.choice((0.0, 0.2, 1.0, 4.0)),
        lead=random.choice((0.0, 0.0, 0.1, 0.3, 1.0, 3.0)),
        ahead=random.choice((inf, 0.2, 0.1, 0.05, 0.03)),
        behind=random.choice((0.0, 0.0, 0.02, 0.1)),
    )


@dataclass(slots=True)
class _Levels:
    """Merging by size, with a level for each kind."""

    problem: Problem
    best: "_Best"
    place: Sequence[int]
    by_need: Sequence[int]
    best_level: dict[int, Level] = field(default_factory=dict)
    makespan: int | None = None
    looked: int | None = None  # the makespan at the last call of `better`

    def tried(self, level: Mapping[int, Level]) -> None:
        """Try levels; level (0, 0) is one transfer per kind."""
        groups = groups_up_to(self.problem, self.place, self.by_need, level)
        makespan = self.best.merging(groups, None)
        if makespan is not None and (self.makespan is None or makespan < self.makespan):
            self.makespan, self.best_level = makespan, dict(level)

    def better(self) -> bool:
        """Return whether the makespan has improved since the last call."""
        before, self.looked = self.looked, self.makespan
        return before != self.makespan

    def around(self, kind: int) -> list[Level]:
        """Return the levels next to a kind's best."""
        power, small = self.best_level.get(kind, (0, 0))
        near = [(other, small) for other in (power - 1, power + 1, power + 2, MAX_LEVEL)]
        near += [(power, other) for other in (small - 2, small + 2)]
        return [level for level in near if min(level) >= 0]


@dataclass(slots=True)
class _Best:
    """The incumbent, and the rules and merging that made it."""

    problem: Problem
    deadline: Deadline = NEVER
    plan: Plan | None = None
    evaluation: Evaluation | None = None
    rules: Rules = _RULES[0]
    groups: tuple[tuple[int, ...], ...] = ()
    bound: int = 0

    @property
    def proven(self) -> bool:
        return self.evaluation is not None and self.evaluation.makespan_ns <= self.bound

    def tried(self, plan: Plan) -> Evaluation:
        """Keep a plan if it fits and is better; return its evaluation."""
        evaluation = evaluate(self.problem, plan)
        limit = self.problem.memory_limit_bytes
        fits = limit is None or evaluation.peak_bytes <= limit
        better = self.evaluation is None or evaluation.makespan_ns < self.evaluation.makespan_ns
        if fits and better:
            self.plan, self.evaluation, self.groups = plan, evaluation, plan.merged
            self.deadline.report_incumbent(plan, self.bound or None)
        return evaluation

    def scheduled(self, units: Units, order: Sequence[int], rules: Rules) -> int | None:
        """Try a list schedule along an order of the units; return its makespan, or None."""
        limit = self.problem.memory_limit_bytes
        listed = list_schedule(units, profile_of(units, order), rules, limit, self.deadline)
        if listed is None:
            return None
        before = self.evaluation
        made = self.tried(units.plan(listed))
        if self.evaluation is not before:
            self.rules = rules
        return made.makespan_ns

    def merging(self, groups: Sequence[Sequence[int]], rules: Rules | None) -> int | None:
        """Try a merging along the graph's order, with the given rules or the incumbent's."""
        units = contract(self.problem, groups)
        if units is None:
            return None
        return self.scheduled(units, _along_the_graph(units), rules or self.rules)


def _along_the_graph(units: Units) -> list[int]:
    """Return the order of merged units that is closest to the graph's own.

    Merged starts take the place of their last member, merged waits that of their first.
    """
    keys = [
        float(members[-1] if units.wait_of[unit] >= 0 else members[0])
        for unit, members in enumerate(units.members)
    ]
    return topological(units, keys)


def listed(
    problem: Problem, groups: Sequence[Sequence[int]], rules: Rules, deadline: Deadline
) -> Plan | None:
    """Return a list schedule with a merging; None if there is none, or time runs out."""
    units = contract(problem, groups)
    if units is None:
        return None
    profile = profile_of(units, _along_the_graph(units))
    order = list_schedule(units, profile, rules, problem.memory_limit_bytes, deadline)
    return None if order is None else units.plan(order)


def _outcome(problem: Problem, best: _Best) -> Outcome[Plan]:
    if best.plan is None:
        return no_order(problem, timed_out=best.deadline.passed)
    return Outcome(best.plan, best.bound or None)


def no_order(problem: Problem, *, timed_out: bool = False) -> Outcome[Plan]:
    """Return the outcome without a plan: proven infeasible by a single moment, or nothing found."""
    reason = proven_infeasible(problem)
    if reason is not None:
        return Outcome(None, infeasibility=reason)
    if timed_out:
        return Outcome(None, timed_out=True, infeasibility=OUT_OF_TIME)
    own, _ = peak_memory(problem, own_order(problem))
    found = Infeasibility(
        f"no order within {problem.memory_limit_bytes} bytes was found, and none was ruled out; "
        f"the graph's own order needs {own}",
        ("memory_limit_bytes",),
    )
    return Outcome(None, infeasibility=found)


def proven_infeasible(problem: Problem) -> Infeasibility | None:
    """Return the infeasibility if a single moment needs more memory than the limit, else None.

    The moments are the begin, the end, and the issue of a node with all tensors it produces and
    reads.
    """
    limit = problem.memory_limit_bytes
    if limit is None:
        return None
    needs, begin, end, always = [0] * len(problem.nodes), 0, 0, 0
    merges = (n for n, it in enumerate(problem.collectives) if problem.kinds[it.kind].mergeable)
    read = read_until_waits(problem, merges)
    for number, tensor in enumerate(problem.tensors):
        users = {*tensor.readers, *read.get(number, ())}
        stays = tensor.kept or not (users or tensor.producer is not None)
        end += tensor.size_bytes if stays else 0
        if tensor.producer is not None:
            users.add(tensor.producer)
        else:
            begin += tensor.size_bytes
            if stays:
                always += tensor.size_bytes
                continue
        for user in users:
            needs[user] += tensor.size_bytes
    node = max(range(len(needs)), key=needs.__getitem__)
    for what, held, nodes in (
        (problem.nodes[node].name, needs[node] + always, (node,)),
        ("the begin of the graph", begin, ()),
        ("the end of the graph", end, ()),
    ):
        if held > limit:
            return Infeasibility(
                f"{what} needs {held} bytes at once, more than {limit}",
                ("memory_limit_bytes",),
                nodes,
            )
    return None
