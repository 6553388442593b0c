"""Compare the methods of a family, by the columns, options and cases that the family declares."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

from planner.model.clusters import Cluster
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.network import AnyNetwork
from planner.model.profiles import Profile
from planner.solving.deadline import Cancel
from planner.solving.result import EvaluationT, PlanT, ProblemT, Result
from planner.solving.targets import FSDP2, PLANNER, TARGET_NAMES


@dataclass(frozen=True, slots=True)
class Comparison(Generic[PlanT, EvaluationT]):
    """Results of several methods on one problem."""

    rows: tuple[Result[PlanT, EvaluationT], ...]  # best first, those without a plan last
    left_out: tuple[tuple[str, str], ...]  # methods that do not apply, and why


def compare(
    problem: ProblemT,
    methods: Iterable[str],
    *,
    solve: Callable[..., Result[PlanT, EvaluationT]],
    time_limit: float | None = None,
    progress: Callable[[str], None] | None = None,
    cancel: Cancel | None = None,
) -> Comparison[PlanT, EvaluationT]:
    """Solve one problem by several methods, each with the time limit (s).

    `solve` is a family's. `progress` is called with each method's name and number before it runs:
    ``exact (2 of 5)``. Once `cancel` is set, and there is a plan, no further methods run.
    """
    rows: dict[str, Result[PlanT, EvaluationT]] = {}
    left_out = []
    listed = tuple(methods)
    for number, method in enumerate(listed, start=1):
        if rows and cancel is not None and cancel.is_set():
            break
        if progress:
            progress(f"{method} ({number} of {len(listed)})")
        try:
            result = solve(problem, method=method, time_limit=time_limit)
        except NotApplicableError as error:
            left_out.append((method, error.message))
            continue
        rows.setdefault(result.method, result)  # `auto` chose one of the others
    best_first = sorted(
        rows.values(), key=lambda row: (row.objective_ns is None, row.objective_ns or 0)
    )
    return Comparison(tuple(best_first), tuple(left_out))


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


@dataclass(frozen=True, slots=True)
class Option:
    """A command-line option of making a problem from a profile."""

    typed: str  # such as ``--workers N``, ``--direction pull|push``; a flag without a value
    help: str
    default: Any = None
    least: int | None = None
    most: int | None = None

    @property
    def name(self) -> str:
        """Its name, such as ``--workers``."""
        return self.typed.split()[0]

    @property
    def key(self) -> str:
        """Its name among the options."""
        return self.name.removeprefix("--").replace("-", "_")


MACHINES = Option(
    "--machines N",
    "machines on one switch, without --cluster; of yan parameter servers count too",
    least=1,
    most=2**16,
)
ACTIVATIONS = Option(
    "--activations SIZE",
    "memory for the activations of an iteration, such as 2GiB; default: what the profile's layers "
    "keep for the backward pass, or else all their outputs",
)
OPTIMISER = Option(
    "--optimiser-ratio R",
    "bytes of optimiser state for each byte of parameters: 1 for momentum, 2 for Adam; default: 0",
    0,
)
IGNORE_MEMORY = Option("--ignore-memory", "plan as if memory did not bind")
FOR = Option(
    f"--for {'|'.join(TARGET_NAMES)}",
    "whose rules plans keep to, such as whole parameters and a barrier before the forward pass "
    f"(ibatch: {FSDP2.name}, its pulls); default: planner, whose runtime has none",
    PLANNER,
)
REGRET = Option(
    "--regret",
    "also say how far the plan is from the best one if computation, start-ups or bandwidth are "
    "others, or a rank falls behind",
)


@dataclass(frozen=True, slots=True)
class Place:
    """The place where a profile shall run, and the cost of communication there."""

    network: AnyNetwork
    about: str = ""  # description of the network of options, a file or a cluster
    path: str = ""  # of the file or cluster, if there is one
    cluster: Cluster | None = None
    ranks: int | None = None  # of the measurement of the network, if there was one
    interference: Interference = NO_CONTENTION
    notes: tuple[str, ...] = ()  # costs that were not measured
    collective: str | None = None  # of the measured table, if there is one

    def machines(self, given: int | None, option: Option = MACHINES) -> int:
        """Return the number of machines of the cluster or of an option; refuse both or none."""
        if self.cluster is not None:
            if given is not None:
                raise InvalidInputError(option.name, "not together with --cluster")
            return int(self.cluster.workers)
        if given is None:
            raise InvalidInputError(option.name, "missing, or --cluster, which says it all")
        return given


@dataclass(frozen=True, slots=True)
class Case(Generic[ProblemT]):
    """One problem to show, and its origin.

    `options` are by `Option.key`; a request has the options `method` and `time_limit` (s).
    """

    made: Any  # the problem, or an object with the attribute `problem` and its origin
    name: str = "request"  # or that of the profile
    options: Mapping[str, Any] = field(default_factory=dict)
    profile: Profile | None = None
    place: Place | None = None  # where the profile shall run
    request: Any = None
    title: str = ""  # name of the model, if it has one
    warnings: tuple[str, ...] = ()  # why the numbers may be off
    lines: tuple[str, ...] = ()  # above the table, in place of `Declared.about`
    sentence: Callable[[Any], str] | None = None  # makes a last line from the best plan or None

    @property
    def problem(self) -> ProblemT:
        """The problem."""
        problem: ProblemT = getattr(self.made, "problem", self.made)
        return problem
