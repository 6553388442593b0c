"""Plans of a whole iteration under the rules of an export target, on a cluster.

Problem: of all plans that keep to a target's rules, by an algorithm that its library can use, find
the shortest. Method: `planner.families.caramel.for_target` under each of these algorithms that the
cluster allows, at depth 1; the best counts. Other plans are priced under a target by the same
algorithms (`planner.families.caramel.for_target`). For FSDP2, which shards parameters, use
`planner.fsdp`. Guarantee: never slower than the target's default by its best algorithm; the bound
is the minimum over the algorithms. Complexity: that of the family's method, per algorithm. Source:
own.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from planner.families import caramel
from planner.families.caramel.for_target import BUCKETS, default_plan, planned, price_under_target
from planner.families.caramel.problem import Plan as GradientPlan
from planner.families.iteration.evaluation import evaluate
from planner.families.iteration.plan import MEASURED, Plan, from_gradients
from planner.families.iteration.problem import Problem
from planner.families.iteration.synchronisation import cut_off
from planner.families.iteration.transfers import limit_infeasible, too_many_transfers
from planner.model.errors import NotApplicableError
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, named
from planner.solving.result import Infeasibility
from planner.solving.targets import TARGETS, Exported, Target

Planned = Callable[[caramel.Problem, Deadline, int | None], Outcome[GradientPlan]]


def within(target: Target) -> Mapping[str, AnyMethod[Problem, Plan]]:
    """Return the methods of a problem with a target: the best plan, and the target's default."""
    best = _over(planned)
    default = _over(lambda under, deadline, _: Outcome(default_plan(under, target, deadline)))
    return {"auto": named(BUCKETS, best), BUCKETS: best, target.name: default}


def exported(problem: Problem, plan: Plan, deadline: Deadline) -> dict[str, Exported]:
    """Return the price of a plan under the rules of each target, as far as the time suffices."""
    prices = {}
    for name, target in TARGETS.items():
        try:
            prices[name] = min(
                (
                    price_under_target(under, target, plan.as_gradients, deadline)
                    for _, under in _problems(problem, target)
                ),
                key=lambda price: (price.default_ns, price.plan_ns or 0),
                default=None,
            )
        except (NotApplicableError, TimeUpError):
            break
    if plan.mode == "sharded":
        why = "sums up whole gradients on every worker, the plan shards parameters"
        prices = {
            name: price and replace(price, plan_ns=None, reason=f"{TARGETS[name].title} {why}")
            for name, price in prices.items()
        }
    return {name: price for name, price in prices.items() if price is not None}


def _problems(problem: Problem, target: Target) -> Iterator[tuple[str, caramel.Problem]]:
    """Yield each algorithm that a target's library can use, with its gradient transfers."""
    for option in problem.single:
        if option.depth == 1 and option.algorithm in (*target.algorithms, "none", MEASURED):
            gradients = problem.gradients[option.algorithm]
            yield option.algorithm, replace(gradients, cost=option.all_reduce, target=target)


def _over(method: Planned) -> AnyMethod[Problem, Plan]:
    """Return the method that takes the best of a method's gradient plans over all algorithms."""

    def run(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        target, cut = problem.target, cut_off(problem.cluster)
        assert target is not None
        if "replicated" not in problem.modes:
            raise NotApplicableError("modes", f"the plans of {target.title} are replicated")
        small = (
            cut
            or limit_infeasible(problem, "replicated")
            or too_many_transfers(problem, "replicated")
        )
        if small is not None:
            return Outcome(None, infeasibility=small)
        room = problem.transfer_limit("replicated")
        made = [(name, method(under, deadline, room)) for name, under in _problems(problem, target)]
        outcomes = [outcome for _, outcome in made]
        plans = [
            from_gradients(name, outcome.plan) for name, outcome in made if outcome.plan is not None
        ]
        if not plans:
            raise NotApplicableError(
                "algorithms", f"{target.title} can be told of {', '.join(target.algorithms)} only"
            )
        timed_out = any(outcome.timed_out for outcome in outcomes)
        best = min(plans, key=lambda plan: evaluate(problem, plan).iteration_ns)
        largest = max(transfer.size_bytes for transfer in best.transfers)
        if room is not None and largest > room:
            reason = f"{target.title} sends {largest} bytes at once, there is room for {room}"
            why = Infeasibility(reason, (problem.binding("replicated"),))
            return Outcome(None, None, timed_out, why)
        known = [outcome.lower_bound for outcome in outcomes if outcome.lower_bound is not None]
        return Outcome(best, min(known) if len(known) == len(outcomes) else None, timed_out)

    return run
