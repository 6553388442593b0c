"""A rank's script: its sends and receives of a collective program in elements, with dependencies.

Problem: a rank needs to know what it sends and receives, and what may be under way at once. Each of
several parts takes every step one step after the part before, and waits should be few.
Method: steps of a part and lane are ordered by time. A receive is posted as soon as no transfer
reads or writes its target; a send waits for the last earlier step that received some of its data.
Dependencies are found chunk by chunk, once for all parts.
Guarantee: both ends of a link have the same messages in the same order, and a step waits only for
earlier steps of an order common to all ranks. So ranks cannot deadlock at any pace, and compute
what they would in lockstep: arrivals are added in the order of links and of rank distance.
Complexity: linear in the chunks of a rank's messages, and in messages times parts. Source: own.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, count
from typing import NamedTuple

from planner.families.collectives.layout import Layout
from planner.families.collectives.program import OWN, Message, Program, sizes_of
from planner.model.errors import InvalidPlanError


class ScriptHop(NamedTuple):
    """Elements start … stop-1 that are sent to a peer or received from it.

    `own` says whether they lie in the tensor or in the buffer of relayed data. `aside` says whether
    they arrive in another place first, because the same step sends what their place holds.
    """

    peer: int
    link: int
    own: bool
    start: int
    stop: int
    adds: bool
    aside: bool = False


class Step(NamedTuple):
    """The sends and receives of one step of one part and lane.

    `receives` are posted first, when the step at place `before` is complete and the sends `clear`
    are over; `sends` start when the step at place `after` is complete. The sends `held` of this
    step have to be over before received data takes their place. A place of -1 means that nothing
    has to be waited for; sends are numbered in script order.
    """

    before: int
    clear: tuple[int, ...]
    receives: tuple[ScriptHop, ...]
    after: int
    sends: tuple[ScriptHop, ...]
    held: tuple[int, ...]


class Script(NamedTuple):
    """The steps of one thread of a rank; `passing` is the room for relayed data (elements)."""

    steps: tuple[Step, ...]
    passing: int


_Send = tuple[int, int]
"""A send: the place of its step, and its number in that step."""


class _Step(NamedTuple):
    """A step of the program, independent of sizes."""

    step: int
    lane: int
    sends: list[Message]
    receives: list[Message]
    before: int
    after: int
    clear: tuple[_Send, ...]
    aside: tuple[bool, ...]
    held: tuple[_Send, ...]


_Cell = tuple[int, int]
"""A buffer and a chunk in it."""


def scripts(
    program: Program, rank: int, elements: int, width: int = 1, parts: int = 1
) -> tuple[Script, ...]:
    """Return the scripts of a rank's threads: one per lane, but at most one per link.

    `width` is the size of an element (bytes). A program whose all-gather adds is an
    `InvalidPlanError`.
    """
    steps = list(_steps(program, rank))
    sizes = sizes_of(elements, parts)
    layouts = {size: program.layout(size, width) for size in {elements // parts, *sizes}}
    threads = max(min(program.lanes, program.links), 1)
    return tuple(
        _script(
            [(place, step) for place, step in enumerate(steps) if step.lane % threads == thread],
            [layouts[size] for size in sizes],
            sizes,
            width,
            rank,
        )
        for thread in range(threads)
    )


def _steps(program: Program, rank: int) -> Iterator[_Step]:
    """Yield a rank's steps in order of time, with their dependencies."""
    messages: dict[tuple[int, int], tuple[list[Message], list[Message]]] = defaultdict(
        lambda: ([], [])
    )
    for message in program.sends(rank):
        messages[message.step, message.lane][0].append(message)
    for message in program.receives(rank):
        if message.adds and program.kind == "all_gather":
            raise InvalidPlanError(f"step {message.step}, rank {rank}", "adds to no sum")
        messages[message.step, message.lane][1].append(message)
    written: dict[_Cell, int] = {}
    read: dict[_Cell, set[_Send]] = defaultdict(set)
    for place, key in enumerate(sorted(messages)):
        sends, receives = messages[key]
        # Ranks send to their successors first, so that no rank receives from all others at once.
        sends.sort(key=lambda message: _order(message, message.receiver - rank, program.ranks))
        receives.sort(key=lambda message: _order(message, rank - message.sender, program.ranks))
        sent = [_cells(message, message.source) for message in sends]
        received = [_cells(message, message.target) for message in receives]
        kept = [
            cells for message, cells in zip(receives, received, strict=True) if not message.adds
        ]
        before, after = (
            max((written.get(cell, -1) for cells in several for cell in cells), default=-1)
            for several in (kept, sent)
        )
        clear = {send for cells in received for cell in cells for send in read.pop(cell, ())}
        for number, cells in enumerate(sent):
            for cell in cells:
                read[cell].add((place, number))
        reading = {cell for cells in sent for cell in cells}
        aside = tuple(not reading.isdisjoint(cells) for cells in received)
        held = {send for cells in received for cell in cells for send in read.pop(cell, ())}
        written.update((cell, place) for cells in received for cell in cells)
        yield _Step(*key, sends, receives, before, after, tuple(clear), aside, tuple(held))


def _order(message: Message, distance: int, ranks: int) -> tuple[bool, int, int, int, int]:
    return message.adds, message.link, distance % ranks, message.first, message.target


def _cells(message: Message, buffer: int) -> list[_Cell]:
    return [(buffer, chunk) for chunk in range(message.first, message.stop)]


def _script(
    steps: Sequence[tuple[int, _Step]],
    layouts: Sequence[Layout],
    sizes: Sequence[int],
    width: int,
    rank: int,
) -> Script:
    """Return the script of one thread over all parts."""
    passing = sorted(
        {
            cell
            for _, step in steps
            for message in (*step.sends, *step.receives)
            for buffer in (message.source if message.sender == rank else message.target,)
            if buffer != OWN
            for cell in _cells(message, buffer)
        }
    )
    room = 0
    begins = [0, *accumulate(sizes)]
    rooms: list[dict[_Cell, int]] = []
    for layout in layouts:
        rooms.append({})
        for cell in passing:
            rooms[-1][cell] = room
            room += layout.span(cell[1], 1) // width

    def hop(part: int, message: Message, aside: bool) -> ScriptHop:
        sending = message.sender == rank
        buffer = message.source if sending else message.target
        layout = layouts[part]
        size = layout.span(message.first, message.stop - message.first) // width
        if buffer == OWN:
            start = begins[part] + layout.start(message.first) // width
        else:
            start = rooms[part][buffer, message.first]
        peer = message.receiver if sending else message.sender
        return ScriptHop(
            peer, message.link, buffer == OWN, start, start + size, message.adds, aside
        )

    order = sorted(
        (step.step + part, part, step.lane, place, step)
        for place, step in steps
        for part in range(len(sizes))
    )
    number = count()
    numbers: dict[tuple[int, _Send], int] = {}
    places: dict[tuple[int, int], int] = {}
    made = []
    for turn, (_, part, _, place, step) in enumerate(order):
        places[part, place] = turn
        sends = []
        for position, message in enumerate(step.sends):
            sent = hop(part, message, aside=False)
            if sent.start < sent.stop:
                numbers[part, (place, position)] = next(number)
                sends.append(sent)
        received = zip(step.receives, step.aside, strict=True)
        receives = [hop(part, message, aside) for message, aside in received]
        made.append(
            Step(
                places.get((part, step.before), -1),
                _numbered(numbers, part, step.clear),
                tuple(received for received in receives if received.start < received.stop),
                places.get((part, step.after), -1),
                tuple(sends),
                _numbered(numbers, part, step.held),
            )
        )
    return Script(tuple(made), room)


def _numbered(
    numbers: dict[tuple[int, _Send], int], part: int, sends: Sequence[_Send]
) -> tuple[int, ...]:
    """Return the script numbers of the sends that are not empty, in order."""
    return tuple(sorted(numbers[part, send] for send in sends if (part, send) in numbers))


def talking(messages: Sequence[Message]) -> Iterator[tuple[int, list[int]]]:
    """Yield each link with each set of ranks that are connected over it, also through others.

    On a BCube these are the ranks on one switch.
    """
    for link in sorted({message.link for message in messages}):
        of: dict[int, set[int]] = {}
        for message in messages:
            ends = message.sender, message.receiver
            if message.link == link and (joined := of.get(ends[0])) is not of.get(ends[1], of):
                both = {*ends}.union(joined or (), of.get(ends[1], ()))
                of.update(dict.fromkeys(both, both))
        for ranks in sorted({tuple(sorted(some)) for some in of.values()}):
            yield link, list(ranks)
