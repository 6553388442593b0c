"""Proves that a program sums up every contribution exactly once: by symmetry, or by replay.

Method: in a symmetric program one chunk per lane is followed, as shifts map it to all others. Other
programs are checked range by range of chunks that no message cuts. If the simple argument fails, as
where data is relayed, the range is replayed: each rank's contributions in each buffer are counted,
and messages of a step send the contents before the step. Proof: docs/bml.md, "Why following one
chunk proves a program". Guarantee: both are proofs, for any number of bytes. Complexity: symmetric:
O(N) per lane (65,536 ranks take a second). Else O(messages of its lane) per range, O(ranks² +
messages·ranks) if it is replayed; memory O(messages + ranks²). Source: own; links: Wang et al.,
"BML", NeurIPS 2018, section 3.2.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, TypeAlias

from planner.families.collectives.program import OWN, Kind, Message, Program
from planner.families.collectives.symmetric import SymmetricProgram, Way, lane_link
from planner.model.errors import InvalidPlanError
from planner.solving.deadline import NEVER, Deadline, until_deadline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Held = dict[tuple[int, int], "NDArray[np.int64]"]
"""How often each rank's contribution is in a buffer, by rank and buffer."""


def check(program: Program, deadline: Deadline = NEVER) -> Literal["symmetry", "replay"]:
    """Check a program, and return the kind of proof.

    Raises
    ------
    InvalidPlanError
        At the first fault, with step, ranks and chunk.
    TimeUpError
        At the deadline.
    """
    if not isinstance(program, SymmetricProgram):
        replay(program, deadline)
        return "replay"
    _check_links(program)
    for lane in range(program.lanes):
        deadline.check()
        fault = fault_of(program.way(lane), program.kind, [True] * program.ranks)
        if fault is not None:
            number, what = fault
            where = f"chunk {lane * program.ranks}, rank {program.rank(number, lane)}"
            raise InvalidPlanError(where, what)
    return "symmetry"


def replay(program: Program, deadline: Deadline = NEVER) -> None:
    """Check a program by following all its messages."""
    import numpy as np

    messages = sorted(until_deadline(program.messages(), deadline))
    _check_forms(program, messages)
    rows = np.array([message[:8] for message in messages], dtype=np.int64).reshape(-1, 8)
    steps, lanes, senders, receivers, _, firsts, stops, adds = rows.T
    passed_on = any((message.source, message.target) != (OWN, OWN) for message in messages)
    for first, stop, lane in uncut(program.chunks, lanes, firsts, stops):
        deadline.check()
        its = lane[(firsts[lane] <= first) & (first < stops[lane])]
        for owner in sorted({program.owner(chunk) for chunk in range(first, stop)}):
            way = Way(owner, steps[its], senders[its], receivers[its], adds[its].astype(bool))
            if passed_on or fault_of(way, program.kind, [True] * program.ranks) is not None:
                _follow(program, [messages[number] for number in its.tolist()], first, owner)


_Numbers: TypeAlias = "NDArray[np.int64]"


def uncut(
    chunks: int, lanes: _Numbers, firsts: _Numbers, stops: _Numbers
) -> Iterator[tuple[int, int, _Numbers]]:
    """Yield the ranges of chunks that no message cuts, with the messages of their lane."""
    import numpy as np

    order = np.argsort(lanes, kind="stable")
    ranges = []
    for lane in np.split(order, np.flatnonzero(np.diff(lanes[order])) + 1):
        cuts = np.unique(np.concatenate([firsts[lane], stops[lane]]))
        places = np.searchsorted(cuts, firsts[lane]), np.searchsorted(cuts, stops[lane])
        begun, ended = (np.bincount(ends, minlength=len(cuts)) for ends in places)
        carried = np.cumsum(begun - ended)[:-1] > 0
        pairs = zip(cuts[:-1][carried].tolist(), cuts[1:][carried].tolist(), strict=True)
        ranges += [(first, stop, lane) for first, stop in pairs]
    reached = 0
    for first, stop, lane in sorted(ranges, key=itemgetter(0)):
        if first < reached:
            raise InvalidPlanError(
                f"lane {lanes[lane[0]]}, chunk {first}", "another lane carries it too"
            )
        if reached < first:
            yield reached, first, lane[:0]
        yield first, stop, lane
        reached = stop
    if reached < chunks:
        yield reached, chunks, order[:0]


def _check_links(program: SymmetricProgram) -> None:
    """Refuse two messages of one step between the same two ranks over one link."""
    used: set[tuple[int, int, tuple[int, ...]]] = set()
    for hop in program.hops:
        apart = hop.lane if not program.exclusive or program.wire is lane_link else 0
        key = hop.step, apart, hop.shift
        if key in used or not any(hop.shift):
            where = f"step {hop.step}, to the ranks at {hop.shift}"
            raise InvalidPlanError(where, "expected one message, to another rank")
        used.add(key)


def fault_of(way: Way, kind: Kind, takes_part: Sequence[bool]) -> tuple[int, str] | None:
    """Return the first rank that breaks the reduction or broadcast tree, and how; or None."""
    import numpy as np

    once, count = np.array(takes_part, dtype=np.int64), len(takes_part)
    once[way.owner] = 0
    up, down = way.adds, ~way.adds
    # Of half a program the other kind of message overwrites, or counts twice: replay decides.
    for half, strange in (("all_gather", up), ("reduce_scatter", down)):
        if kind == half and strange.any():
            return int(way.receivers[strange][0]), f"gets a message that no {half} needs"
    ready = -1
    if kind != "all_gather":
        times = np.bincount(way.senders[up], minlength=count)
        for rank in np.flatnonzero(times != once).tolist():
            return rank, f"sends it {times[rank]} times, expected {once[rank]}"
        sent = np.full(count, way.steps.max(initial=0) + 1)
        sent[way.senders[up]] = way.steps[up]
        for rank in way.receivers[up][way.steps[up] >= sent[way.receivers[up]]].tolist():
            return rank, f"receives it when it has sent it, in step {sent[rank]}"
        ready = max(way.steps[up][way.receivers[up] == way.owner].tolist(), default=-1)
    if kind != "reduce_scatter":
        times = np.bincount(way.receivers[down], minlength=count)
        for rank in np.flatnonzero(times != once).tolist():
            return rank, f"gets the sum {times[rank]} times, expected {once[rank]}"
        held = np.full(count, ready)
        held[way.receivers[down]] = way.steps[down]
        for rank in way.senders[down][way.steps[down] <= held[way.senders[down]]].tolist():
            return rank, f"sends the sum before step {held[rank] + 1}, when it has it"
    return None


def _check_forms(program: Program, messages: Iterable[Message]) -> None:
    """Refuse messages with invalid ranks, links or chunks."""
    for message in messages:
        where = _where(message)
        ends = message.sender, message.receiver
        if ends[0] == ends[1] or not all(0 <= end < program.ranks for end in ends):
            raise InvalidPlanError(where, f"expected two of {program.ranks} ranks")
        if not 0 <= message.link < program.links:
            raise InvalidPlanError(where, f"no link {message.link}: ranks have {program.links}")
        if not 0 <= message.first < message.stop <= program.chunks:
            raise InvalidPlanError(where, f"expected a range of {program.chunks} chunks")
        if not 0 <= message.lane < program.lanes:
            raise InvalidPlanError(where, f"no lane {message.lane}: there are {program.lanes}")


def _follow(program: Program, messages: Iterable[Message], chunk: int, owner: int) -> None:
    """Replay the messages of one chunk, and check the final contents of every rank."""
    import numpy as np

    count = program.ranks
    whole = np.ones(count, dtype=np.int64)
    held: _Held = {}
    for rank in range(count):
        held[rank, OWN] = np.zeros(count, dtype=np.int64)
        held[rank, OWN][rank] = 1
    if program.kind == "all_gather":
        held = {(rank, OWN): np.zeros(count, dtype=np.int64) for rank in range(count)}
        held[owner, OWN][:] = 1
    for _, together in groupby(messages, key=lambda message: message.step):
        arriving = []
        written: set[tuple[int, int]] = set()
        for message in together:
            source = held.get((message.sender, message.source))
            if source is None:
                raise InvalidPlanError(_where(message), f"chunk {chunk} is not in what is sent")
            arriving.append((message, source.copy()))
        for message, contributions in arriving:
            target = message.receiver, message.target
            if message.adds and target in held:
                held[target] += contributions
                twice = np.flatnonzero(held[target] > 1)
                if twice.size:
                    raise InvalidPlanError(
                        _where(message),
                        f"chunk {chunk} then has the contribution of rank {twice[0]} twice",
                    )
            elif target in written:
                raise InvalidPlanError(_where(message), f"chunk {chunk} arrives twice at once")
            else:
                held[target] = contributions
            written.add(target)
    ends = [owner] if program.kind == "reduce_scatter" else range(count)
    for rank in ends:
        missing = np.flatnonzero(held[rank, OWN] != whole)
        if missing.size:
            raise InvalidPlanError(
                f"after the last step, rank {rank}, chunk {chunk}",
                f"has the contribution of rank {missing[0]} {held[rank, OWN][missing[0]]} times, "
                "expected once",
            )


def _where(message: Message) -> str:
    return (
        f"step {message.step}, rank {message.sender} to rank {message.receiver}, "
        f"chunks {message.first}…{message.stop - 1}"
    )
