"""What batches of gradients look like on their way: flat buffers, one for each type of number.

Problem. Gradients of many shapes travel as one message, each divided by the number of ranks, and
their sums have to be found again.

Method. Each part of a gradient has its place in a buffer. Where each parameter's mean will lie is
found out once. Small gradients are copied many at a time, and divided where they then lie; a large
one is divided on its way.

Guarantee. What arrives is the sum over the ranks of each gradient divided by their number, element
by element, as DDP computes it.

Complexity. A step takes O(parts) calls of torch on views, one copy for each run of small parts and
one for each large part. Source. Own.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from planner.programs import Batch
from planner.runtime.executors.collected import Taken
from planner.runtime.model.parameters import Elements, by_dtype, elements_of

__all__ = ["Message", "means_of"]

_RUN = 2**16
"""Elements that are divided at a time, right after they were copied: still in a cache."""


class PlacedElements(NamedTuple):
    """Elements of a gradient, which goes by its number, and where they lie in a message.

    The place has the shape of the parameter if it is for all of its elements.
    """

    number: int
    elements: Elements
    place: Tensor

    def of(self, taken: Taken) -> Tensor:
        """Return these elements of the gradients, which are given by number."""
        entry = taken[self.number]
        assert entry is not None
        gradient = entry[0]
        if gradient.shape == self.place.shape:
            return gradient
        return self.elements.of(gradient)


class Message:
    """What one batch sends: one buffer for each type of number.

    Parameters
    ----------
    batch : Batch
        What it carries.
    parameters : Mapping
        All parameters by name; each has its place in there as its number.
    ranks : int
        How many there are.
    """

    def __init__(self, batch: Batch, parameters: Mapping[str, nn.Parameter], ranks: int) -> None:
        self.depth = batch.depth
        self.buffers: list[Tensor] = []
        self.parts: list[PlacedElements] = []
        self._factor = 1 / ranks
        self._runs: list[tuple[Tensor, list[PlacedElements]]] = []
        number = {name: place for place, name in enumerate(parameters)}
        for dtype, pieces in by_dtype(batch.pieces, parameters).items():
            several = [elements_of(piece, parameters) for piece in pieces]
            flat = torch.empty(sum(map(len, several)), dtype=dtype)
            place, begun, run = 0, 0, list[PlacedElements]()
            for piece, elements in zip(pieces, several, strict=True):
                end = place + len(elements)
                if run and end - begun > _RUN:
                    self._runs.append((flat[begun:place], run))
                    begun, run = place, []
                view = flat[place:end]
                if len(elements) == elements.parameter.numel():
                    view = view.view(elements.parameter.shape)
                run.append(PlacedElements(number[piece.parameter], elements, view))
                self.parts.append(run[-1])
                place = end
            self._runs.append((flat[begun:], run))
            self.buffers.append(flat)
        self.parameters = tuple(
            dict.fromkeys(parameters[piece.parameter] for piece in batch.pieces)
        )

    def pack(self, gradients: Taken) -> None:
        """Copy gradients in, which are given by number, each divided by the number of ranks."""
        with torch.no_grad():
            for place, run in self._runs:
                if len(run) == 1:  # divided on its way: one pass over memory in place of two
                    torch.mul(run[0].of(gradients), self._factor, out=run[0].place)
                    continue
                for part in run:
                    part.place.copy_(part.of(gradients))
                if self._factor != 1:
                    place.mul_(self._factor)


def means_of(
    messages: Iterable[Message], parameters: Iterable[nn.Parameter]
) -> list[Callable[[], Tensor]]:
    """Return for each parameter what gives the mean of its gradients, once it has arrived."""
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
    return lambda: torch.cat(places).view(parameter.shape)
