"""Checks that a plan computes the sum of all gradients on all servers, by replaying its transfers.

Problem: each living server's contribution to each piece is counted exactly once on the piece's
owner after the aggregation and on every living server after the broadcast; servers send only what
they hold; links exist and work; with `exclusive`, no two threads share a link in a step.

Guarantee: `check_complete` is exact. `check_piece` is exact for its piece. Larger plans are
sampled; method and tiers: docs/bml.md, "How plans are checked".
Complexity: `check_complete` O(transfers·length·N), memory N²·pieces; `check_piece` O(steps·N) array
operations a piece. Source: own.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from planner.families.bml.form import check_form
from planner.families.bml.problem import Plan, Transfer
from planner.families.bml.trees import TreePlan
from planner.model.errors import InvalidPlanError
from planner.model.topologies import BCube
from planner.solving.deadline import NEVER, Deadline, watched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COMPLETE_CELLS = 2**25
"""Number of contributor counts, (servers)²·pieces, up to which a plan is checked completely."""

HASTY_CELLS = 2**19
HASTY_SERVERS = 2**12
HASTY_TRANSFERS = 1000
"""With a time limit: `COMPLETE_CELLS`, `WHOLE_SERVERS` and `SINGLE_TRANSFERS`."""

RANDOM_PIECES = 4
"""Random pieces that are followed, besides one of each thread."""

WHOLE_SERVERS = 2**16
"""Number of servers up to which pieces are followed through an intact network."""

RANDOM_SERVERS = 16
"""Random servers whose transfers are compared with the path of each followed piece."""

SAMPLED_TRANSFERS = 16_000
"""Transfers of an intact BCube up to which that many servers are drawn; beyond, fewer."""

SINGLE_TRANSFERS = 4_000
"""Transfers that are checked one by one where no piece is followed."""


@dataclass(frozen=True, slots=True)
class Ground:
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


def check(ground: Ground, plan: Plan, deadline: Deadline = NEVER, *, hasty: bool = False) -> str:
    """Check a plan as completely as its size allows, and return how completely.

    Parameters
    ----------
    ground : Ground
        The servers and links that the plan may use.
    plan : Plan
        The plan.
    deadline : Deadline
        When to give up.
    hasty : bool
        Whether to check only small plans completely, because time is limited.

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
    bcube = ground.bcube
    check_form(bcube, plan)
    most = HASTY_CELLS if hasty else COMPLETE_CELLS
    if bcube.servers**2 * plan.threads * plan.pieces <= most:
        check_complete(ground, plan, _all_transfers(plan, deadline), deadline)
        return "complete"
    draw = Random(0)
    whole = HASTY_SERVERS if hasty else WHOLE_SERVERS
    intact = not (ground.dead or ground.down)
    # A tree's path may lead away from its root; only Algorithm 1 comes closer with each hop.
    if bcube.servers > whole and intact and not isinstance(plan, TreePlan):
        single = HASTY_TRANSFERS if hasty else SINGLE_TRANSFERS
        for _ in range(RANDOM_SERVERS):
            transfers = plan.transfers(draw.randrange(bcube.servers))
            for transfer in islice(transfers, single // RANDOM_SERVERS):
                deadline.check()
                _check_transfer(ground, plan, transfer)
                _check_way(bcube, plan, transfer)
        return "transfers"
    each = 2 * bcube.k**2 * (bcube.n - 1)
    count = min(RANDOM_SERVERS, max(1, SAMPLED_TRANSFERS // each))
    servers = {draw.randrange(bcube.servers) for _ in range(count)}
    sent = [transfer for server in servers for transfer in plan.transfers(server)]
    for thread, piece in _sampled(plan, draw):
        deadline.check()
        check_piece(ground, plan, thread, piece)
        _check_agreement(plan, thread, piece, servers, sent)
    return "pieces"


def _all_transfers(plan: Plan, deadline: Deadline) -> Iterator[Transfer]:
    for server in range(plan.bcube.servers):
        deadline.check()
        yield from plan.transfers(server)


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
    ground: Ground, plan: Plan, transfers: Iterable[Transfer], deadline: Deadline = NEVER
) -> None:
    """Replay all transfers of a plan and count every contribution.

    Raises
    ------
    InvalidPlanError
        At the first fault, with the transfer.
    TimeUpError
        At the deadline.
    """
    import numpy as np

    bcube = ground.bcube
    living = [server for server in range(bcube.servers) if server not in ground.dead]
    steps: dict[str, dict[int, list[Transfer]]] = {
        "aggregate": defaultdict(list),
        "broadcast": defaultdict(list),
    }
    for transfer in watched(transfers, deadline):
        _check_transfer(ground, plan, transfer)
        steps[transfer.stage][transfer.step].append(transfer)
    in_use = np.ones((plan.threads, plan.pieces), dtype=bool)
    in_use.reshape(-1)[list(plan.left_out)] = False
    # By server, thread, piece and contributor. Each addition is checked, so no count in use exceeds
    # 2, far below the limit of 16 bits.
    counts = np.zeros((bcube.servers, plan.threads, plan.pieces, bcube.servers), dtype=np.uint16)
    for server in living:
        counts[server, :, :, server] = 1
    whole = np.zeros(bcube.servers, dtype=np.uint16)
    whole[living] = 1

    done = np.zeros((bcube.servers, plan.threads, plan.pieces), dtype=bool)
    for thread, piece in np.argwhere(in_use).tolist():
        done[plan.owner(thread, piece), thread, piece] = True
    passed_on = done.copy()  # an owner does not send its pieces

    for step in sorted(steps["aggregate"]):
        if ground.exclusive:
            _check_exclusive(steps["aggregate"][step])
        added = []
        # Transfers of a step are concurrent: all payloads are copied before any is added.
        for transfer in watched(steps["aggregate"][step], deadline):
            server, thread = transfer.server, transfer.thread
            span = slice(transfer.offset, transfer.offset + transfer.length)
            if passed_on[server, thread, span][in_use[thread, span]].any():
                raise InvalidPlanError(str(transfer), "what is sent was sent before, or is to stay")
            passed_on[server, thread, span] = True
            added.append((transfer, span, counts[server, thread, span].copy()))
        for transfer, span, sent in watched(added, deadline):
            peer, thread = transfer.peer, transfer.thread
            counts[peer, thread, span] += sent
            if counts[peer, thread, span][in_use[thread, span]].max(initial=0) > 1:
                raise InvalidPlanError(str(transfer), "a contribution is counted twice")
    for owner, thread, piece in watched(np.argwhere(done).tolist(), deadline):
        if owner in ground.dead:
            raise InvalidPlanError(f"thread {thread}, piece {piece}", "its owner is dead")
        missing = np.flatnonzero(counts[owner, thread, piece] != whole)
        if missing.size:
            raise InvalidPlanError(
                f"thread {thread}, piece {piece}",
                f"after the aggregation its owner, server {owner}, does not have the "
                f"contribution of server {missing[0]} exactly once",
            )

    for step in sorted(steps["broadcast"]):
        if ground.exclusive:
            _check_exclusive(steps["broadcast"][step])
        arrived = np.zeros_like(done)  # may be passed on from the next step
        for transfer in watched(steps["broadcast"][step], deadline):
            span = slice(transfer.offset, transfer.offset + transfer.length)
            used = in_use[transfer.thread, span]
            if not done[transfer.server, transfer.thread, span][used].all():
                raise InvalidPlanError(str(transfer), "what is sent is not held")
            if (done | arrived)[transfer.peer, transfer.thread, span][used].any():
                raise InvalidPlanError(str(transfer), "what is sent is there already")
            arrived[transfer.peer, transfer.thread, span] = used
        done |= arrived
    lacking = ~done[living] & in_use
    if lacking.any():
        server, thread, piece = (int(indices[0]) for indices in np.nonzero(lacking))
        raise InvalidPlanError(
            f"thread {thread}, piece {piece}", f"server {living[server]} never gets the sum"
        )


def check_piece(ground: Ground, plan: Plan, thread: int, piece: int) -> None:
    """Follow one piece through the whole network, and back.

    The broadcast is the reverse of the aggregation (`planner.families.bml.problem`). So every
    server gets the sum once exactly if every server but the owner sends once, after all its
    receives, and the owner never sends.

    Raises
    ------
    InvalidPlanError
        If a contribution is lost or counted twice, or a transfer takes a link that does not exist.
    """
    import numpy as np

    bcube, where = ground.bcube, f"thread {thread}, piece {piece}"
    owner = plan.owner(thread, piece)
    living = np.ones(bcube.servers, dtype=bool)
    living[list(ground.dead)] = False
    if not living[owner]:
        raise InvalidPlanError(where, "its owner is dead")
    down = np.zeros((bcube.k, bcube.servers), dtype=bool)
    for server, level in ground.down:
        down[level, server] = True
    sent = np.zeros(bcube.servers, dtype=np.int64)
    last = -1
    for hops in plan.hops(thread, piece):
        if hops.step <= last:
            raise InvalidPlanError(where, f"step {hops.step} comes after step {last}")
        last = hops.step
        _check_hops(bcube, where, hops.senders, hops.receivers, hops.levels, down, living)
        # Sends of this step count: a server that receives in this step must not also send in it.
        np.add.at(sent, hops.senders, 1)
        late = np.flatnonzero(sent[hops.receivers])
        if late.size:
            server = int(hops.receivers[late[0]])
            raise InvalidPlanError(where, f"server {server} receives it when it has sent it")
    expected = living.astype(np.int64)
    expected[owner] = 0
    wrong = np.flatnonzero(sent != expected)
    if wrong.size:
        server = int(wrong[0])
        raise InvalidPlanError(where, f"server {server} sends it {int(sent[server])} times")
    if last >= plan.steps:
        raise InvalidPlanError(where, f"expected steps from 0 to {plan.steps - 1}, got {last}")


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
    for hops in plan.hops(thread, piece):
        for ends in zip(
            hops.senders.tolist(), hops.receivers.tolist(), hops.levels.tolist(), strict=True
        ):
            sender, receiver, level = ends
            if sender in servers:
                followed.append(("aggregate", hops.step, sender, receiver, level))
            if receiver in servers:
                back = plan.steps - 1 - hops.step
                followed.append(("broadcast", back, receiver, sender, level))
    if listed != sorted(followed):
        raise InvalidPlanError(
            f"thread {thread}, piece {piece}", "servers' transfers do not follow its way"
        )


def _check_hops(
    bcube: BCube,
    where: str,
    senders: "NDArray[np.int64]",
    receivers: "NDArray[np.int64]",
    levels: "NDArray[np.int64]",
    down: "NDArray[np.bool_]",
    living: "NDArray[np.bool_]",
) -> None:
    """Raise an error if a transfer takes a link that does not exist or has failed."""
    import numpy as np

    strides = np.array([bcube.n**level for level in range(bcube.k)], dtype=np.int64)[levels]
    apart = senders - receivers
    same = senders // (strides * bcube.n) == receivers // (strides * bcube.n)
    bad = (apart == 0) | (apart % strides != 0) | ~same
    bad |= ~living[senders] | ~living[receivers] | down[levels, senders] | down[levels, receivers]
    if bad.any():
        place = int(np.flatnonzero(bad)[0])
        hop = f"from server {senders[place]} to {receivers[place]} on level {levels[place]}"
        raise InvalidPlanError(where, f"no link {hop} that works")


def _check_transfer(ground: Ground, plan: Plan, transfer: Transfer) -> None:
    """Raise an error if a transfer takes no working link, or names pieces that do not exist."""
    bcube = ground.bcube
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
        or any(end in ground.dead or (end, level) in ground.down for end in ends)
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
