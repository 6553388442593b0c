"""What a family declares for whoever shows its problems: columns, options, texts, profiles.

``planner compare`` asks nothing else, so a family needs no file there. Everything has a default: a
family that declares nothing shows its objective, the distance to the bound, status and run time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias

from planner.model.clusters import Cluster
from planner.model.contention import ALONE, Interference
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.network import AnyNetwork
from planner.model.profiles import Profile
from planner.solving.comparison import Comparison
from planner.solving.methods import concrete
from planner.solving.result import EvaluationT, PlanT, ProblemT, Result
from planner.solving.targets import FSDP2, PLANNER, TARGET_NAMES


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table of methods."""

    title: str
    value: Callable[[Any, Any, Any], Any] | None = None  # of problem, plan, evaluation; objective
    unit: str = "ns"  # or ``bytes``, ``share``, ``epoch``, or a format specification

    @classmethod
    def of(cls, title: str, name: str, unit: str = "ns") -> "Column":
        """Return the column of an attribute of evaluations."""
        return cls(title, lambda _, __, evaluation: getattr(evaluation, name), unit)


Form: TypeAlias = Literal["text", "whole", "flag", "size", "time", "share", "bcube", "logs"]
"""What is written after an option: `logs` are files."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option that makes a problem of a profile."""

    name: str  # such as ``--workers``
    help: str
    form: Form = "text"  # what is written after it
    default: Any = None
    metavar: str = ""  # what the help calls its value
    choices: Sequence[str] = ()  # its values, if there are few
    least: int | None = None
    most: int | None = None

    @property
    def key(self) -> str:
        """Its name among the options."""
        return self.name.removeprefix("--").replace("-", "_")


MACHINES = Option(
    "--machines",
    "machines on one switch, without --cluster; of yan parameter servers count too",
    "whole",
    metavar="N",
    least=1,
    most=2**16,
)
ACTIVATIONS = Option(
    "--activations",
    "memory for the activations of an iteration, such as 2GiB; default: what the profile's layers "
    "keep for the backward pass, or else all their outputs",
    "size",
    metavar="SIZE",
)
IGNORE_MEMORY = Option("--ignore-memory", "plan as if memory did not bind", "flag", False)
FOR = Option(
    "--for",
    "whose rules plans keep to, such as whole parameters and a barrier before the forward pass "
    f"(ibatch: {FSDP2.name}, its pulls); default: planner, whose runtime has none",
    default=PLANNER,
    choices=TARGET_NAMES,
)
REGRET = Option(
    "--regret",
    "also say how far the plan is from the best one if computation, start-ups or bandwidth are "
    "others, or a rank falls behind",
    "flag",
    False,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a profile shall run, and what communication costs there."""

    network: AnyNetwork
    startup: str = ""  # the network's, as an option says it, if one does
    bandwidth: str = ""
    about: str = ""  # the network, as a file or a cluster says it, if one does
    path: str = ""  # of that file or cluster
    cluster: Cluster | None = None
    ranks: int | None = None  # among which the network was measured, if it was
    interference: Interference = ALONE
    notes: tuple[str, ...] = ()  # costs that were not measured
    collective: str | None = None  # whose times the network's table holds, if it was measured

    def machines(self, given: int | None, option: Option = MACHINES) -> int:
        """Return how many machines the cluster or an option says there are; refuse both or none."""
        if self.cluster is not None:
            if given is not None:
                raise InvalidInputError(option.name, "not together with --cluster")
            return int(self.cluster.workers)
        if given is None:
            raise InvalidInputError(option.name, "missing, or --cluster, which says it all")
        return given


@dataclass(frozen=True, slots=True)
class Case(Generic[ProblemT]):
    """One problem to show, and what it was made of.

    `options` are by `Option.key`; those of a request are its `method` and `time_limit` (s).
    """

    made: Any  # the problem, or what holds it as `problem` beside what it was made with
    name: str = "request"  # or that of the profile
    options: Mapping[str, Any] = field(default_factory=dict)
    profile: Profile | None = None
    place: Place | None = None  # where the profile shall run
    request: Any = None
    title: str = ""  # name of the model, if it has one
    warnings: tuple[str, ...] = ()  # why its numbers may be off
    lines: tuple[str, ...] = ()  # above the table, in place of `Comparable.about`
    sentence: Callable[[Any], str] | None = None  # a last line, of the best plan or of None

    @property
    def problem(self) -> ProblemT:
        """The problem."""
        problem: ProblemT = getattr(self.made, "problem", self.made)
        return problem


class Comparable(Generic[ProblemT, PlanT, EvaluationT]):
    """What `planner.solving.family.Family` declares for whoever shows its problems."""

    columns: tuple[Column, ...] = (Column("objective"),)  # between the method and `ends`
    heading: str = "method"  # header of the methods
    ends: tuple[str, ...] = ("above bound", "status", "run time")
    bounding: str = ""  # the method whose bound holds for all plans but cheaper ones; "": its own
    own_options: tuple[Option, ...] = ()  # what makes a problem of a profile
    on_cluster: bool = False  # whether a profile needs a cluster
    asks: str = ""  # in the help: which question it answers
    example: str = ""  # a command that does

    @property
    def methods(self) -> Mapping[str, Any]:
        """Every method by name."""
        raise NotImplementedError

    def summary(self, problem: ProblemT) -> str:
        """Return one line about a problem."""
        return ""

    def about(self, case: Case[ProblemT]) -> tuple[str, ...]:
        """Return the lines above the table."""
        summary = self.summary(case.problem)
        return (f"{case.name}: {summary}" if summary else case.name,)

    def network_text(self, case: Case[ProblemT]) -> str:
        """Return the line about the network above the table."""
        assert case.place is not None
        return f"start-up {case.place.startup}, bandwidth {case.place.bandwidth}"

    def names(self) -> Sequence[str]:
        """Return the methods that can be compared."""
        return concrete(self.methods)

    def compared(self, case: Case[ProblemT]) -> Sequence[str]:
        """Return the methods that are compared by default."""
        return self.names()

    def unasked(self, case: Case[ProblemT]) -> Mapping[str, str]:
        """Return those of them that only run if somebody asks for them, and why."""
        return {}

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

    def doubts(self, problem: ProblemT, plan: PlanT) -> Sequence[str]:
        """Return the caveats about costs of a plan that were not measured."""
        return ()

    def collective(self, options: Mapping[str, Any]) -> str | None:
        """Return whose measured times are asked for; None: what NICs do."""
        return None

    def settled(self, options: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
        """Return the options of a profile, with what the place says; refuse contradictions."""
        return options

    def check_profile(self, profile: Profile) -> None:
        """Refuse a profile that lacks what a problem needs, with a path into the profile."""
        profile.dataflow()  # refuses a model without gradients

    def from_profile(self, profile: Profile, place: Place, options: Mapping[str, Any]) -> Any:
        """Return the problem of a profile, or what holds it as `problem`.

        The path of an error is an option's name, or leads to a number that cannot mean anything.
        """
        raise NotApplicableError("--problem", "needs a request")
