"""The JSON answers of whole iterations, and what is checked of one that is read again."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.families.bml.program import REPLAN
from planner.families.collectives.recipes import Recipe
from planner.families.iteration.plan import MIXED
from planner.jsonio.heads import check_head
from planner.jsonio.links import Digits, FailedDocument
from planner.jsonio.programs import ProgramAnswer, check_program, recipe_in
from planner.jsonio.transfers import (
    Names,
    OpTimes,
    ParameterBytes,
    TransferDocument,
    check_iteration,
    check_parts,
    placed,
    timeline_of,
)
from planner.jsonio.types import Moment, Rows, Size, says
from planner.jsonio.what_if import AdviceField, TargetedAnswer
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube
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

    An all-reduce sums up on all workers; a push sums up, each worker its share; a pull hands the
    updated shares out. It is due when the forward pass would need it if that never waited.
    """

    kind: Literal["all_reduce", "push", "pull"]
    algorithm: Annotated[
        str | UnsetType, says("by which it is synchronised, if not by the plan's")
    ] = UNSET
    depth: Depth | UnsetType = UNSET


class CostAnswer(Struct, frozen=True, kw_only=True):
    """What a transfer costs: ``startup_ns + bytes · ns_per_byte``, or what a measured table says.

    Of a table `startup_ns` is its first time and `ns_per_byte` its last slope.
    """

    startup_ns: Size
    ns_per_byte: float
    table: Rows | UnsetType = UNSET


class AlgorithmAnswer(Struct, frozen=True, kw_only=True):
    """An algorithm at one depth, what its transfers cost, and how it is run."""

    algorithm: str
    depth: Depth | UnsetType = UNSET
    steps: Annotated[int, Meta(ge=0, description="of an all-reduce")]
    all_reduce: CostAnswer
    push: CostAnswer
    pull: CostAnswer
    program: ProgramAnswer | UnsetType = UNSET


class SynchronisationAnswer(AlgorithmAnswer, frozen=True, kw_only=True):
    """The chosen way of synchronising: what carries most bytes, and what else transfers name."""

    mode: Mode
    others: (
        Annotated[
            tuple[AlgorithmAnswer, ...],
            Meta(min_length=1, description="what else is used: other algorithms, or depths"),
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
        mixed = any(used.algorithm != self.algorithm for used in self.algorithms)
        return MIXED if mixed else self.algorithm

    @property
    def named(self) -> str:
        """Names of all algorithms in use."""
        return " + ".join(dict.fromkeys(used.algorithm for used in self.algorithms))


class AlternativeAnswer(Struct, frozen=True, kw_only=True):
    """The best plan of one algorithm and one mode, or why there is none."""

    algorithm: str
    mode: Mode
    objective_ns: Moment | None
    lower_bound_ns: Moment | None
    transfers: Annotated[int, Meta(ge=0)] | None
    reason: str | UnsetType = UNSET


class ChangeAnswer(Struct, frozen=True, kw_only=True):
    """What would make the runner-up the better one, with both plans as they are."""

    what: Literal["startup", "message", "bandwidth"]
    factor: Annotated[float, Meta(gt=0)]


class RunnerUp(Struct, frozen=True, kw_only=True):
    """The next best way of synchronising that costs something else."""

    algorithm: str
    mode: Mode
    objective_ns: Moment
    wins_if: tuple[ChangeAnswer, ...]
    timed_out: Annotated[
        bool | UnsetType,
        Meta(description="true if time ran out before all changes were tried"),
    ] = UNSET


class WhyAnswer(Struct, frozen=True, kw_only=True):
    """Where the time goes, and what would have to change for another plan to win."""

    computation_ns: Moment
    exposed_bytes_ns: int
    exposed_startup_ns: int
    runner_up: RunnerUp | None


class InterferenceAnswer(Struct, frozen=True, kw_only=True):
    """What an all-reduce and computation take from each other; a push or a pull half as much."""

    startup_ns: Size
    ns_per_byte: float
    slowdown: Annotated[float, Meta(ge=1)]
    delay_ns: Size = 0


class MemoryAnswer(Struct, frozen=True, kw_only=True):
    """What each worker has to remember under the plan, with its largest transfer."""

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
    """How many machines were chosen, and what comes next."""

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
    """The chosen plan, what else there is, the bounds and the timeline."""

    problem: Literal["iteration"] = "iteration"
    network_bound_ns: (
        Annotated[int, Meta(ge=0, description="ns that no synchronisation algorithm undercuts")]
        | UnsetType
    ) = UNSET
    model: str
    cluster: str
    machines: Count
    workers: Count
    failed: FailedDocument | UnsetType = UNSET
    ranks: Annotated[
        tuple[Digits, ...] | UnsetType,
        says("of a BCube where something has failed: the server of each rank"),
    ] = UNSET
    synchronisation: SynchronisationAnswer | UnsetType = UNSET
    op_order: Names | UnsetType = UNSET
    transfers: Annotated[tuple[TransferAnswer, ...], Meta(min_length=1)] | UnsetType = UNSET
    barrier: bool = False
    iteration_ns: Moment | UnsetType = UNSET
    backward_ns: Moment | UnsetType = UNSET
    computation_ns: Moment | UnsetType = UNSET
    communication_ns: Moment | UnsetType = UNSET
    startup_ns: Moment | UnsetType = UNSET
    stall_ns: Moment | UnsetType = UNSET
    slowed_ns: Moment | UnsetType = UNSET
    interference: InterferenceAnswer | UnsetType = UNSET
    schedule: Annotated[tuple[OpTimes, ...], Meta(min_length=1)] | UnsetType = UNSET
    parameter_bytes: ParameterBytes | UnsetType = UNSET
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
        assert self.synchronisation is not UNSET
        assert self.transfers is not UNSET
        assert self.iteration_ns is not UNSET
        stalls = 0 if self.stall_ns is UNSET else self.stall_ns
        return (
            f"An iteration on {self.cluster} takes {format_ns(self.iteration_ns)} with "
            f"{counted(len(self.transfers), 'transfer')} by {self.synchronisation.named}, "
            f"{self.synchronisation.mode}; computation waits {format_ns(stalls)} of it"
        )


def timeline(answer: IterationAnswer) -> Timeline:
    """Check an answer and return its schedule; errors carry a path."""
    check_head(answer, "transfers", "schedule", "backward_ns", costs="iteration_ns")
    assert answer.transfers is not UNSET
    assert answer.schedule is not UNSET
    assert answer.backward_ns is not UNSET
    assert answer.iteration_ns is not UNSET
    order = () if answer.op_order is UNSET else answer.op_order
    check_iteration("transfers", answer.transfers, answer.schedule, order, answer.iteration_ns)
    if answer.synchronisation is not UNSET:
        _check_names(answer.synchronisation, answer.transfers)
        _check_programs(answer, answer.synchronisation)
    _check_sent(answer, answer.transfers)
    kinds = [transfer.kind for transfer in answer.transfers]
    return timeline_of(answer.schedule, answer.transfers, kinds, answer.backward_ns)


def _check_programs(answer: IterationAnswer, synchronisation: SynchronisationAnswer) -> None:
    """Check that each algorithm has one program, for the right algorithm and ranks."""
    recipes: dict[str, Recipe | None] = {}
    for used in synchronisation.algorithms:
        check_program(used.algorithm, used.program, answer.workers)
        _check_failed(answer, used.program)
        recipe = recipe_in(used.program)
        if recipes.setdefault(used.algorithm, recipe) != recipe:
            raise InvalidInputError(
                "synchronisation.others",
                f"expected {shown(used.algorithm)} at every depth by the same program",
            )


def _check_failed(answer: IterationAnswer, program: ProgramAnswer | UnsetType) -> None:
    """Check that failures and ranks agree with those of the programs."""
    recipe = recipe_in(program)
    if program is UNSET or recipe is None or recipe.generator != REPLAN:
        return
    if answer.failed != program.failed:
        raise InvalidInputError("failed", "expected what the program goes around")
    bcube, dead = BCube(*recipe.shape[:2]), recipe.failed.servers
    working = (server for server in range(bcube.servers) if server not in dead)
    if answer.ranks != tuple(map(bcube.digits, working)):
        raise InvalidInputError("ranks", "expected the servers that work, in order")


def _check_names(
    synchronisation: SynchronisationAnswer, transfers: Sequence[TransferAnswer]
) -> None:
    """Check that each transfer is of the plan's mode, by an algorithm and depth that it names."""
    known = {(used.algorithm, used.depth or 1) for used in synchronisation.algorithms}
    kinds = {"all_reduce"} if synchronisation.mode == "replicated" else {"push", "pull"}
    for path, transfer in placed("transfers", transfers):
        if transfer.kind not in kinds:
            raise InvalidInputError(
                f"{path}.kind", f"{transfer.kind} in a plan whose mode is {synchronisation.mode}"
            )
        name, depth = transfer.algorithm or synchronisation.algorithm, transfer.depth or 1
        if (name, depth) in known:
            continue
        if all(name != used for used, _ in known):
            why = f"expected one of {synchronisation.named}, got {shown(name)}"
            raise InvalidInputError(f"{path}.algorithm", why)
        why = f"synchronisation says nothing of {name} at depth {depth}"
        raise InvalidInputError(f"{path}.depth", why)


def _check_sent(answer: IterationAnswer, transfers: Sequence[TransferAnswer]) -> None:
    """Check that every byte is pushed exactly once, and pulled exactly once afterwards."""
    sizes = None if answer.parameter_bytes is UNSET else answer.parameter_bytes
    pulled = sizes if answer.pull_bytes is UNSET else answer.pull_bytes
    sums = [
        (place, transfer) for place, transfer in enumerate(transfers) if transfer.kind != "pull"
    ]
    pulls = [
        (place, transfer) for place, transfer in enumerate(transfers) if transfer.kind == "pull"
    ]
    if pulls and any(transfer.kind == "all_reduce" for _, transfer in sums):
        raise InvalidInputError("transfers", "all-reduces and pulls in one plan")
    summed = check_parts("transfers", sums, sizes)
    if not any(transfer.kind == "push" for _, transfer in sums):
        return
    handed = check_parts("transfers", pulls, pulled)
    if summed.keys() != handed.keys():
        odd = min(summed.keys() ^ handed.keys())
        raise InvalidInputError("transfers", f"{shown(odd)} is not both pushed and pulled")
    alike = answer.pull_bytes is UNSET
    for name, parts in handed.items():
        for start, stop, place in parts:
            needed = [
                number
                for first, last, number in summed[name]
                if not alike or -1 in (stop, last) or (first < stop and start < last)
            ]
            if max(needed) > place:
                raise InvalidInputError(
                    f"transfers[{place}]", f"pulls {shown(name)} before all of it was pushed"
                )
            if transfers[place].ready_ns < max(transfers[number].end_ns for number in needed):
                raise InvalidInputError(
                    f"transfers[{place}].ready_ns", f"before {shown(name)} was pushed"
                )
