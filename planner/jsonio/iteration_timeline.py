"""Validate answers about whole iterations that are read back, and extract their schedule."""

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from planner.families.bml.program import REPLAN
from planner.families.collectives.recipes import Recipe
from planner.jsonio.heads import check_head, made_by
from planner.jsonio.iteration_answer import (
    IterationAnswer,
    SynchronisationAnswer,
    TransferAnswer,
)
from planner.jsonio.programs import ProgramAround, check_program, recipe_in
from planner.jsonio.schedules import check_iteration, check_parts, placed
from planner.jsonio.transfers import timeline_of
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube
from planner.model.units import counted, format_ns
from planner.model.validation import shown
from planner.solving.timeline import Timeline


def headline(answer: IterationAnswer) -> str:
    """Return a one-line summary: the plan and its cost."""
    if answer.synchronisation is UNSET or answer.transfers is UNSET or answer.iteration_ns is UNSET:
        return f"There is no plan ({made_by(answer)})"
    synchronisation = answer.synchronisation
    stalls = 0 if answer.stall_ns is UNSET else answer.stall_ns
    return (
        f"An iteration on {answer.cluster} takes {format_ns(answer.iteration_ns)} with "
        f"{counted(len(answer.transfers), 'transfer')} by {synchronisation.named}, "
        f"{synchronisation.mode}; computation waits {format_ns(stalls)} of it ({made_by(answer)})"
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


def _check_failed(answer: IterationAnswer, program: ProgramAround | UnsetType) -> None:
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
