"""Validate answers about whole iterations that are read back, and extract their schedule."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, isfinite

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
from planner.jsonio.schedules import check_parts, check_sizes, check_startups, simulated
from planner.jsonio.transfers import OpTimes, timeline_of
from planner.model.contention import ALONE, Interference
from planner.model.costs import TableCost
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube
from planner.model.units import counted, format_ns
from planner.model.validation import check_same, inside, shown
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
    _check(answer, answer.transfers, answer.schedule)
    kinds = [transfer.kind for transfer in answer.transfers]
    return timeline_of(answer.schedule, answer.transfers, kinds, answer.backward_ns)


def _check(
    answer: IterationAnswer, transfers: Sequence[TransferAnswer], schedule: Sequence[OpTimes]
) -> None:
    order = () if answer.op_order is UNSET else answer.op_order
    iteration, computation = simulated(
        "transfers", transfers, schedule, order, barrier=answer.barrier
    )
    startup = 0
    if answer.synchronisation is UNSET:
        check_startups(
            "transfers", transfers, [transfer.kind == "all_reduce" for transfer in transfers]
        )
    else:
        startup = _check_costs(answer.synchronisation, transfers, _beside(answer))
        _check_programs(answer, answer.synchronisation)
    backward_ns = iteration.backward[-1][1] if iteration.backward else 0
    for number, transfer in enumerate(transfers):
        if transfer.kind == "pull" and transfer.ready_ns < backward_ns:
            raise InvalidInputError(
                f"transfers[{number}].ready_ns", "before the backward pass has ended"
            )
    communication = sum(end - start for start, end in iteration.transfers)
    for name, value in (
        ("iteration_ns", iteration.end_ns),
        ("backward_ns", backward_ns),
        ("computation_ns", computation),
        ("communication_ns", communication),
        ("stall_ns", iteration.end_ns - computation),
        ("startup_ns", answer.startup_ns if answer.synchronisation is UNSET else startup),
    ):
        check_same(getattr(answer, name), value, name)
    _check_sent(answer, transfers)


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


def _beside(answer: IterationAnswer) -> Interference:
    """Decode the contention parameters of an answer."""
    beside = answer.interference
    if beside is UNSET:
        return ALONE
    for name in ("ns_per_byte", "slowdown"):
        value = getattr(beside, name)
        if not (isfinite(value) and value >= 0):
            raise InvalidInputError(f"interference.{name}", "is none")
    return Interference(slowdown=Fraction(beside.slowdown), delay_ns=beside.delay_ns)


def _check_costs(
    synchronisation: SynchronisationAnswer,
    transfers: Sequence[TransferAnswer],
    beside: Interference,
) -> int:
    """Check that each transfer takes as long as its cost says; return the sum of start-ups (ns)."""
    costs = {
        (kind, used.algorithm, used.depth or 1): cost
        for used in synchronisation.algorithms
        for kind, cost in (
            ("all_reduce", used.all_reduce),
            ("push", used.push),
            ("pull", used.pull),
        )
    }
    startup = 0
    kinds = {"all_reduce"} if synchronisation.mode == "replicated" else {"push", "pull"}
    for number, transfer in enumerate(transfers):
        path = f"transfers[{number}]"
        if transfer.kind not in kinds:
            raise InvalidInputError(
                f"{path}.kind", f"{transfer.kind} in a plan whose mode is {synchronisation.mode}"
            )
        name = transfer.algorithm or synchronisation.algorithm
        cost = costs.get((transfer.kind, name, transfer.depth or 1))
        if cost is None:
            if all(used.algorithm != name for used in synchronisation.algorithms):
                why = f"expected one of {synchronisation.named}, got {shown(name)}"
                raise InvalidInputError(f"{path}.algorithm", why)
            why = f"synchronisation says nothing of {name} at depth {transfer.depth or 1}"
            raise InvalidInputError(f"{path}.depth", why)
        startup += cost.startup_ns
        if not (isfinite(cost.ns_per_byte) and cost.ns_per_byte >= 0):
            raise InvalidInputError(f"synchronisation.{transfer.kind}.ns_per_byte", "is none")
        took = transfer.end_ns - transfer.start_ns
        sending = Fraction(cost.ns_per_byte) * transfer.bytes  # the float was rounded
        least = cost.startup_ns + ceil(sending)
        if cost.table is not UNSET:
            with inside(f"synchronisation.{transfer.kind}"):
                least = TableCost(cost.table).cost_ns(transfer.bytes)
        most = beside.beside_ns(least)
        slack = 1 + sending / 2**50
        if not least - slack <= took <= most + slack:
            slower = f" to {most}" if most > least else ""
            raise InvalidInputError(
                f"{path}.end_ns", f"takes {took} ns, and {least}{slower} is what it costs"
            )
        right = min(transfer.start_ns + cost.startup_ns, transfer.end_ns)
        check_same(transfer.startup_end_ns, right, f"{path}.startup_end_ns")
    return startup


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
    check_sizes("transfers", sums, sizes)
    if not any(transfer.kind == "push" for _, transfer in sums):
        return
    handed = check_parts("transfers", pulls, pulled)
    check_sizes("transfers", pulls, pulled)
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
