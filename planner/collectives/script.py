"""A rank's own script of a collective program: what it sends and receives, step by step.

Problem. A rank that follows a program has to know, in elements of the tensor at hand, what it sends
and receives, and what may be under way at the same time. With several parts each takes every step
one step later than the part before it, and nobody should wait for more than it has to.

Method. Steps of a part and a lane are put in the order of time. Each asks for what it receives as
early as it can: when nothing is under way to the same place or from there. What it sends has to be
there: the last earlier step is complete that received some of it. All that is found chunk by chunk,
once for all parts.

Guarantee. Both ends of a link have the same messages in the same order, and a step waits for
earlier steps alone, of the same order on all ranks: so ranks that go through their scripts at their
own pace never wait for each other for ever, and get what they would get in step. Who arrives first
does not matter: what a step brings is added in the order of links and of distances of ranks.

Complexity. Linear in the chunks of a rank's messages, and in its messages times parts. Source. Own.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, count
from typing import NamedTuple

from planner.collectives.layout import Layout
from planner.collectives.parts import sizes_of
from planner.collectives.program import OWN, Message, Program
from planner.errors import InvalidPlanError

__all__ = ["Script", "ScriptHop", "Step", "scripts", "talking"]


class ScriptHop(NamedTuple):
    """Elements start … stop-1 go to a peer, or come from one.

    Attributes
    ----------
    peer, link : int
        With whom, over which link.
    own : bool
        Whether they are the tensor's; else they are of what is passed on.
    start, stop : int
        Which.
    adds : bool
        Whether the receiver adds them.
    aside : bool
        Whether they arrive elsewhere, as what is in their place is sent in the same step.
    """

    peer: int
    link: int
    own: bool
    start: int
    stop: int
    adds: bool
    aside: bool = False


class Step(NamedTuple):
    """What is sent and received in one step, of one part and lane.

    Attributes
    ----------
    before : int
        The last step, by its place, that has to be complete before it asks; -1 if none has.
    clear : tuple of int
        Sends that have to be over before it asks, numbered in the order of the script.
    receives : tuple of ScriptHop
        What it asks for, first of all.
    after : int
        The last step that has to be complete before it sends.
    sends : tuple of ScriptHop
        What it sends then.
    held : tuple of int
        Of its own sends those that have to be over before anything received is put in its place.
    """

    before: int
    clear: tuple[int, ...]
    receives: tuple[ScriptHop, ...]
    after: int
    sends: tuple[ScriptHop, ...]
    held: tuple[int, ...]


class Script(NamedTuple):
    """What one thread of a rank does.

    Attributes
    ----------
    steps : tuple of Step
        In this order.
    passing : int
        Elements of room for what is passed on.
    """

    steps: tuple[Step, ...]
    passing: int


_Send = tuple[int, int]
"""A send, by the place of its step and its own in that."""


class _Step(NamedTuple):
    """A step of the program, whatever the sizes."""

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
"""A chunk in a buffer."""


def scripts(
    program: Program, rank: int, elements: int, width: int = 1, parts: int = 1
) -> tuple[Script, ...]:
    """Return the scripts of a rank's threads: one for each lane, but no more than there are links.

    Parameters
    ----------
    program : Program
        What all ranks do.
    rank : int
        Whose.
    elements, width : int
        Elements of the tensor, and the bytes of one.
    parts : int
        Into how many parts to cut them.

    Raises
    ------
    InvalidInputError
        If the program is not for tensors of this size.
    InvalidPlanError
        If it adds sums to what need not be there, when it hands them out.
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
    """Yield a rank's steps in the order of time, with what they wait for."""
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
        # Those behind a rank get first what it sends; nobody is then asked by all at once.
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
    """Return what one thread does in all parts."""
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
    """Return the numbers of sends that are not empty, in order."""
    return tuple(sorted(numbers[part, send] for send in sends if (part, send) in numbers))


def talking(messages: Sequence[Message]) -> Iterator[tuple[int, list[int]]]:
    """Yield each link with the ranks that reach each other over it, also through others.

    On a BCube those are the ranks on one switch; no others need reach each other over its links.
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
