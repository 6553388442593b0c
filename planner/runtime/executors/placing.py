"""Where in memory the pieces of batches lie, so that cut parameters are whole again once summed up.

Problem. The pieces of a cut parameter travel in several messages. Each message has to be one
stretch of memory, and so has the parameter's mean: else it is put together by a copy.

Method. Messages lie one behind the other where a cut parameter ends one and begins the next; what
lies between is whole. Parameters are taken in turn; one that would put a message beside two others,
or in a circle, is left to be copied.

Guarantee. Each message is one stretch, with each of its pieces once. Complexity. O(pieces) for
each chain of messages. Source. Own.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from planner.programs import Batch
from planner.runtime.model.parameters import Elements, by_dtype, elements_of

__all__ = ["Stretch", "lay_out"]


class Stretch:
    """What one batch has of one type of numbers.

    Attributes
    ----------
    pieces : list of (str, Elements)
        Names of parameters, and which elements; in the order in which they lie there.
    flat : Tensor
        The memory.
    """

    def __init__(self, pieces: list[tuple[str, Elements]]) -> None:
        self.pieces = pieces
        self.flat = torch.empty(0)
        self.next: Stretch | None = None
        self.first: str | None = None
        """The cut parameter that it begins with."""
        self.last: str | None = None

    def __len__(self) -> int:
        return sum(len(elements) for _, elements in self.pieces)

    def may_link(self, name: str, behind: "Stretch") -> bool:
        """Tell whether another one may come next, with some of a parameter on both sides."""
        if self.last is not None or behind.first is not None:
            return False
        for stretch, other in ((self, self.first), (behind, behind.last)):
            if len(stretch.pieces) > 1 and other == name:
                return False  # it would be at both ends, with others between
        end: Stretch | None = behind
        while end is not None and end is not self:
            end = end.next
        return end is None

    def link(self, name: str, behind: "Stretch") -> None:
        """Let another one come next."""
        self.next, self.last, behind.first = behind, name, name

    def unlink(self) -> None:
        """Take that back."""
        assert self.next is not None
        self.next.first = self.next = self.last = None

    def sort(self) -> None:
        """Put what is cut to the ends."""
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
    """Put stretches one behind the other, or leave them as they are."""
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
