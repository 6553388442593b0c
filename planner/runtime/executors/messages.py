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
from typing import NamedTuple

import torch
from torch import Tensor, nn

from planner.programs import Batch
from planner.runtime.collectives.ring import AllReduce, QueuedRing
from planner.runtime.executors.collected import Taken
from planner.runtime.executors.placing import Stretch, lay_out
from planner.runtime.model.parameters import Elements

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
