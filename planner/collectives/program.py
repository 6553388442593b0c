"""Collective programs: who sends which chunk to whom in which step, as plain data.

A collective is cut into chunks. In each step ranks send ranges of chunks to each other, all at
once: what is sent is what was there before the step. The receiver adds what arrives to what it has,
or keeps it instead. That is all an executor needs, all a checker looks at, and all a price depends
on; every algorithm of this package is generated in this one form.

An all-reduce has two halves: in the steps of the first (`scatter_steps`) each chunk is summed up on
its owner, in those of the second the sums are handed out.

Source. The form is that of MSCCL's programs (Cowan et al., "MSCCLang", ASPLOS 2023) without thread
blocks: steps and lanes stand for them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, Self

from planner.collectives.layout import EvenLayout, Layout

__all__ = ["KINDS", "OWN", "Kind", "ListedProgram", "Message", "Program"]

Kind = Literal["all_reduce", "reduce_scatter", "all_gather"]
KINDS: tuple[Kind, ...] = ("all_reduce", "reduce_scatter", "all_gather")

OWN = -1
"""The buffer that is summed up in place; others are numbered from 0, and only pass things on."""


class Message(NamedTuple):
    """One rank sends a range of chunks to another.

    Attributes
    ----------
    step : int
        When; messages of a step are under way at once.
    lane : int
        Which lane of the sender: chunks of a lane are no other lane's, so that lanes need not keep
        pace with each other.
    sender, receiver : int
        The ranks.
    link : int
        The NIC that both use, from 0.
    first, stop : int
        The chunks first … stop-1.
    adds : bool
        Whether the receiver adds them to what it has, or keeps them instead.
    source, target : int
        The buffers of the sender and of the receiver; `OWN` but on the way through a third rank.
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
        How many ranks N, lanes of a rank, and NICs of a rank.
    chunks : int
        Into how many chunks the data is cut.
    steps, scatter_steps : int
        Steps of the all-reduce, and how many of them sum up.
    exclusive : bool
        Whether no link carries two messages to one rank in a step.
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
    exclusive: bool = True
    even: bool = True

    @abstractmethod
    def sends(self, rank: int) -> Iterator[Message]:
        """Yield what a rank sends, in the order of steps."""

    @abstractmethod
    def receives(self, rank: int) -> Iterator[Message]:
        """Yield what a rank receives, in the order of steps."""

    @abstractmethod
    def owner(self, chunk: int) -> int:
        """Return the rank that a chunk is summed up on."""

    @abstractmethod
    def half(self, kind: Kind) -> "Program":
        """Return a half of an all-reduce."""

    def layout(self, elements: int, element_bytes: int = 1) -> Layout:
        """Return where the chunks of so many elements start: they share them evenly."""
        return EvenLayout(1, self.chunks, (), elements, element_bytes)

    def messages(self) -> Iterator[Message]:
        """Yield what all ranks send."""
        for rank in range(self.ranks):
            yield from self.sends(rank)

    def _is_of_kind(self, step: int) -> bool:
        """Whether a step belongs to what this program does."""
        return self.kind == "all_reduce" or (step < self.scatter_steps) == (
            self.kind == "reduce_scatter"
        )


@dataclass(frozen=True)
class ListedProgram(Program):
    """A program that is given message by message.

    Parameters
    ----------
    name : str
        What it is.
    ranks, lanes, links, chunks : int
        As in `Program`.
    listed : tuple of Message
        All messages of an all-reduce, in any order.
    owners : sequence of int
        The rank that each chunk is summed up on.
    scatter_steps : int
        How many steps sum up.
    kind : str
        What of it is done.
    placed : callable, optional
        Returns where chunks start, for so many elements of so many bytes; else they are even.
    exclusive : bool
        Whether no link may carry two messages to one rank in a step.
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
    exclusive: bool = False

    @property
    def even(self) -> bool:  # type: ignore[override]  # worked out, not given
        """Whether chunks share the data evenly."""
        return self.placed is None

    @cached_property
    def steps(self) -> int:  # type: ignore[override]
        """How many steps there are."""
        return max((message.step + 1 for message in self.listed), default=0)

    @cached_property
    def _by_rank(self) -> tuple[list[list[Message]], list[list[Message]]]:
        sent: list[list[Message]] = [[] for _ in range(self.ranks)]
        received: list[list[Message]] = [[] for _ in range(self.ranks)]
        for message in self.messages():
            sent[message.sender].append(message)
            received[message.receiver].append(message)
        return sent, received

    def messages(self) -> Iterator[Message]:
        """Yield what all ranks send, step after step, whoever they are."""
        return (message for message in sorted(self.listed) if self._is_of_kind(message.step))

    def sends(self, rank: int) -> Iterator[Message]:
        """Yield what a rank sends, in the order of steps."""
        return iter(self._by_rank[0][rank])

    def receives(self, rank: int) -> Iterator[Message]:
        """Yield what a rank receives, in the order of steps."""
        return iter(self._by_rank[1][rank])

    def owner(self, chunk: int) -> int:
        """Return the rank that a chunk is summed up on."""
        return self.owners[chunk]

    def half(self, kind: Kind) -> Self:
        """Return a half of an all-reduce."""
        return replace(self, kind=kind)

    def layout(self, elements: int, element_bytes: int = 1) -> Layout:
        """Return where the chunks of so many elements start."""
        if self.placed is None:
            return super().layout(elements, element_bytes)
        return self.placed(elements, element_bytes)
