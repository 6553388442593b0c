"""The declarations of a family of problems.

A family names its methods and says how a plan is checked, priced and bounded. Optional methods
unlock features of `planner.solving`: `perturb` regret, scenarios and break-even factors; `adapt`
and `improve` warm starts; `neighbours` and `candidates` local search; `merged` tie-breaking. By
default ``planner compare`` shows the objective, the distance to the bound, the status and the run
time of a family.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic

from planner.model.errors import NotApplicableError
from planner.model.profiles import Profile
from planner.solving.compare import REGRET, Case, Column, Comparison, Option, Place
from planner.solving.deadline import NEVER, Deadline
from planner.solving.methods import Method, Outcome, with_plugins, without_auto
from planner.solving.plugins import is_plugged
from planner.solving.result import EvaluationT, PlanT, ProblemT, Result
from planner.solving.scenarios import MAX_LOSS, SCENARIOS, Scenario


class Declared(ABC, Generic[ProblemT, PlanT, EvaluationT]):
    """The declarations of a family, with defaults for the optional ones."""

    name: str  # in requests
    plan_type: Any  # the class of its plans, or the union of their classes
    own_methods: Mapping[str, Method[ProblemT, PlanT]]  # by name, `auto` first; see `methods`
    baselines: tuple[str, ...] = ()  # methods whose plan follows from a rule
    scenarios: Sequence[Scenario] = SCENARIOS  # of a plan's regret
    max_loss: Fraction = MAX_LOSS  # of a plan for several scenarios, at the nominal numbers
    near: int = 0  # the local search stops within one `near`-th of the bound; 0: only at the bound

    # The columns that ``planner compare`` shows, and the options that make a problem of a profile.

    columns: tuple[Column, ...] = (Column("objective"),)  # between the method and `ends`
    heading: str = "method"  # header of the methods
    ends: tuple[str, ...] = ("above bound", "status", "run time")
    bounding: str = ""  # the method whose bound holds for all plans not below it; "": each its own
    own_options: tuple[Option, ...] = ()  # that make a problem of a profile
    on_cluster: bool = False  # whether a profile needs a cluster
    asks: str = ""  # for the help: the question that the family answers
    example: str = ""  # for the help: an example command

    @cached_property
    def methods(self) -> Mapping[str, Method[ProblemT, PlanT]]:
        """Every method by name, those of plug-ins included."""
        return MappingProxyType(with_plugins(self.name, self.own_methods))

    @property
    def options(self) -> tuple[Option, ...]:
        """Options that make a problem of a profile; with scenarios also ``--regret``."""
        asked = type(self).perturb is not Declared.perturb
        return (*self.own_options, *((REGRET,) if asked else ()))

    # Methods that every family defines.

    @abstractmethod
    def check(self, problem: ProblemT, plan: PlanT, deadline: Deadline) -> None:
        """Raise an `InvalidPlanError` unless the plan is a valid plan of the problem."""

    @abstractmethod
    def evaluate(self, problem: ProblemT, plan: PlanT, deadline: Deadline) -> EvaluationT:
        """Return the evaluation of a checked plan: its cost in detail."""

    @abstractmethod
    def objective(self, problem: ProblemT, evaluation: EvaluationT) -> int:
        """Return the objective (ns), which is minimised."""

    @abstractmethod
    def bound(
        self, problem: ProblemT, plan: PlanT, deadline: Deadline
    ) -> tuple[int | Fraction | None, bool]:
        """Return a lower bound (ns) for methods that prove none, and whether time ran out."""

    # Methods that a family may define.

    def methods_for(self, problem: ProblemT) -> Mapping[str, Method[ProblemT, PlanT]]:
        """Return the methods of one problem, such as those that keep to its target."""
        return self.methods

    def adapt(self, problem: ProblemT, plan: PlanT) -> PlanT:
        """Adapt a start plan to the problem, such as to other sizes; the result is unchecked.

        InvalidPlanError if the plan does not fit the problem.
        """
        return plan

    def improve(self, problem: ProblemT, plan: PlanT, deadline: Deadline) -> Outcome[PlanT]:
        """Improve a start plan within milliseconds; the given plan may break a constraint."""
        return Outcome(plan)

    def resume(self, problem: ProblemT, plan: PlanT) -> Mapping[str, Method[ProblemT, PlanT]]:
        """Return the methods that search from a start plan."""
        return self.methods_for(problem)

    def perturb(self, problem: ProblemT, scenario: Scenario) -> ProblemT:
        """Return the problem with the numbers of a scenario.

        InvalidInputError if the numbers are too large.
        """
        raise NotApplicableError("scenarios", f"not for problem {self.name}")

    def repriced(self, problem: ProblemT, plan: PlanT) -> PlanT:
        """Return the same plan with the prices of a problem, where plans hold prices; unchecked.

        InvalidInputError if the plan does not fit the problem.
        """
        return plan

    def fix_order(self, problem: ProblemT, plan: PlanT) -> ProblemT:
        """Return the problem with the decisions of a plan that all scenarios share."""
        return problem

    def quick(self, problem: ProblemT) -> str:
        """Return the method that a search over scenarios asks for a plan of each."""
        return "auto"

    def narrow(self, problem: ProblemT, plan: PlanT) -> ProblemT:
        """Return a scenario's problem with fewer choices, to search for its plans."""
        return problem

    def candidates(
        self, problem: ProblemT, plans: Sequence[PlanT], deadline: Deadline
    ) -> Iterator[PlanT]:
        """Yield additional starting plans of a search over scenarios."""
        return iter(())

    def neighbours(
        self, problem: ProblemT, variants: Sequence[ProblemT], plan: PlanT
    ) -> Iterator[PlanT]:
        """Yield plans one change away that helps in at least one variant of the problem."""
        return iter(())

    def budget(self, problem: ProblemT, plan: PlanT) -> int:
        """Return how many plans one change away a search over one scenario may price."""
        return 10**5

    def lasting(self, problem: ProblemT, plan: PlanT) -> int:
        """Return the cost (ns) of a checked plan, as `evaluate` does but faster if possible."""
        return self.objective(problem, self.evaluate(problem, plan, NEVER))

    def follows_rule(self, problem: ProblemT, method: str) -> bool:
        """Return whether a method's plan must stay unchanged: by a rule, a target or a plug-in."""
        target = getattr(problem, "target", None)
        default = target is not None and method == target.name
        return default or method in self.baselines or is_plugged(method)

    def transfers(self, plan: PlanT) -> int:
        """Return the number of transfers of a plan; 0 where this number means nothing."""
        return 0

    def merged(self, problem: ProblemT, plan: PlanT, place: int) -> PlanT | None:
        """Return a plan with transfer `place` and the next one sent together, if they can be."""
        return None

    def slowdown(self, problem: ProblemT, plan: PlanT) -> tuple[Mapping[str, Any], int, int]:
        """Return the slowdown of a plan under contention, for a search that ignores contention.

        First the fields of the problem with the slowed-down computation, then the time of
        all transfers with and without contention (ns).
        """
        raise NotApplicableError("network", f"no contention for problem {self.name}")

    def most_robust(self, problem: ProblemT, plan: PlanT, deadline: Deadline) -> PlanT:
        """Return the plan of equal cost that is least sensitive to delays."""
        raise NotApplicableError("tie_break", f"robust is not for problem {self.name}")

    def same_bound(self, plan: PlanT, other: PlanT) -> bool:
        """Return whether the bound of one plan holds for another, such as of the same op order."""
        return True

    def ddp_price(
        self, problem: ProblemT, limits: tuple[int, int], deadline: Deadline
    ) -> int | None:
        """Return the cost (ns) of DDP with limits of the first and the other buckets (bytes)."""
        raise NotApplicableError("method", f"ddp is no method of problem {self.name}")

    def sending_ns(self, problem: ProblemT) -> int | None:
        """Return the processor time that sending all gradients takes from computation (ns).

        None if the problem has no contention parameters.
        """
        return None

    # Methods that a family may define for displaying its problems (`planner.solving.compare`).

    def summary(self, problem: ProblemT) -> str:
        """Return one line about a problem."""
        return ""

    def about(self, case: Case[ProblemT]) -> tuple[str, ...]:
        """Return the lines above the table."""
        summary = self.summary(case.problem)
        return (f"{case.name}: {summary}" if summary else case.name,)

    def names(self) -> Sequence[str]:
        """Return the methods that can be compared."""
        return without_auto(self.methods)

    def compared(self, case: Case[ProblemT]) -> Sequence[str]:
        """Return the methods that are compared by default."""
        return self.names()

    def chosen(
        self, case: Case[ProblemT], result: Result[PlanT, EvaluationT]
    ) -> Result[PlanT, EvaluationT]:
        """Return the result that is drawn and written: the best one."""
        return result

    def notes(
        self, case: Case[ProblemT], comparison: Comparison[PlanT, EvaluationT]
    ) -> Sequence[str]:
        """Return lines below the table."""
        return ()

    def sent_bytes(self, problem: ProblemT, plan: PlanT) -> Sequence[int]:
        """Return the sizes of a plan's transfers, if they are priced by a table of sizes."""
        return ()

    def caveats(self, problem: ProblemT, plan: PlanT) -> Sequence[str]:
        """Return the caveats about costs of a plan that were not measured."""
        return ()

    def collective(self, options: Mapping[str, Any]) -> str | None:
        """Return the collective whose measured times are needed; None: NICs are used."""
        return None

    def resolved_options(self, options: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
        """Return the options of a profile, completed from the place; refuse contradictions."""
        return options

    def check_profile(self, profile: Profile) -> None:
        """Refuse a profile that lacks what a problem needs, with a path into the profile."""
        profile.dataflow()  # refuses a model without gradients

    def from_profile(self, profile: Profile, place: Place, options: Mapping[str, Any]) -> Any:
        """Return the problem of a profile, or an object with the attribute `problem`.

        The path of an error is an option's name, or leads to the invalid number.
        """
        raise NotApplicableError("--problem", "needs a request")
