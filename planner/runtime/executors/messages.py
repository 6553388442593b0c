"""Messages of gradient batches: flat buffers, one per data type.

Method: Each part of a gradient has a fixed place in a buffer (`lay_out`). Small gradients are
copied many at a time and then divided by the number of ranks in place; large ones are divided while
copied. The result is that of DDP.
Complexity: O(parts) views per step, and one torch call per run of small parts and per large part.
Cut parameters whose parts are not adjacent take another copy.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from planner.programs import Batch
from planner.runtime.collectives.ring import AllReduce, Ring
from planner.runtime.executors.channel import Ticket
from planner.runtime.model.parameters import Elements, by_dtype, elements_of

Taken = list[tuple[Tensor, int] | None]
"""Gradients with their versions, by parameter number; None until a gradient is complete."""


def version(tensor: Tensor) -> int:
    """Return the version number of a tensor, which every change in place increments."""
    return tensor._version  # documented in torch's notes on autograd


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

    def __len__(self) -> int:
        return sum(len(elements) for _, elements in self.pieces)


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
    chains = {stretch: [stretch] for stretches in by_batch for stretch in stretches}
    for name, several in parts.items():
        _link(name, [stretch for _, stretch in sorted(several, key=lambda part: part[0])], chains)
    for stretch, chain in chains.items():
        if stretch is chain[0]:
            dtype = stretch.pieces[0][1].parameter.dtype
            flat: Tensor = torch.empty(sum(map(len, chain)), dtype=dtype)
            for link, part in zip(chain, flat.split([len(link) for link in chain]), strict=True):
                link.flat = part
    return by_batch


def _link(name: str, row: Sequence[Stretch], chains: dict[Stretch, list[Stretch]]) -> None:
    """Join the chains of a parameter's stretches where that is possible."""
    joined = [chains[stretch] for stretch in row]
    first, last = row[0], row[-1]
    if (
        len({id(chain) for chain in joined}) < max(len(joined), 2)  # a cycle, or uncut
        or joined[0][-1] is not first
        or joined[-1][0] is not last
        or any(len(chains[stretch]) + len(stretch.pieces) > 2 for stretch in row[1:-1])
    ):
        return
    first.pieces.sort(key=lambda piece: piece[0] == name)  # to the end
    last.pieces.sort(key=lambda piece: piece[0] != name)  # to the beginning
    whole = [stretch for chain in joined for stretch in chain]
    chains.update(dict.fromkeys(whole, whole))


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
        self._runs: list[list[tuple[Tensor, list[PlacedElements]]]] = []  # of each buffer
        number = {name: place for place, name in enumerate(parameters)}
        for stretch in stretches:
            flat = stretch.flat
            place, begun, run = 0, 0, list[PlacedElements]()
            self._runs.append([])
            for name, elements in stretch.pieces:
                end = place + len(elements)
                if run and end - begun > _RUN:
                    self._runs[-1].append((flat[begun:place], run))
                    begun, run = place, []
                view = flat[place:end]
                if len(elements) == elements.parameter.numel():
                    view = view.view(elements.parameter.shape)
                run.append(PlacedElements(number[name], elements, view))
                self.parts.append(run[-1])
                place = end
            self._runs[-1].append((flat[begun:], run))
            self.buffers.append(flat)
        self.size = sum(flat.nbytes for flat in self.buffers)
        self.parameters = tuple(dict.fromkeys(part.elements.parameter for part in self.parts))

    def packing(self, gradients: Taken) -> Iterator[tuple[Tensor, Iterator[int]]]:
        """Yield each buffer, and an iterator that fills it and yields how many elements are there.

        Gradients are copied, each divided by the number of ranks. Call it under `torch.no_grad`.
        """
        for flat, runs in zip(self.buffers, self._runs, strict=True):
            yield flat, self._copying(runs, gradients)

    def _copying(
        self, runs: Sequence[tuple[Tensor, list[PlacedElements]]], gradients: Taken
    ) -> Iterator[int]:
        filled = 0
        for place, run in runs:
            if len(run) == 1:  # divided while copied: one pass over memory in place of two
                torch.mul(run[0].of(gradients), self._factor, out=run[0].place)
            else:
                torch._foreach_copy_(
                    [part.place for part in run], [part.of(gradients) for part in run]
                )
                if self._factor != 1:
                    place.mul_(self._factor)
            filled += place.numel()
            yield filled


def sent(
    message: Message,
    all_reduce: AllReduce,
    gradients: Taken,
    step: int,
    batch: int,
    *,
    ready: bool,
) -> Ticket:
    """Return the transfer of a batch in a step; it copies the gradients when it begins."""
    taken, waits = [gradients], list[Callable[[], object]]()
    # A subclass of the ring may do anything when called.
    queue = all_reduce if type(all_reduce) is Ring and message.depth == 1 else None

    def begin() -> None:
        with torch.no_grad():
            for flat, filling in message.packing(taken.pop()):
                if queue is not None:
                    waits.append(queue.begin(flat, filling))
                    continue
                deque(filling, maxlen=0)
                all_reduce(flat, message.depth)

    def work() -> None:
        if queue is None:
            begin()
        for wait in waits:
            wait()

    return Ticket(work, step, batch, begin=None if queue is None else begin, ready=ready)


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
    places = [part.place for part in parts]
    ends = [place.data_ptr() + place.nbytes for place in places]
    if ends[:-1] == [place.data_ptr() for place in places[1:]]:
        mean = places[0].as_strided((parameter.numel(),), (1,)).view(parameter.shape)
        return lambda: mean
    return lambda: torch.cat(places).view(parameter.shape)
