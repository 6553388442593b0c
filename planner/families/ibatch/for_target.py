"""Batches for FSDP2 as the target: its all-gathers are the pulls.

Problem: FSDP2 gathers the modules of one ``fully_shard`` call together. If unsharded ahead, it
issues all gathers from the start of the forward pass in a given order. So any batches of whole
layers are possible. Gradients are scattered in the same units, so pushes are not planned here
(`planner.fsdp` plans both).
Method: the family's methods and the target's default: the faster of one unit per layer and one unit
for all layers.
Guarantee: `auto` and `exact` are never slower than the default.
Source: own; the rules are in `planner.solving.targets.FSDP2`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from planner.families.ibatch.baselines import layer_by_layer, one_batch
from planner.families.ibatch.evaluation import Evaluation, evaluate
from planner.families.ibatch.problem import Plan, Problem
from planner.model.errors import InvalidInputError
from planner.model.validation import shown
from planner.solving.deadline import NEVER, Deadline
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome
from planner.solving.targets import FSDP2, Exported, Target


def check_modules(layers: Sequence[Sequence[str]] | None, target: Target) -> None:
    """Check that each layer has whole modules, which a target sends in one piece.

    Raises
    ------
    InvalidInputError
        If parameters of one module are in two layers.
    """
    first: dict[str, int] = {}
    for position, names in enumerate(layers or ()):
        for place, name in enumerate(names):
            module = name.rpartition(".")[0]
            if first.setdefault(module, position) != position:
                raise InvalidInputError(
                    f"layer_parameters[{position}][{place}]",
                    f"{target.title} gathers whole modules: others of {shown(module)} are in "
                    f"layer_parameters[{first[module]}]",
                )


def default(problem: Problem, deadline: Deadline = NEVER) -> Outcome[Plan]:
    """Return the default plan: every layer a unit, or all in one if faster and within the cap."""
    too_large = problem.too_large()
    if too_large is not None:
        return Outcome(None, infeasibility=too_large)
    whole = problem.reach(0) == problem.layers
    rules = (layer_by_layer, one_batch) if whole else (layer_by_layer,)
    return min((rule(problem, deadline) for rule in rules), key=partial(_lasts, problem))


def within(
    methods: Mapping[str, AnyMethod[Problem, Plan]], target: Target
) -> dict[str, AnyMethod[Problem, Plan]]:
    """Return the methods for a problem with a target, including the target's default."""

    def kept(method: AnyMethod[Problem, Plan]) -> AnyMethod[Problem, Plan]:
        def run(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
            outcome = method(problem, deadline)
            if outcome.plan is None or not outcome.timed_out:
                return outcome
            usual = default(problem)
            better = min(outcome, usual, key=partial(_lasts, problem))
            return replace(outcome, plan=better.plan)

        return run

    best = {name: kept(methods[name]) for name in ("auto", "exact")}
    return {**methods, **best, target.name: default}


def exported(problem: Problem, evaluation: Evaluation) -> dict[str, Exported]:
    """Return the makespans of a pull plan and of FSDP2's default; empty for pushes."""
    if problem.direction != "pull" or problem.objective != "makespan":
        return {}
    return {FSDP2.name: Exported(evaluation.makespan_ns, _lasts(problem, default(problem)))}


def _lasts(problem: Problem, outcome: Outcome[Plan]) -> int:
    assert outcome.plan is not None
    return evaluate(problem, outcome.plan).makespan_ns
