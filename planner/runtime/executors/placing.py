"""Memory layout of batches, so that cut parameters are contiguous after the sum.

Problem: The pieces of a cut parameter travel in several messages. Each message must be contiguous,
and so should the parameter's mean, to save a copy.
Method: Greedy chaining: a message that ends with a cut parameter is followed by the one that begins
with it. A parameter that would need two successors or a cycle is copied instead.
Guarantee: Each message is contiguous, with each of its pieces once.
Complexity: O(pieces) per chain of messages.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from planner.programs import Batch
from planner.runtime.model.parameters import Elements, by_dtype, elements_of


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
