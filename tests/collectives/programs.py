"""Strategies of collective programs, and a simulator of their own that knows nothing else."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import groupby, product
from operator import attrgetter

from hypothesis import strategies as st

from planner.families.bml.program import replanned
from planner.families.collectives import COLLECTIVES, RAIL_PROGRAMS, program
from planner.families.collectives.layout import by_shares
from planner.families.collectives.program import KINDS, OWN, ListedProgram, Message, Program
from planner.families.collectives.ring import bruck_program
from planner.model.errors import NotApplicableError
from planner.model.topologies import BCube, Failures, Rails

BCUBES = [BCube(*shape) for shape in ((2, 1), (3, 1), (5, 1), (9, 1), (2, 2), (3, 2), (2, 3))]
TENSORS = (7, 1, 0, 12, 5)
RAILS = [Rails(hosts, size, 10**9) for hosts, size in product(range(1, 6), range(1, 5))][1:]  # type: ignore[arg-type]


def tensors_program(tensors: Iterable[int], servers: int) -> ListedProgram:
    """Return the program of parameter servers with whole tensors; each tensor is a chunk."""
    sizes = tuple(tensors)
    owners = [chunk % servers for chunk in range(len(sizes))]
    messages = []
    for chunk, owner in enumerate(owners):
        for more in range(1, servers):
            worker, ends = (owner + more) % servers, (0, chunk, chunk + 1)
            messages.append(Message(0, 0, worker, owner, *ends, adds=True))
            messages.append(Message(1, 0, owner, worker, *ends, adds=False))
    name, shares = f"tensors({servers})", tuple(Fraction(size, sum(sizes)) for size in sizes)
    whole = ListedProgram(name, servers, 1, 1, len(sizes), tuple(messages), owners, 1)
    return replace(whole, placed=partial(by_shares, shares))


def all_programs() -> Iterator[Program]:
    """Yield every algorithm on small networks."""
    for name, bcube in product(COLLECTIVES, BCUBES):
        with suppress(NotApplicableError):
            yield program(name, bcube)
    yield from (tensors_program(TENSORS, bcube.servers) for bcube in BCUBES)
    yield from map(bruck_program, range(1, 10))
    for make, rails in product(RAIL_PROGRAMS.values(), RAILS):
        with suppress(NotApplicableError):
            yield make(rails)


def around_failures() -> Iterator[Program]:
    """Yield re-planned programs of BML, the last ones where only trees are left."""
    for bcube, failed in (
        (BCube(2, 2), Failures(nics=frozenset({(1, 0)}))),
        (BCube(2, 2), Failures(servers=frozenset({2}))),
        (BCube(3, 2), Failures(switches=frozenset({(1, 0)}))),
        (BCube(3, 2), Failures(servers=frozenset({4}), nics=frozenset({(0, 1)}))),
        (BCube(3, 2), Failures(nics=frozenset({(0, 0), (1, 1), (3, 0), (8, 0)}))),
    ):
        yield from (replanned(bcube, failed, rounds) for rounds in (1, 3))


def right(wanted: Program, messages: Iterable[Message]) -> bool:
    """Whether messages bring everything about: every contribution counted one by one."""
    held: dict[tuple[int, int, int], Counter[int]] = {}
    for rank, chunk in product(range(wanted.ranks), range(wanted.chunks)):
        own = {rank: 1}
        if wanted.kind == "all_gather":
            own = dict.fromkeys(range(wanted.ranks), 1) if wanted.owner(chunk) == rank else {}
        held[rank, OWN, chunk] = Counter(own)
    step = attrgetter("step")
    for _, together in groupby(sorted(messages, key=step), step):
        sent = []
        for one in together:
            for chunk in range(one.first, one.stop):
                if (one.sender, one.source, chunk) not in held:
                    return False
                sent.append((one, chunk, Counter(held[one.sender, one.source, chunk])))
        written = set()
        for one, chunk, what in sent:
            place = one.receiver, one.target, chunk
            if one.adds:
                held[place] = held.get(place, Counter()) + what
                if max(held[place].values(), default=0) > 1:
                    return False
            elif place in written:
                return False
            else:
                held[place] = what
            written.add(place)
    whole = Counter(dict.fromkeys(range(wanted.ranks), 1))
    return all(
        held[rank, OWN, chunk] == whole
        for rank, chunk in product(range(wanted.ranks), range(wanted.chunks))
        if wanted.kind != "reduce_scatter" or wanted.owner(chunk) == rank
    )


def as_listed(whole: Program, messages: Iterable[Message]) -> ListedProgram:
    """Return messages as a program like another one."""
    counts = whole.ranks, whole.lanes, whole.links, whole.chunks
    owners = [whole.owner(chunk) for chunk in range(whole.chunks)]
    listed = ListedProgram("listed", *counts, tuple(messages), owners, whole.scatter_steps)
    return listed.half(whole.kind)


PROGRAMS = list(all_programs())
small = st.sampled_from([one for one in PROGRAMS if one.ranks <= 9 and one.chunks <= 36])


@st.composite
def damaged(draw: st.DrawFn) -> ListedProgram:
    """Draw a program in which one to three messages are left out, repeated or changed."""
    whole = draw(small).half(draw(st.sampled_from(KINDS)))
    messages = list(whole.messages())
    for _ in range(draw(st.integers(1, 3))):
        if not messages:
            break
        message = messages.pop(draw(st.integers(0, len(messages) - 1)))
        step = draw(st.integers(0, whole.steps - 1))
        first = draw(st.integers(0, whole.chunks - 1))
        stop = draw(st.integers(first + 1, whole.chunks))
        ways = [
            [],
            [message, message],
            [message._replace(step=step)],
            [message._replace(adds=not message.adds)],
            [message._replace(first=first, stop=stop)],
        ]
        if ranks := [*{*range(whole.ranks)} - {message.sender, message.receiver}]:
            rank = draw(st.sampled_from(ranks))
            ways += [[message._replace(sender=rank)], [message._replace(receiver=rank)]]
        messages += draw(st.sampled_from(ways))
    return as_listed(whole, messages)
