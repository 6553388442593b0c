"""Checks that a plan computes the sum of all gradients on all servers, by following its transfers.

Problem: each living server's contribution to each piece is counted exactly once on the piece's
owner after the aggregation, and every living server gets the sum once in the broadcast; servers
send only what they hold; links exist and work; with `exclusive`, no two threads share a link in a
step.

Guarantee: `check_complete` is exact. `check_piece` is exact for its piece. Larger plans are
sampled; method and tiers: docs/bml.md, "How plans are checked".
Complexity: `check_complete` O(threads · pieces · transfers of a thread) in array operations;
`check_piece` O(steps·N) array operations a piece. Source: own.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from random import Random
from typing import TYPE_CHECKING, Any

from planner.families.bml.problem import Transfer
from planner.families.bml.schedule import FULL_WEIGHT, Detour, DetourPart, Schedule
from planner.families.bml.trees import Branch, Plan, TreePlan
from planner.families.collectives.checker import fault_of, uncut
from planner.families.collectives.program import Kind
from planner.families.collectives.symmetric import Way
from planner.model.errors import InvalidPlanError
from planner.model.topologies import BCube
from planner.model.validation import shown
from planner.solving.deadline import NEVER, Deadline, until_deadline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COMPLETE_CELLS = 2**21
"""Number of contributions, (servers)²·pieces, up to which a plan is checked completely."""

RANDOM_PIECES = 4
"""Number of random pieces that are followed, in addition to one of each thread."""

WHOLE_SERVERS = 2**16
"""Number of servers up to which pieces are followed through an intact network."""

RANDOM_SERVERS = 16
"""Random servers whose transfers are compared with the path of each followed piece."""

SAMPLED_TRANSFERS = 16_000
"""Limit on the transfers of all drawn servers: if each has more, fewer servers are drawn."""

SINGLE_TRANSFERS = 4_000
"""Number of transfers that are checked one by one where no piece is followed."""


@dataclass(frozen=True, slots=True)
class CheckerContext:
    """Context of a check: the servers and links that a plan may use.

    Attributes
    ----------
    bcube : BCube
        The topology.
    dead : frozenset of int
        Failed servers.
    down : frozenset of (int, int)
        NICs of living servers that cannot be used, as pairs of server and level.
    exclusive : bool
        Whether two threads must never use the same link in one step.
    """

    bcube: BCube
    dead: frozenset[int] = frozenset()
    down: frozenset[tuple[int, int]] = frozenset()
    exclusive: bool = False


def check(context: CheckerContext, plan: Plan, deadline: Deadline = NEVER) -> str:
    """Check a plan as completely as its size allows, and return how completely.

    Parameters
    ----------
    context : CheckerContext
        The servers and links that the plan may use.
    plan : Plan
        The plan.
    deadline : Deadline
        When to give up.

    Returns
    -------
    str
        "complete"; "pieces" if sampled pieces were followed through the whole network; "transfers"
        if only transfers of sampled servers were checked.

    Raises
    ------
    InvalidPlanError
        If the plan is wrong.
    TimeUpError
        At the deadline.
    """
    bcube = context.bcube
    check_form(bcube, plan)
    if bcube.servers**2 * plan.threads * plan.pieces <= COMPLETE_CELLS:
        sent = (move for server in range(bcube.servers) for move in plan.transfers(server))
        check_complete(context, plan, sent, deadline)
        return "complete"
    draw = Random(0)
    intact = not (context.dead or context.down)
    # A tree's path may lead away from its root; only Algorithm 1 comes closer with each hop.
    if bcube.servers > WHOLE_SERVERS and intact and not isinstance(plan, TreePlan):
        for _ in range(RANDOM_SERVERS):
            transfers = plan.transfers(draw.randrange(bcube.servers))
            for transfer in islice(transfers, SINGLE_TRANSFERS // RANDOM_SERVERS):
                deadline.check()
                _check_transfer(context, plan, transfer)
                _check_way(bcube, plan, transfer)
        return "transfers"
    each = 2 * bcube.k**2 * (bcube.n - 1)
    count = min(RANDOM_SERVERS, max(1, SAMPLED_TRANSFERS // each))
    servers = {draw.randrange(bcube.servers) for _ in range(count)}
    theirs = [move for server in servers for move in plan.transfers(server)]
    for thread, piece in _sampled(plan, draw):
        deadline.check()
        check_piece(context, plan, thread, piece)
        _check_agreement(plan, thread, piece, servers, theirs)
    return "pieces"


def _sampled(plan: Plan, draw: Random) -> list[tuple[int, int]]:
    """Return one random piece of every thread, and some random pieces of any thread."""
    left_out = set(plan.left_out)
    sampled: list[tuple[int, int]] = []
    threads = [*range(plan.threads), *(draw.randrange(plan.threads) for _ in range(RANDOM_PIECES))]
    for thread in threads:
        for _ in range(1000):
            piece = draw.randrange(plan.pieces)
            if thread * plan.pieces + piece not in left_out:
                sampled.append((thread, piece))
                break
    return sampled


def check_complete(
    context: CheckerContext, plan: Plan, transfers: Iterable[Transfer], deadline: Deadline = NEVER
) -> None:
    """Follow every piece through all transfers of a plan; TimeUpError at the deadline.

    InvalidPlanError at the first fault, with the transfer or the piece.
    """
    import numpy as np

    together: dict[int, list[Transfer]] = defaultdict(list)
    for transfer in until_deadline(transfers, deadline):
        _check_transfer(context, plan, transfer)
        later = 0 if transfer.stage == "aggregate" else plan.steps
        together[later + transfer.step].append(transfer)
    if context.exclusive:
        for step in sorted(together):
            _check_exclusive(together[step])
    rows = np.array(
        [
            (step, move.thread, move.server, move.peer, move.offset, move.length)
            for step, moves in together.items()
            for move in moves
        ],
        dtype=np.int64,
    ).reshape(-1, 6)
    steps, threads, senders, receivers, offsets, lengths = rows.T
    firsts = threads * plan.pieces + offsets
    stops, left_out = firsts + lengths, set(plan.left_out)
    for first, stop, lane in uncut(plan.threads * plan.pieces, threads, firsts, stops):
        its = lane[(firsts[lane] <= first) & (first < stops[lane])]
        for number in range(first, stop):
            deadline.check()
            if number not in left_out:
                thread, piece = divmod(number, plan.pieces)
                owner, adds = _owner(context, plan, thread, piece), steps[its] < plan.steps
                way = Way(owner, steps[its], senders[its], receivers[its], adds)
                _check_way_of(context, f"thread {thread}, piece {piece}", way, "all_reduce")


def check_piece(context: CheckerContext, plan: Plan, thread: int, piece: int) -> None:
    """Follow one piece through the whole network, and back.

    The broadcast is the reverse of the aggregation (`planner.families.bml.problem`). So every
    server gets the sum once exactly if every server but the owner sends once, after all its
    receives, and the owner never sends. InvalidPlanError if a contribution is lost or counted
    twice, or a transfer takes a link that does not exist.
    """
    import numpy as np

    where, owner = f"thread {thread}, piece {piece}", _owner(context, plan, thread, piece)
    steps, senders, receivers, levels = plan.hops(thread, piece).T
    for step in steps[(steps < 0) | (steps >= plan.steps)].tolist():
        raise InvalidPlanError(where, f"expected steps from 0 to {plan.steps - 1}, got {step}")
    _check_links(context, where, senders, receivers, levels)
    adds = np.ones(len(steps), dtype=bool)
    _check_way_of(context, where, Way(owner, steps, senders, receivers, adds), "reduce_scatter")


def _owner(context: CheckerContext, plan: Plan, thread: int, piece: int) -> int:
    owner = plan.owner(thread, piece)
    if owner in context.dead:
        raise InvalidPlanError(f"thread {thread}, piece {piece}", "its owner is dead")
    return owner


def _check_way_of(context: CheckerContext, where: str, way: Way, kind: Kind) -> None:
    """Raise an error unless a piece is summed up once from all living servers, and handed out."""
    living = [server not in context.dead for server in range(context.bcube.servers)]
    fault = fault_of(way, kind, living)
    if fault is not None:
        server, what = fault
        raise InvalidPlanError(where, f"server {server} {what}")


def _check_agreement(
    plan: Plan, thread: int, piece: int, servers: set[int], transfers: Iterable[Transfer]
) -> None:
    """Raise an error if the servers' own transfers differ from the path of a piece."""
    listed = sorted(
        (transfer.stage, transfer.step, transfer.server, transfer.peer, transfer.level)
        for transfer in transfers
        if transfer.thread == thread
        and transfer.offset <= piece < transfer.offset + transfer.length
    )
    followed = []
    for step, sender, receiver, level in plan.hops(thread, piece).tolist():
        if sender in servers:
            followed.append(("aggregate", step, sender, receiver, level))
        if receiver in servers:
            followed.append(("broadcast", plan.steps - 1 - step, receiver, sender, level))
    if listed != sorted(followed):
        raise InvalidPlanError(
            f"thread {thread}, piece {piece}", "servers' transfers do not follow its way"
        )


def _check_links(
    context: CheckerContext,
    where: str,
    senders: "NDArray[np.int64]",
    receivers: "NDArray[np.int64]",
    levels: "NDArray[np.int64]",
) -> None:
    """Raise an error if a hop takes a link that does not exist or has failed."""
    import numpy as np

    bcube = context.bcube
    living = np.ones(bcube.servers, dtype=bool)
    living[list(context.dead)] = False
    down = np.zeros((bcube.k, bcube.servers), dtype=bool)
    for server, level in context.down:
        down[level, server] = True
    strides = np.array([bcube.n**level for level in range(bcube.k)], dtype=np.int64)[levels]
    apart = senders - receivers
    same = senders // (strides * bcube.n) == receivers // (strides * bcube.n)
    bad = (apart == 0) | (apart % strides != 0) | ~same
    bad |= ~living[senders] | ~living[receivers] | down[levels, senders] | down[levels, receivers]
    if bad.any():
        place = int(np.flatnonzero(bad)[0])
        hop = f"from server {senders[place]} to {receivers[place]} on level {levels[place]}"
        raise InvalidPlanError(where, f"no link {hop} that works")


def _check_transfer(context: CheckerContext, plan: Plan, transfer: Transfer) -> None:
    """Raise an error if a transfer takes no working link, or names pieces that do not exist."""
    bcube = context.bcube
    if transfer.stage not in ("aggregate", "broadcast") or not 0 <= transfer.step < plan.steps:
        raise InvalidPlanError(
            str(transfer), f"expected a step from 0 to {plan.steps - 1} of a stage"
        )
    if not 0 <= transfer.thread < plan.threads:
        raise InvalidPlanError(str(transfer), f"expected a thread from 0 to {plan.threads - 1}")
    offset, length = transfer.offset, transfer.length
    if length < 1 or offset < 0 or offset + length > plan.pieces:
        raise InvalidPlanError(str(transfer), f"expected pieces from 0 to {plan.pieces - 1}")
    level, ends = transfer.level, (transfer.server, transfer.peer)
    if not 0 <= level < bcube.k or not all(0 <= end < bcube.servers for end in ends):
        raise InvalidPlanError(str(transfer), "no such link")
    if (
        transfer.server == transfer.peer
        or bcube.switch(transfer.server, level) != bcube.switch(transfer.peer, level)
        or any(end in context.dead or (end, level) in context.down for end in ends)
    ):
        raise InvalidPlanError(str(transfer), "takes no link that works")


def _check_way(bcube: BCube, plan: Plan, transfer: Transfer) -> None:
    """Raise an error unless a transfer brings its pieces one link closer to their owners, or back.

    The servers of a link (`_check_transfer`) differ in the digit of its level only.
    """
    level, first = transfer.level, transfer.offset
    nearer = transfer.peer if transfer.stage == "aggregate" else transfer.server
    for piece in (first, first + transfer.length - 1):
        if bcube.digit(nearer, level) != bcube.digit(plan.owner(transfer.thread, piece), level):
            name = str(transfer)
            raise InvalidPlanError(name, "does not bring its pieces closer to their owners")


def _check_exclusive(transfers: Sequence[Transfer]) -> None:
    """Raise an error if two threads use one link, in one direction, in one step."""
    users: dict[tuple[int, int, bool], int] = {}
    for transfer in transfers:
        level = transfer.level
        for nic in ((transfer.server, level, True), (transfer.peer, level, False)):
            if users.setdefault(nic, transfer.thread) != transfer.thread:
                raise InvalidPlanError(
                    str(transfer), f"its link is used by thread {users[nic]} in this step too"
                )


# ---
# The servers, levels, pieces and shares that a plan names exist in the network: the rest of the
# checker, and pricing, rely on it. O(plan).


def check_form(bcube: BCube, plan: Any) -> None:
    """Raise InvalidPlanError at the first field that does not fit the network."""
    if plan.bcube != bcube:
        raise InvalidPlanError("bcube", f"expected {bcube}, got {plan.bcube}")
    if isinstance(plan, TreePlan):
        _within(plan.rounds, 1, None, "rounds")
        _check_trees(plan)
    elif isinstance(plan, Schedule):
        _within(plan.rounds, 1, None, "rounds")
        _check_schedule(plan)


def _within(value: Any, least: int, end: int | None, path: str) -> None:
    """Raise an error unless `value` is an integer from `least` to `end` - 1 (None: no limit)."""
    if type(value) is not int or value < least or (end is not None and value >= end):
        span = f"an integer >= {least}" if end is None else f"{least} to {end - 1}"
        raise InvalidPlanError(path, f"expected {span}, got {shown(value)}")


def _check_trees(plan: TreePlan) -> None:
    servers, levels = plan.bcube.servers, plan.bcube.k
    if not plan.trees or len(plan.shares) != len(plan.trees):
        raise InvalidPlanError(
            "shares", f"expected one a tree, of {len(plan.trees)}, got {len(plan.shares)}"
        )
    if min(plan.shares) < 0 or sum(plan.shares) != 1:
        raise InvalidPlanError("shares", "expected numbers >= 0 that add up to 1")
    for piece, tree in enumerate(plan.trees):
        _within(tree.root, 0, servers, f"trees[{piece}].root")
        for place, branch in enumerate(tree.branches):
            for name, end in zip(Branch._fields, (*(servers,) * 3, levels), strict=True):
                _within(getattr(branch, name), 0, end, f"trees[{piece}].branches[{place}].{name}")


def _check_schedule(plan: Schedule) -> None:
    servers, levels = plan.bcube.servers, plan.bcube.k
    count = plan.threads * plan.pieces
    for server in plan.dead:
        _within(server, 0, servers, "dead")
    for place, piece in enumerate(plan.left_out):
        _within(piece, plan.left_out[place - 1] + 1 if place else 0, count, f"left_out[{place}]")
    _within(plan.light_weight, 0, FULL_WEIGHT + 1, "light_weight")
    for place, (start, stop) in enumerate(plan.light):
        _within(start, 0, count, f"light[{place}][0]")
        _within(stop, start + 1, count + 1, f"light[{place}][1]")
    for place, ((_, stop), (start, _)) in enumerate(pairwise(plan.light), 1):
        _within(start, stop, count, f"light[{place}][0]")
    if (plan.light or plan.left_out) and not plan.total_weight:
        raise InvalidPlanError("left_out", "no piece is left that carries anything")
    for place, detour in enumerate(plan.detours):
        ends = levels, levels, servers, servers
        for name, end in zip(Detour._fields, ends, strict=False):
            _within(getattr(detour, name), 0, end, f"detours[{place}].{name}")
        for number, part in enumerate(detour.parts):
            inner = f"detours[{place}].parts[{number}]"
            for name, end in zip(DetourPart._fields, (levels, servers, servers), strict=False):
                _within(getattr(part, name), 0, end, f"{inner}.{name}")
            _within(part.length, 1, servers - part.offset + 1, f"{inner}.length")
