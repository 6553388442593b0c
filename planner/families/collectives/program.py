"""Collective programs: who sends which chunk to whom in which step, as plain data.

A collective is cut into chunks. In each step ranks send ranges of chunks to each other, all at
once: a message carries the data from before the step. The receiver adds it or stores it.
Executors, the checker and the pricing need nothing else, and every algorithm is generated in this
form. In the first half of an all-reduce (`scatter_steps`) each chunk is summed up on its owner; in
the second half the sums are handed out.

Source: MSCCL's programs (Cowan et al., "MSCCLang", ASPLOS 2023) without thread blocks: steps and
lanes stand for them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, Self

from planner.families.collectives.layout import EvenLayout, Layout
from planner.model.errors import InvalidInputError

Kind = Literal["all_reduce", "reduce_scatter", "all_gather"]
KINDS: tuple[Kind, ...] = ("all_reduce", "reduce_scatter", "all_gather")

OWN = -1
"""The buffer that is summed up in place; others, numbered from 0, hold relayed data."""


class Message(NamedTuple):
    """A range of chunks that one rank sends to another.

    Attributes
    ----------
    step : int
        Messages of one step are under way at once.
    lane : int
        Lane of the sender. Lanes share no chunks, so they need not keep pace with each other.
    sender, receiver : int
        The ranks.
    link : int
        The NIC that both use, from 0.
    first, stop : int
        The chunks first … stop-1.
    adds : bool
        Whether the receiver adds the chunks or stores them.
    source, target : int
        The buffers of the sender and of the receiver: `OWN`, except for relayed data.
    """

    step: int
    lane: int
    sender: int
    receiver: int
    link: int
    first: int
    stop: int
    adds: bool
    source: int = OWN
    target: int = OWN


class Program(ABC):
    """A collective among ranks 0 … N-1.

    Attributes
    ----------
    name : str
        The algorithm and its parameters.
    kind : str
        "all_reduce", or one of its halves: "reduce_scatter" or "all_gather".
    ranks, lanes, links : int
        Number of ranks N, lanes of a rank, and NICs of a rank.
    chunks : int
        Number of chunks.
    steps, scatter_steps : int
        Steps of the all-reduce, and how many of them sum up.
    even : bool
        Whether chunks share the data evenly.
    """

    name: str
    kind: Kind
    ranks: int
    lanes: int
    links: int
    chunks: int
    steps: int
    scatter_steps: int
    even: bool = True

    def _derive(self, **values: object) -> None:
        """Set attributes that follow from the fields; a frozen program does so once, when made."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def sends(self, rank: int) -> Iterator[Message]:
        """Yield the messages that a rank sends, in the order of steps."""
        return self._of(rank, sent=True)

    def receives(self, rank: int) -> Iterator[Message]:
        """Yield the messages that a rank receives, in the order of steps."""
        return self._of(rank, sent=False)

    @abstractmethod
    def _of(self, rank: int, *, sent: bool) -> Iterator[Message]:
        """Yield the messages that a rank sends, or receives, in the order of steps."""

    @abstractmethod
    def owner(self, chunk: int) -> int:
        """Return the rank that a chunk is summed up on."""

    @abstractmethod
    def half(self, kind: Kind) -> "Program":
        """Return one half of the all-reduce."""

    def layout(self, elements: int, element_bytes: int = 1) -> Layout:
        """Return the layout of the chunks of a tensor; by default they share it evenly."""
        return EvenLayout(1, self.chunks, (), elements, element_bytes)

    def messages(self) -> Iterator[Message]:
        """Yield the messages of all ranks."""
        for rank in range(self.ranks):
            yield from self.sends(rank)

    def _is_of_kind(self, step: int) -> bool:
        """Whether a step belongs to the collective of this program."""
        return self.kind == "all_reduce" or (step < self.scatter_steps) == (
            self.kind == "reduce_scatter"
        )


@dataclass(frozen=True)
class ListedProgram(Program):
    """A program given message by message; `listed` holds those of an all-reduce, in any order.

    `owners` holds the rank that each chunk is summed up on. `placed` returns the chunk layout for a
    number of elements and their size; without it chunks are even.
    """

    name: str
    ranks: int
    lanes: int
    links: int
    chunks: int
    listed: tuple[Message, ...]
    owners: Sequence[int]
    scatter_steps: int
    kind: Kind = "all_reduce"
    placed: Callable[[int, int], Layout] | None = None

    def __post_init__(self) -> None:
        steps = max((message.step + 1 for message in self.listed), default=0)
        self._derive(even=self.placed is None, steps=steps)

    @cached_property
    def _by_rank(self) -> tuple[list[list[Message]], list[list[Message]]]:
        sent: list[list[Message]] = [[] for _ in range(self.ranks)]
        received: list[list[Message]] = [[] for _ in range(self.ranks)]
        for message in self.messages():
            sent[message.sender].append(message)
            received[message.receiver].append(message)
        return sent, received

    def messages(self) -> Iterator[Message]:
        """Yield the messages of all ranks, step by step."""
        return (message for message in sorted(self.listed) if self._is_of_kind(message.step))

    def _of(self, rank: int, *, sent: bool) -> Iterator[Message]:
        return iter(self._by_rank[0 if sent else 1][rank])

    def owner(self, chunk: int) -> int:
        """Return the rank that a chunk is summed up on."""
        return self.owners[chunk]

    def half(self, kind: Kind) -> Self:
        """Return one half of the all-reduce."""
        return replace(self, kind=kind)

    def layout(self, elements: int, element_bytes: int = 1) -> Layout:
        """Return the layout of the chunks of a tensor."""
        if self.placed is None:
            return super().layout(elements, element_bytes)
        return self.placed(elements, element_bytes)


# ---
# A program that pipelines its data in parts, written out as a program of chunks and steps.
#
# Problem: at depth d an executor cuts the data into d parts, each one step behind the part before,
# so that no link idles. File formats without depth need the parts as chunks and steps. Guarantee:
# the sums are those of the program, as parts share no chunk. The result has no halves, because no
# step ends the reduce-scatter of all parts. Complexity: O(messages · parts). Source: own; chunks in
# flight: Hashemi et al., "Caramel", section 4.4.


def sizes_of(elements: int, parts: int) -> list[int]:
    """Return the elements of each part: as equal as possible, no part empty."""
    quotient, rest = divmod(elements, parts)
    return [quotient + (part < rest) for part in range(min(parts, elements))]


def in_parts(program: Program, parts: int) -> Program:
    """Return the program in `parts` pipelined parts; one part is the program itself.

    Only an all-reduce with chunks of one size can be cut into parts.
    """
    if parts == 1:
        return program
    if program.kind != "all_reduce" or not program.even:
        raise InvalidInputError(
            "program", "expected an all_reduce in chunks of one size to cut into parts"
        )
    messages = (
        # Not `_replace`: it takes three times as long.
        Message(
            message.step + part,
            message.lane,
            message.sender,
            message.receiver,
            message.link,
            message.first + part * program.chunks,
            message.stop + part * program.chunks,
            message.adds,
            message.source,
            message.target,
        )
        for part in range(parts)
        for message in program.messages()
    )
    return ListedProgram(
        f"{program.name} in {parts} parts",
        program.ranks,
        program.lanes,
        program.links,
        parts * program.chunks,
        tuple(messages),
        [program.owner(chunk) for chunk in range(program.chunks)] * parts,
        0,
    )
