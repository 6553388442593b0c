"""iBatch's methods by name: exact ones, greedy ones, and baselines.

Baselines take O(L) each, without a guarantee: one batch (the default parameter server), layer by
layer (Poseidon, without merging), and for gradients the merging rule of MG-WFBP and the buckets of
PyTorch's DDP. A baseline whose batches break a constraint of the problem has no plan. `auto` is
`exact`, which takes less time than reading the request (``benchmarks/ibatch_speed.py``).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import TypeAlias

from planner.families.ibatch.bounds import out_of_time
from planner.families.ibatch.evaluation import Evaluation, check, evaluate
from planner.families.ibatch.greedy import greedy, greedy_backward, greedy_forward
from planner.families.ibatch.makespan import solve_additive
from planner.families.ibatch.problem import Plan, Problem
from planner.model.errors import BrokenConstraintError, InvalidInputError, NotApplicableError
from planner.model.validation import shown
from planner.solving.bucketing import ddp_buckets, mg_wfbp_groups
from planner.solving.deadline import NEVER, Deadline, TimeUpError
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, lazy_method, named
from planner.solving.result import Infeasibility
from planner.solving.targets import FSDP2, Exported, Target

Method: TypeAlias = AnyMethod[Problem, Plan]

MAX_LAYERS = 400
"""Limit for models over all batches: with more layers they take too much time and memory."""


def one_batch(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Send all layers in one communication."""
    return Outcome(problem.plan((0, problem.layers)))


def layer_by_layer(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Send each layer by itself."""
    return Outcome(problem.plan(range(problem.layers + 1)))


def ddp(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Group gradients into DDP's default buckets; raise `NotApplicableError` without sizes."""
    if problem.layer_bytes is None:
        raise NotApplicableError("layer_bytes", "missing: method ddp needs it")
    return _from_ready_order(problem, ddp_buckets(problem.layer_bytes[::-1]))


def mg_wfbp(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Group gradients by MG-WFBP's rule."""
    count = problem.layers

    def duration(first: int, stop: int) -> int:
        return problem.transfer_time(count - stop, count - first)

    ready = list(accumulate(problem.compute_ns[::-1]))
    return _from_ready_order(problem, mg_wfbp_groups(ready, duration, problem.transfer_startup_ns))


def _from_ready_order(problem: Problem, groups: Sequence[int]) -> Outcome[Plan]:
    """Return the batches of layers for group sizes in backward order."""
    return Outcome(problem.plan(list(accumulate(groups[::-1], initial=0))))


def exact(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Run the exact method for the objective and the kind of cost."""
    if problem.objective == "makespan" and problem.transfer_prefix is not None:
        return solve_additive(problem, deadline)
    from planner.families.ibatch.dynamic import solve_general, solve_paper_model  # imports NumPy

    solve = solve_general if problem.objective == "makespan" else solve_paper_model
    return solve(problem, deadline)


def over_all_batches(name: str, library: str) -> Method:
    """Return the method `name`: a program over all batches, solved by a library.

    It raises `NotApplicableError` for more than `MAX_LAYERS` layers.
    """
    search = lazy_method(f"planner.families.ibatch.{name}", f"solve_{name}", f"{name}: {library}")

    def method(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        if problem.layers > MAX_LAYERS:
            raise NotApplicableError(
                "method",
                f"{name} takes up to {MAX_LAYERS} layers, got {problem.layers}; "
                "method exact has no such limit",
            )
        try:
            return search(problem, deadline)
        except TimeUpError:
            return out_of_time(problem)

    return method


def within_cap(run: Method) -> Method:
    """Return a method that first reports layers that exceed the cap."""

    def method(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        too_large = problem.too_large()
        return Outcome(None, infeasibility=too_large) if too_large else run(problem, deadline)

    return method


def _rule(name: str, run: Method, *, push_only: bool = False) -> Method:
    """Return a baseline method; its batches may break a constraint."""

    def method(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        if push_only and problem.direction != "push":
            reason = "it groups gradients: only with direction push"
            raise NotApplicableError("method", reason)
        too_large = problem.too_large()
        if too_large:
            return Outcome(None, infeasibility=too_large)
        outcome = run(problem, deadline)
        assert outcome.plan is not None
        try:
            check(problem, outcome.plan)
        except BrokenConstraintError as error:
            reason = (
                f"the batches of method {name} break a constraint ({error}); "
                "method exact finds the best batches that do not, or proves that there are none"
            )
            return Outcome(None, infeasibility=Infeasibility(reason, (error.binding,)))
        return outcome

    return method


BASELINES: Mapping[str, Method] = {
    "greedy": _rule("greedy", greedy),
    "greedy_forward": _rule("greedy_forward", greedy_forward),
    "greedy_backward": _rule("greedy_backward", greedy_backward),
    "one_batch": _rule("one_batch", one_batch),
    "layer_by_layer": _rule("layer_by_layer", layer_by_layer),
    "mg_wfbp": _rule("mg_wfbp", mg_wfbp, push_only=True),
    "ddp": _rule("ddp", ddp, push_only=True),
}

OWN_METHODS: Mapping[str, Method] = {
    "auto": within_cap(named("exact", exact)),
    "exact": within_cap(exact),
    **{name: BASELINES[name] for name in ("greedy", "greedy_forward", "greedy_backward")},
    "milp": within_cap(over_all_batches("milp", "PuLP")),
    # OR-Tools cannot be loaded after highspy, for example: see planner.families.ibatch.milp.
    "cpsat": within_cap(over_all_batches("cpsat", "OR-Tools")),
    **BASELINES,
}
"""Every method by its name in requests, without plug-ins."""


# ---
# Batches for FSDP2 as the target: its all-gathers are the pulls.
#
# Problem: FSDP2 gathers the modules of one ``fully_shard`` call together. If unsharded ahead, FSDP2
# issues all gathers from the start of the forward pass in a given order. So any batches of whole
# layers are possible. Gradients are scattered in the same units, so pushes are not planned here
# (`planner.fsdp` plans both). Method: the family's methods, and the target's default, which is the
# faster of one unit per layer and one unit for all layers. Guarantee: `auto` and `exact` are never
# slower than the default, except at the time limit. Source: own; the rules are in
# `planner.solving.targets.FSDP2`.


def check_modules(layers: Sequence[Sequence[str]] | None, target: Target) -> None:
    """Check that no module is split between layers, because a target sends it in one piece.

    Raises `InvalidInputError` if parameters of one module are in two layers.
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
    """Return the default plan: a unit per layer, or one unit if faster and within the cap."""
    too_large = problem.too_large()
    if too_large is not None:
        return Outcome(None, infeasibility=too_large)
    whole = problem.reach(0) == problem.layers
    rules = (layer_by_layer, one_batch) if whole else (layer_by_layer,)
    return min((rule(problem, deadline) for rule in rules), key=partial(_lasts, problem))


def exported(problem: Problem, evaluation: Evaluation) -> dict[str, Exported]:
    """Return the makespans of a pull plan and of FSDP2's default; empty for pushes."""
    if problem.direction != "pull" or problem.objective != "makespan":
        return {}
    return {FSDP2.name: Exported(evaluation.makespan_ns, _lasts(problem, default(problem)))}


def _lasts(problem: Problem, outcome: Outcome[Plan]) -> int:
    assert outcome.plan is not None
    return evaluate(problem, outcome.plan).makespan_ns
