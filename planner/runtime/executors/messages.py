"""What batches of gradients look like on their way: flat buffers, one for each type of number.

Problem. Gradients of many shapes travel as one message, each divided by the number of ranks, and
their sums have to be found again.

Method. Each part of a gradient has its place in a buffer (`placing`). Where each parameter's mean
will lie is found out once. Small gradients are copied many at a time, and divided where they then
lie; a large one is divided on its way.

Guarantee. What arrives is the sum over the ranks of each gradient divided by their number, element
by element, as DDP computes it.

Complexity. A step takes O(parts) views, and one call of torch for each run of small parts and for
each large part; another copy only of cut parameters whose parts do not lie together. Source. Own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from planner.programs import Batch
from planner.runtime.collectives.ring import AllReduce, QueuedRing
from planner.runtime.executors.collected import Taken
from planner.runtime.executors.placing import Stretch, lay_out
from planner.runtime.model.parameters import Elements

__all__ = ["Message", "Sending", "means_of", "messages_of"]

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
    depth : int
        In how many parts it is sent.
    stretches : iterable of Stretch
        What it carries, and where.
    parameters : Mapping
        All parameters by name; each has its place in there as its number.
    ranks : int
        How many there are.
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
        """Copy gradients in, which are given by number, each divided by the number of ranks."""
        with torch.no_grad():
            for place, run in self._runs:
                if len(run) == 1:  # divided on its way: one pass over memory in place of two
                    torch.mul(run[0].of(gradients), self._factor, out=run[0].place)
                    continue
                torch._foreach_copy_(
                    [part.place for part in run], [part.of(gradients) for part in run]
                )
                if self._factor != 1:
                    place.mul_(self._factor)


class Sending:
    """One batch of one step on its way.

    Its gradients are copied when it begins, and let go.
    """

    def __init__(self, message: Message, all_reduce: AllReduce, gradients: Taken) -> None:
        self._message = message
        self._all_reduce = all_reduce
        self._gradients: Taken | None = gradients
        self._waits: list[Callable[[], object]] = []

    def begin(self) -> None:
        """Put it into gloo's queue."""
        assert isinstance(self._all_reduce, QueuedRing)
        for flat in self._packed():
            self._waits.append(self._all_reduce.begin(flat))

    def work(self) -> None:
        """Sum it up, or wait until it is."""
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
    """Return what batches send."""
    return [
        Message(batch.depth, stretches, parameters, ranks)
        for batch, stretches in zip(batches, lay_out(batches, parameters), strict=True)
    ]


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
    ends = [place.data_ptr() + place.nbytes for place in places]
    if ends[:-1] == [place.data_ptr() for place in places[1:]]:
        mean = places[0].as_strided((parameter.numel(),), (1,)).view(parameter.shape)
        return lambda: mean
    return lambda: torch.cat(places).view(parameter.shape)
