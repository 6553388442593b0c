"""The JSON answers of whole iterations, and the checks of a stored answer."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.families.caramel.checker import check_contents
from planner.families.iteration.evaluation import check_pulls, in_transfers
from planner.families.iteration.plan import MIXED
from planner.jsonio.answer_base import WITH_PLAN, check_base
from planner.jsonio.programs import ProgramAnswer, check_program
from planner.jsonio.transfers import (
    Names,
    OpTimes,
    ParameterBytes,
    TransferDocument,
    check_iteration,
    placed,
    timeline_of,
    typed_transfers,
)
from planner.jsonio.types import Moment, Size, says
from planner.jsonio.what_if import AdviceField, TargetedAnswer
from planner.model.errors import InvalidInputError
from planner.model.units import counted, format_ns
from planner.model.validation import shown
from planner.solving.timeline import Timeline

Mode = Literal["replicated", "sharded"]
Count = Annotated[int, Meta(ge=1)]
Depth = Annotated[
    int, Meta(ge=1, description="in how many parts, each a step behind the one before; if not 1")
]


VERBS = {"all_reduce": "all-reduce", "push": "push", "pull": "pull"}
"""Names of the kinds of transfers in texts."""


class TransferAnswer(TransferDocument, frozen=True, kw_only=True):
    """One transfer; times count from the start of the backward pass.

    After an all-reduce every worker has the sum; after a push each worker has its share of the sum;
    a pull gives all workers the updated shares. A transfer is due when a forward pass that never
    waits would need it.
    """

    kind: Literal["all_reduce", "push", "pull"]
    algorithm: Annotated[
        str | UnsetType, says("by which it is synchronised, if not by the plan's")
    ] = UNSET
    depth: Depth | UnsetType = UNSET


class AlgorithmAnswer(Struct, frozen=True, kw_only=True):
    """An algorithm, and how it is run."""

    algorithm: str
    program: ProgramAnswer | UnsetType = UNSET


class SynchronisationAnswer(AlgorithmAnswer, frozen=True, kw_only=True):
    """The chosen algorithms: the one with the most bytes, and the others that transfers name."""

    mode: Mode
    others: (
        Annotated[
            tuple[AlgorithmAnswer, ...],
            Meta(min_length=1, description="other algorithms in use"),
        ]
        | UnsetType
    ) = UNSET

    @property
    def algorithms(self) -> tuple[AlgorithmAnswer, ...]:
        """Return all algorithms in use, the main one first."""
        return (self, *(() if self.others is UNSET else self.others))

    @property
    def way(self) -> str:
        """Name of the chosen alternative."""
        return self.algorithm if self.others is UNSET else MIXED

    @property
    def named(self) -> str:
        """Names of all algorithms in use."""
        return " + ".join(used.algorithm for used in self.algorithms)


class AlternativeAnswer(Struct, frozen=True, kw_only=True):
    """The best plan of one algorithm and one mode, or why there is none."""

    algorithm: str
    mode: Mode
    objective_ns: Moment | None
    lower_bound_ns: Moment | None
    transfers: Annotated[int, Meta(ge=0)] | None
    reason: str | UnsetType = UNSET


class ChangeAnswer(Struct, frozen=True, kw_only=True):
    """A change that would make the runner-up the better plan, with both plans unchanged."""

    what: Literal["startup", "message", "bandwidth"]
    factor: Annotated[float, Meta(gt=0)]


class RunnerUp(Struct, frozen=True, kw_only=True):
    """The best alternative that differs from the plan in its algorithm or its mode."""

    algorithm: str
    mode: Mode
    objective_ns: Moment
    wins_if: tuple[ChangeAnswer, ...]
    timed_out: Annotated[
        bool | UnsetType,
        Meta(description="true if time ran out before all changes were tried"),
    ] = UNSET


class WhyAnswer(Struct, frozen=True, kw_only=True):
    """The parts of the iteration's time, and the changes that would make another plan win."""

    computation_ns: Moment
    exposed_bytes_ns: int
    exposed_startup_ns: int
    runner_up: RunnerUp | None


class MemoryAnswer(Struct, frozen=True, kw_only=True):
    """The memory that each worker needs under the plan, with its largest transfer."""

    needed_bytes: Size
    available_bytes: Size | None


class CandidateAnswer(Struct, frozen=True, kw_only=True):
    """A number of machines that was considered."""

    machines: Count
    workers: Count
    iterations: Count
    bound_epoch_ns: Moment | None
    epoch_ns: Annotated[int, Meta(ge=0, description="ns by the plan")] | None


class SizingAnswer(Struct, frozen=True, kw_only=True):
    """The numbers of machines that were considered for an epoch, and whether the best is proven."""

    epoch_samples: Count
    at_most: Count
    proven: Annotated[
        bool,
        says("whether no other number's bound is below; false if the time was up"),
    ] = True
    candidates: tuple[CandidateAnswer, ...]


class SchedulingAnswer(Struct, frozen=True, kw_only=True):
    """How many iterations the engine's driver should schedule at once."""

    group_size: Count | None
    iteration_ns: Moment | None
    overhead: Annotated[float, says("share of an iteration")] | None
    speedup: Annotated[float, says("over groups of one")] | None
    reason: str | UnsetType = UNSET
    binding: tuple[str, ...] | UnsetType = UNSET


class IterationAnswer(TargetedAnswer, frozen=True, kw_only=True):
    """The chosen plan, the alternatives, the bounds and the timeline."""

    problem: Literal["iteration"] = "iteration"
    network_bound_ns: Annotated[
        int, Meta(ge=0, description="lower bound (ns) over all synchronisation algorithms")
    ] = WITH_PLAN
    model: str
    cluster: str
    machines: Count
    workers: Count
    synchronisation: SynchronisationAnswer = WITH_PLAN
    op_order: Names = WITH_PLAN
    transfers: Annotated[tuple[TransferAnswer, ...], Meta(min_length=1)] = WITH_PLAN
    barrier: bool = False
    iteration_ns: Moment = WITH_PLAN
    backward_ns: Moment = WITH_PLAN
    computation_ns: Moment = WITH_PLAN
    communication_ns: Moment = WITH_PLAN
    startup_ns: Moment = WITH_PLAN
    stall_ns: Moment = WITH_PLAN
    slowed_ns: Moment | UnsetType = UNSET
    schedule: Annotated[tuple[OpTimes, ...], Meta(min_length=1)] = WITH_PLAN
    parameter_bytes: ParameterBytes = WITH_PLAN
    pull_bytes: Annotated[
        dict[str, Size] | UnsetType, says("the same of pulls, where they are others")
    ] = UNSET
    memory: MemoryAnswer | UnsetType = UNSET
    why: WhyAnswer | UnsetType = UNSET
    alternatives: tuple[AlternativeAnswer, ...] | UnsetType = UNSET
    left_out: dict[str, str] | UnsetType = UNSET
    sizing: SizingAnswer | UnsetType = UNSET
    scheduling: SchedulingAnswer | UnsetType = UNSET
    advice: AdviceField = UNSET

    def sentence(self) -> str:
        """Return one line about the plan."""
        return (
            f"An iteration on {self.cluster} takes {format_ns(self.iteration_ns)} with "
            f"{counted(len(self.transfers), 'transfer')} by {self.synchronisation.named}, "
            f"{self.synchronisation.mode}; computation waits {format_ns(self.stall_ns)} of it"
        )


def timeline(answer: IterationAnswer) -> Timeline:
    """Check an answer and return its schedule; errors carry a path."""
    check_base(answer, "transfers", costs="iteration_ns")
    order, end_ns = answer.op_order, answer.iteration_ns
    check_iteration("transfers", answer.transfers, answer.schedule, order, end_ns)
    _check_names(answer.synchronisation, answer.transfers)
    for used in answer.synchronisation.algorithms:
        check_program(used.algorithm, used.program, answer.workers)
    _check_sent(answer)
    kinds = [transfer.kind for transfer in answer.transfers]
    return timeline_of(answer.schedule, answer.transfers, kinds, answer.backward_ns)


def _check_names(
    synchronisation: SynchronisationAnswer, transfers: Sequence[TransferAnswer]
) -> None:
    """Check that each transfer is of the plan's mode, by an algorithm that it names."""
    known = {used.algorithm for used in synchronisation.algorithms}
    kinds = {"all_reduce"} if synchronisation.mode == "replicated" else {"push", "pull"}
    for path, transfer in placed("transfers", transfers):
        if transfer.kind not in kinds:
            raise InvalidInputError(
                f"{path}.kind", f"{transfer.kind} in a plan whose mode is {synchronisation.mode}"
            )
        name = transfer.algorithm or synchronisation.algorithm
        if name not in known:
            why = f"expected one of {synchronisation.named}, got {shown(name)}"
            raise InvalidInputError(f"{path}.algorithm", why)


def _check_sent(answer: IterationAnswer) -> None:
    """Check that every byte is summed exactly once, and pulled exactly once after a push."""
    pushed = answer.parameter_bytes
    pulled = pushed if answer.pull_bytes is UNSET else answer.pull_bytes
    if list(pulled) != list(pushed):
        raise InvalidInputError("pull_bytes", "expected the parameters of parameter_bytes")
    transfers = typed_transfers("transfers", answer.transfers, pushed, pulled)
    sums = [place for place, transfer in enumerate(transfers) if transfer.kind != "pull"]
    names, sizes = list(pushed), list(pushed.values())
    with in_transfers(sums):
        check_contents(names, sizes, 1, [transfers[place] for place in sums])
    check_pulls(names, sizes, list(pulled.values()), 1, transfers)
