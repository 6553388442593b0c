"""Messages of gradient batches: flat buffers, one per data type.

Method: Each part of a gradient has a fixed place in a buffer (`placing`). Small gradients are
copied many at a time and then divided by the number of ranks in place; large ones are divided while
copied.
Guarantee: The result is the sum of each gradient divided by the number of ranks, as DDP computes
it.
Complexity: O(parts) views per step, and one torch call per run of small parts and per large part.
Cut parameters whose parts are not adjacent take another copy.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from planner.programs import Batch
from planner.runtime.collectives.ring import AllReduce, QueuedRing
from planner.runtime.executors.collected import Taken
from planner.runtime.model.parameters import Elements, by_dtype, elements_of

# ---
# Memory layout of batches, so that cut parameters are contiguous after the sum.
#
# Problem: The pieces of a cut parameter travel in several messages. Each message must be
# contiguous, and so should the parameter's mean, to save a copy. Method: Greedy chaining: a message
# that ends with a cut parameter is followed by the one that begins with it. A parameter that would
# need two successors or a cycle is copied instead. Guarantee: Each message is contiguous, with each
# of its pieces once. Complexity: O(pieces) per chain of messages.


class Stretch:
    """The part of a batch in one data type: contiguous memory `flat` with pieces in order."""

    def __init__(self, pieces: list[tuple[str, Elements]]) -> None:
        self.pieces = pieces
        self.flat = torch.empty(0)
        self.next: Stretch | None = None
        self.first: str | None = None
        """The cut parameter it begins with, which ends the previous stretch."""
        self.last: str | None = None

    def __len__(self) -> int:
        return sum(len(elements) for _, elements in self.pieces)

    def may_link(self, name: str, behind: "Stretch") -> bool:
        """Return whether `behind` may follow, with pieces of a parameter on both sides."""
        if self.last is not None or behind.first is not None:
            return False
        for stretch, other in ((self, self.first), (behind, behind.last)):
            if len(stretch.pieces) > 1 and other == name:
                return False  # the parameter would be at both ends, with others between
        end: Stretch | None = behind
        while end is not None and end is not self:
            end = end.next
        return end is None

    def link(self, name: str, behind: "Stretch") -> None:
        """Let another stretch follow."""
        self.next, self.last, behind.first = behind, name, name

    def unlink(self) -> None:
        """Undo `link`."""
        assert self.next is not None
        self.next.first = self.next = self.last = None

    def sort(self) -> None:
        """Move the pieces of cut parameters to the ends."""
        if len(self.pieces) > 1:
            self.pieces.sort(key=lambda piece: (piece[0] == self.last) - (piece[0] == self.first))


def lay_out(
    batches: Sequence[Batch], parameters: Mapping[str, nn.Parameter]
) -> list[list[Stretch]]:
    """Return the stretches of each batch, with their memory."""
    by_batch: list[list[Stretch]] = []
    parts: dict[str, list[tuple[int, Stretch]]] = {}
    for batch in batches:
        by_batch.append([])
        for pieces in by_dtype(batch.pieces, parameters).values():
            stretch = Stretch(
                [(piece.parameter, elements_of(piece, parameters)) for piece in pieces]
            )
            by_batch[-1].append(stretch)
            for name, elements in stretch.pieces:
                parts.setdefault(name, []).append((elements.start, stretch))
    for name, several in parts.items():
        chain = [stretch for _, stretch in sorted(several, key=lambda part: part[0])]
        if len(set(chain)) == len(chain):
            _link(name, chain)
    every = [stretch for stretches in by_batch for stretch in stretches]
    for stretch in every:
        stretch.sort()
    for stretch in every:
        if stretch.first is None:
            _give_memory(stretch)
    return by_batch


def _link(name: str, chain: Sequence[Stretch]) -> None:
    """Chain the stretches of a parameter, or leave them unchained if that is impossible."""
    linked: list[Stretch] = []
    for stretch, behind in pairwise(chain):
        if not stretch.may_link(name, behind):
            for before in linked:
                before.unlink()
            return
        stretch.link(name, behind)
        linked.append(stretch)


def _give_memory(first: Stretch) -> None:
    chain = [first]
    while (behind := chain[-1].next) is not None:
        chain.append(behind)
    dtype = first.pieces[0][1].parameter.dtype
    flat: Tensor = torch.empty(sum(map(len, chain)), dtype=dtype)
    for stretch, part in zip(chain, flat.split([len(link) for link in chain]), strict=True):
        stretch.flat = part


_RUN = 2**16
"""Elements divided at a time, right after copying, while they are still in a cache."""


class PlacedElements(NamedTuple):
    """Elements of a gradient (by parameter number), and their place in a message.

    The place has the shape of the parameter if it holds all of its elements.
    """

    number: int
    elements: Elements
    place: Tensor

    def of(self, taken: Taken) -> Tensor:
        """Return these elements of the gradients."""
        entry = taken[self.number]
        assert entry is not None
        gradient = entry[0]
        if gradient.shape == self.place.shape:
            return gradient
        return self.elements.of(gradient)


class Message:
    """The buffers of one batch, one per data type, and the gradient parts they hold.

    `depth` is the number of chunks in flight; `parameters` gives each parameter its number.
    """

    def __init__(
        self,
        depth: int,
        stretches: Iterable[Stretch],
        parameters: Mapping[str, nn.Parameter],
        ranks: int,
    ) -> None:
        self.depth = depth
        self.buffers: list[Tensor] = []
        self.parts: list[PlacedElements] = []
        self._factor = 1 / ranks
        self._runs: list[tuple[Tensor, list[PlacedElements]]] = []
        number = {name: place for place, name in enumerate(parameters)}
        for stretch in stretches:
            flat = stretch.flat
            place, begun, run = 0, 0, list[PlacedElements]()
            for name, elements in stretch.pieces:
                end = place + len(elements)
                if run and end - begun > _RUN:
                    self._runs.append((flat[begun:place], run))
                    begun, run = place, []
                view = flat[place:end]
                if len(elements) == elements.parameter.numel():
                    view = view.view(elements.parameter.shape)
                run.append(PlacedElements(number[name], elements, view))
                self.parts.append(run[-1])
                place = end
            self._runs.append((flat[begun:], run))
            self.buffers.append(flat)
        self.size = sum(flat.nbytes for flat in self.buffers)
        self.parameters = tuple(dict.fromkeys(part.elements.parameter for part in self.parts))

    def pack(self, gradients: Taken) -> None:
        """Copy the gradients in, each divided by the number of ranks."""
        with torch.no_grad():
            for place, run in self._runs:
                if len(run) == 1:  # divided while copied: one pass over memory in place of two
                    torch.mul(run[0].of(gradients), self._factor, out=run[0].place)
                    continue
                torch._foreach_copy_(
                    [part.place for part in run], [part.of(gradients) for part in run]
                )
                if self._factor != 1:
                    place.mul_(self._factor)


class Sending:
    """The transfer of one batch in one step; it copies the gradients when it begins."""

    def __init__(self, message: Message, all_reduce: AllReduce, gradients: Taken) -> None:
        self._message = message
        self._all_reduce = all_reduce
        self._gradients: Taken | None = gradients
        self._waits: list[Callable[[], object]] = []

    def begin(self) -> None:
        """Put the messages into gloo's queue."""
        assert isinstance(self._all_reduce, QueuedRing)
        for flat in self._packed():
            self._waits.append(self._all_reduce.begin(flat))

    def work(self) -> None:
        """Sum the messages, or wait for the queued ones."""
        if self._gradients is not None:
            for flat in self._packed():
                self._all_reduce(flat, self._message.depth)
        for wait in self._waits:
            wait()

    def _packed(self) -> list[Tensor]:
        gradients, self._gradients = self._gradients, None
        assert gradients is not None
        self._message.pack(gradients)
        return self._message.buffers


def messages_of(
    batches: Sequence[Batch], parameters: Mapping[str, nn.Parameter], ranks: int
) -> list[Message]:
    """Return the message of each batch."""
    return [
        Message(batch.depth, stretches, parameters, ranks)
        for batch, stretches in zip(batches, lay_out(batches, parameters), strict=True)
    ]


def means_of(
    messages: Iterable[Message], parameters: Iterable[nn.Parameter]
) -> list[Callable[[], Tensor]]:
    """Return for each parameter a function that returns its mean gradient, once it has arrived."""
    parts: dict[int, list[PlacedElements]] = {}
    for message in messages:
        for part in message.parts:
            parts.setdefault(part.number, []).append(part)
    return [
        _mean(parameter, sorted(parts[number], key=lambda part: part.elements.start))
        for number, parameter in enumerate(parameters)
    ]


def _mean(parameter: nn.Parameter, parts: list[PlacedElements]) -> Callable[[], Tensor]:
    if len(parts) == 1:
        (part,) = parts
        return lambda: part.place
    places = [part.place for part in parts]
    ends = [place.data_ptr() + place.nbytes for place in places]
    if ends[:-1] == [place.data_ptr() for place in places[1:]]:
        mean = places[0].as_strided((parameter.numel(),), (1,)).view(parameter.shape)
        return lambda: mean
    return lambda: torch.cat(places).view(parameter.shape)
