"""Plans of synchronisation as collective programs.

Living servers become ranks, in order; threads become lanes, levels links, and pieces in use chunks.
Without failures the result is Algorithm 1 in its symmetric form.

Complexity: linear in the plan's transfers; O(n·k²) without failures. Source: own.
"""

from bisect import bisect_left
from functools import partial

from planner.families.bml.problem import Plan
from planner.families.bml.schedule import Schedule
from planner.families.collectives.bml import bml_program
from planner.families.collectives.layout import KeptLayout, Layout
from planner.families.collectives.program import ListedProgram, Message, Program


def program_of(plan: Plan) -> Program:
    """Return a plan as a program; its rounds are the depth to run it with."""
    if isinstance(plan, Schedule) and not plan.changed:
        return bml_program(plan.bcube)
    return listed(plan)


def listed(plan: Plan) -> ListedProgram:
    """Return a plan as a program with one message per transfer."""
    bcube, out = plan.bcube, plan.left_out
    transfers = [move for server in range(bcube.servers) for move in plan.transfers(server)]
    gone = set(out)
    kept = [piece for piece in range(plan.threads * plan.pieces) if piece not in gone]
    owners = [plan.owner(*divmod(piece, plan.pieces)) for piece in kept]
    servers = sorted({*owners, *(end for move in transfers for end in (move.server, move.peer))})
    rank = {server: number for number, server in enumerate(servers)}

    def chunk(piece: int) -> int:
        return piece - bisect_left(out, piece)

    messages = []
    for move in transfers:
        piece = move.thread * plan.pieces + move.offset
        first, stop = chunk(piece), chunk(piece + move.length)
        if first < stop:
            adds = move.stage == "aggregate"
            step = move.step if adds else plan.steps + move.step
            ends = rank[move.server], rank[move.peer]
            messages.append(Message(step, move.thread, *ends, move.level, first, stop, adds))
    return ListedProgram(
        f"bml({bcube.n}, {bcube.k}) around failures",
        len(servers),
        plan.threads,
        bcube.k,
        len(kept),
        tuple(messages),
        [rank[owner] for owner in owners],
        plan.steps,
        placed=partial(_placed, plan, tuple(kept)),
        exclusive=False,
    )


def _placed(plan: Plan, kept: tuple[int, ...], elements: int, element_bytes: int) -> Layout:
    return KeptLayout(plan.layout(elements, element_bytes), (*kept, plan.threads * plan.pieces))
