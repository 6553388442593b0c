"""What a family declares for whoever shows its problems: columns, options, texts, profiles.

``planner compare`` asks nothing else, so a family needs no file there. Everything has a default: a
family that declares nothing shows its objective, the distance to the bound, status and run time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from planner.model.clusters import Cluster
from planner.model.contention import ALONE, Interference
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.network import AnyNetwork
from planner.model.profiles import Profile
from planner.solving.comparison import Comparison
from planner.solving.methods import concrete
from planner.solving.result import Result
from planner.solving.targets import FSDP2, PLANNER, TARGET_NAMES

ProblemT = TypeVar("ProblemT")
PlanT = TypeVar("PlanT")
EvaluationT = TypeVar("EvaluationT")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table of methods.

    Attributes
    ----------
    title : str
        Its header.
    value : callable, optional
        Returns what stands there, of a problem, a plan and its evaluation; None: the objective.
    unit : str
        How that is written: ``ns``, ``bytes``, ``share``, ``epoch``, or a format specification.
    """

    title: str
    value: Callable[[Any, Any, Any], Any] | None = None
    unit: str = "ns"

    @classmethod
    def of(cls, title: str, name: str, unit: str = "ns") -> "Column":
        """Return the column of an attribute of evaluations."""
        return cls(title, lambda _, __, evaluation: getattr(evaluation, name), unit)


Form: TypeAlias = Literal[
    "text", "whole", "flag", "size", "time", "share", "bcube", "threads", "logs"
]
"""What is written after an option: `threads` and `logs` are files."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option that makes a problem of a profile.

    Attributes
    ----------
    name : str
        Such as ``--workers``.
    help : str
        What it does.
    form : str
        What is written after it.
    default : object
        Its value if it is not given.
    metavar : str
        What the help calls its value.
    choices : sequence of str
        Its values, if there are few.
    least, most : int, optional
        Its range.
    """

    name: str
    help: str
    form: Form = "text"
    default: Any = None
    metavar: str = ""
    choices: Sequence[str] = ()
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
    """Where a profile shall run, and what communication costs there.

    Attributes
    ----------
    network : AffineCost, TableCost, DepthCost or Nic
        What it costs.
    startup, bandwidth : str
        The same as options say it, if they do.
    about : str
        The same as a file or a cluster says it, if one does.
    path : str
        Which one that is.
    cluster : Cluster, optional
        The cluster.
    ranks : int, optional
        Among how many ranks it was measured, if it was.
    interference : Interference
        What transfers and computation take from each other.
    notes : tuple of str
        What of its costs was not measured.
    collective : str, optional
        Which collective took what its table says, if that was measured.
    """

    network: AnyNetwork
    startup: str = ""
    bandwidth: str = ""
    about: str = ""
    path: str = ""
    cluster: Cluster | None = None
    ranks: int | None = None
    interference: Interference = ALONE
    notes: tuple[str, ...] = ()
    collective: str | None = None

    def machines(self, given: int | None, option: Option = MACHINES) -> int:
        """Return how many machines there are: the cluster's workers, or those of an option.

        Raises
        ------
        InvalidInputError
            If both say it, or none.
        """
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

    Attributes
    ----------
    made : object
        The problem, or what holds it as `problem` beside what it was made with.
    name : str
        What it is called: the profile's name, or ``request``.
    options : mapping
        What was asked, by `Option.key`; of a request its `method`. `time_limit` is in seconds.
    profile : Profile, optional
        The profile.
    place : Place, optional
        Where the profile shall run.
    request : Request, optional
        The request.
    title : str
        Name of the model, if it has one.
    warnings : tuple of str
        Why its numbers may be off.
    lines : tuple of str
        What stands above the table in place of `Comparable.about`.
    sentence : callable, optional
        Returns a last line, of the best plan or of None.
    """

    made: Any
    name: str = "request"
    options: Mapping[str, Any] = field(default_factory=dict)
    profile: Profile | None = None
    place: Place | None = None
    request: Any = None
    title: str = ""
    warnings: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    sentence: Callable[[Any], str] | None = None

    @property
    def problem(self) -> ProblemT:
        """The problem."""
        problem: ProblemT = getattr(self.made, "problem", self.made)
        return problem


class Comparable(Generic[ProblemT, PlanT, EvaluationT]):
    """What `planner.solving.family.Family` declares for whoever shows its problems.

    Attributes
    ----------
    columns : tuple of Column
        What stands between the method and `ends`; by default the objective.
    heading : str
        Header of the methods.
    ends : tuple of str
        Last columns: of ``above bound``, ``status`` and ``run time``.
    bounding : str
        The method whose bound holds for every plan but cheaper ones; empty: each has its own.
    own_options : tuple of Option
        What makes a problem of a profile.
    on_cluster : bool
        Whether a profile needs a cluster.
    asks, example : str
        What the help says: which question it answers, and a command that does.
    """

    columns: tuple[Column, ...] = (Column("objective"),)
    heading: str = "method"
    ends: tuple[str, ...] = ("above bound", "status", "run time")
    bounding: str = ""
    own_options: tuple[Option, ...] = ()
    on_cluster: bool = False
    asks: str = ""
    example: str = ""

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
        """Return the options of a profile, with what the place says of them.

        Raises
        ------
        InvalidInputError
            If they contradict each other, with the name of one as path.
        """
        return options

    def check_profile(self, profile: Profile) -> None:
        """Refuse a profile that lacks what a problem needs.

        Raises
        ------
        InvalidInputError
            With a path into the profile.
        """
        profile.dataflow()  # refuses a model without gradients

    def from_profile(self, profile: Profile, place: Place, options: Mapping[str, Any]) -> Any:
        """Return the problem of a profile, or what holds it as `problem`.

        Raises
        ------
        InvalidInputError
            If an option, whose name is the path then, or a number cannot mean anything.
        """
        raise NotApplicableError("--problem", "needs a request")
