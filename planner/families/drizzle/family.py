"""The methods by name, the pricing of their plans, and the adaptation of another job's plan."""

from dataclasses import replace
from fractions import Fraction

from planner.families.drizzle.evaluation import (
    Evaluation,
    check,
    evaluate,
    solve_exact,
)
from planner.families.drizzle.problem import MAX_GROUP_NS, MAX_OVERHEAD, Plan, Problem, triggers_of
from planner.model.errors import InvalidPlanError, NotApplicableError
from planner.model.units import counted, format_ns
from planner.solving.compare import Case, Column, Option
from planner.solving.deadline import Deadline
from planner.solving.family import Family
from planner.solving.methods import Outcome, named
from planner.solving.scenarios import Scenario, refuse_changes


class _Drizzle(Family[Problem, Plan, Evaluation]):
    name, plan_type = "drizzle", Plan
    own_methods = {"auto": named("exact", solve_exact), "exact": solve_exact}

    ends = ("status",)
    asks = "how many iterations to schedule at once on Spark"
    example = "planner compare data/drizzle/inception64.json"
    columns = (
        Column("group size", lambda _, plan, __: plan.group_size, ","),
        Column.of("overhead", "overhead", "share"),
        Column.of("iteration", "iteration_ns"),
        Column.of("group", "group_ns"),
        Column("speed-up", lambda _, __, cost: float(cost.speedup), ".4g"),
    )
    on_cluster = True
    own_options = (
        Option(
            "--events LOG+",
            "Spark's event logs, files or folders, in place of a profile and a cluster",
        ),
        Option(
            "--max-overhead F",
            f"largest share of scheduling; default: {float(MAX_OVERHEAD):g}",
            MAX_OVERHEAD,
        ),
        Option(
            "--max-group TIME",
            f"longest time of a group; default: {MAX_GROUP_NS // 10**9}s, with --events none",
            MAX_GROUP_NS,
        ),
    )

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        check(problem, plan)

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Evaluation:
        return evaluate(problem, plan)

    def objective(self, problem: Problem, evaluation: Evaluation) -> int:
        return evaluation.group_ns

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[Fraction, bool]:
        """Return the time of a group of one iteration, the shortest group."""
        return problem.compute_ns + problem.always_ns + problem.once_ns, False

    def adapt(self, problem: Problem, plan: Plan) -> Plan:
        """Adapt an old plan to the tasks of the problem's stages.

        InvalidPlanError if the plan has other stages.
        """
        stages = triggers_of(tuple(problem.stages))
        known = {row.name: (set(row.after), set(row.after_previous)) for row in stages}
        old = {row.name: (set(row.after), set(row.after_previous)) for row in plan.stages}
        if old != known:
            raise InvalidPlanError("stages", f"expected {sorted(known)} with what each waits for")
        return replace(plan, stages=stages)

    def improve(self, problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
        """Return the optimal plan: the closed form needs no start plan."""
        return solve_exact(problem, deadline)

    def perturb(self, problem: Problem, scenario: Scenario) -> Problem:
        """Return the problem with the times of a scenario; all scheduling is start-up cost."""
        fields = ("bandwidth", "late", "spread", "part", "shared")
        refuse_changes(scenario, fields, "drizzle has no network and no passes")
        names = ("group_ns", "task_ns", "constant_task_ns")
        times = {name: getattr(problem, name) * scenario.startup for name in names}
        compute = round(problem.compute_ns * scenario.computation)
        return replace(problem, compute_ns=compute, **times)

    def fix_order(self, problem: Problem, plan: Plan) -> Problem:
        """Raise an error: a group that is too small for a scenario is infeasible in it."""
        reason = "not for problem drizzle: the size of a group follows from its limits"
        raise NotApplicableError("scenarios", reason)

    def summary(self, problem: Problem) -> str:
        tasks = counted(problem.tasks or 0, "task")
        return f"{tasks}, {format_ns(problem.compute_ns)} to compute, {limits_text(problem)}"

    def about(self, case: Case[Problem]) -> tuple[str, ...]:
        (line,), profile = super().about(case), case.profile
        if profile is None:
            return (line,)
        computed = format_ns(profile.forward_ns + profile.backward_ns)
        return (f"{line} ({computed}, the rest synchronises by slices)",)


def limits_text(problem: Problem) -> str:
    """Return the limits of a problem in words."""
    limit = problem.max_group_ns
    return (
        f"overhead of at most {float(problem.max_overhead):.4g}"
        f"{'' if limit is None else f', a decision every {format_ns(limit)}'}"
    )


DRIZZLE = _Drizzle()
METHODS = DRIZZLE.methods
solve = DRIZZLE.solve
