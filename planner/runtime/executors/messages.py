"""Messages of gradient batches: flat buffers, one per data type.

Method: Each part of a gradient has a fixed place in a buffer. Small gradients are copied many at a
time and then divided by the number of ranks in place; large ones are divided while copied. The
result is that of DDP.
Complexity: O(parts) views per step, and one torch call per run of small parts and per large part.
The mean of a cut parameter takes another copy.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from planner.programs import Batch
from planner.runtime.collectives.ring import AllReduce, QueuedRing
from planner.runtime.executors.channel import Ticket
from planner.runtime.model.parameters import Elements, by_dtype, elements_of

Taken = list[tuple[Tensor, int] | None]
"""Gradients with their versions, by parameter number; None until a gradient is complete."""


def version(tensor: Tensor) -> int:
    """Return the version number of a tensor, which every change in place increments."""
    return tensor._version  # documented in torch's notes on autograd


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
    """The buffers of one batch, one per data type, and the gradient parts they hold."""

    def __init__(self, batch: Batch, parameters: Mapping[str, nn.Parameter], ranks: int) -> None:
        self.depth = batch.depth
        self.buffers: list[Tensor] = []
        self.parts: list[PlacedElements] = []
        self._factor = 1 / ranks
        self._runs: list[tuple[Tensor, list[PlacedElements]]] = []
        number = {name: place for place, name in enumerate(parameters)}
        for dtype, pieces in by_dtype(batch.pieces, parameters).items():
            sent = [(number[piece.parameter], elements_of(piece, parameters)) for piece in pieces]
            flat: Tensor = torch.empty(sum(len(elements) for _, elements in sent), dtype=dtype)
            place, begun, run = 0, 0, list[PlacedElements]()
            for parameter, elements in sent:
                end = place + len(elements)
                if run and end - begun > _RUN:
                    self._runs.append((flat[begun:place], run))
                    begun, run = place, []
                view = flat[place:end]
                if len(elements) == elements.parameter.numel():
                    view = view.view(elements.parameter.shape)
                run.append(PlacedElements(parameter, elements, view))
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

    def begin() -> None:
        message.pack(taken.pop())
        if isinstance(all_reduce, QueuedRing):
            waits.extend(map(all_reduce.begin, message.buffers))

    def work() -> None:
        if not isinstance(all_reduce, QueuedRing):
            begin()
            for flat in message.buffers:
                all_reduce(flat, message.depth)
        for wait in waits:
            wait()

    queued = begin if isinstance(all_reduce, QueuedRing) else None
    return Ticket(work, step, batch, begin=queued, ready=ready)


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
    if len(places) == 1:
        return lambda: places[0]
    return lambda: torch.cat(places).view(parameter.shape)
