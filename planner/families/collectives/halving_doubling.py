"""Recursive halving and doubling: in step i, servers that differ in bit i exchange half of a range.

log2 N steps leave every server with the sum of 1/N of the gradient; log2 N more hand it back. If N
is no power of two, let p be the largest below it: the N - p folded servers first send their whole
gradient to a partner and get the sum back at the end, so they own no share between the halves (with
`bruck` all do). On BCube(n, k), n a power of two, partners are neighbours and one NIC is in use.

Guarantee: volume 2(N-1)/N, the lower bound for one NIC, in 2·log2 N steps at powers of two. Else
2(p-1)/p + 2 in 2·log2 p + 2 steps, and a partner adds one whole gradient more.
Complexity: O(1) for the cost, O(log N) for the program. Source: Rabenseifner, "Optimization of
Collective Reduction Operations", ICCS 2004; Thakur, Rabenseifner and Gropp, "Optimization of
Collective Communication Operations in MPICH", 2005.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

from planner.families.collectives.cost import Collective, Fabric, on_bcube, on_fabric
from planner.families.collectives.layout import Layout
from planner.families.collectives.program import Kind, Message, Program
from planner.families.collectives.staged import staged
from planner.families.collectives.symmetric import SymmetricProgram
from planner.model.errors import NotApplicableError
from planner.model.network import scattered
from planner.model.topologies import BCube


def halving_doubling_bcube(bcube: BCube) -> Collective:
    """Return the cost on a BCube; a `NotApplicableError` if n is no power of two."""
    if bcube.n & (bcube.n - 1):
        raise NotApplicableError(
            "n",
            "halving_doubling on a BCube needs partners that are neighbours: n must be a power of "
            f"two, got {bcube.n}",
        )
    return on_bcube("halving_doubling", bcube, *_cost(bcube.servers))


def halving_doubling_fattree(fabric: Fabric) -> Collective:
    """Return the cost on a Fat-Tree."""
    return on_fabric("halving_doubling", fabric, *_cost(fabric.servers))


def halving_doubling_program(ranks: int) -> Program:
    """Return the program for any number of ranks."""
    bits = ranks.bit_length() - 1
    core = staged(f"halving_doubling({ranks})", (2,) * bits, [range(bits)])
    return core if ranks == 1 << bits else FoldedProgram(core, ranks)


def halving_doubling_bcube_program(bcube: BCube) -> SymmetricProgram:
    """Return the program on a BCube, bit by bit; a `NotApplicableError` if n is no power of two."""
    halving_doubling_bcube(bcube)  # raises if it does not apply
    bits = (bcube.n.bit_length() - 1) * bcube.k
    name = f"halving_doubling_bcube({bcube.n}, {bcube.k})"
    return staged(name, (2,) * bits, [range(bits)], links=bcube.k, wire=bcube.wire)


@dataclass(frozen=True)
class FoldedProgram(Program):
    """A program of p core ranks for up to 2p ranks: rank p + i is folded into its partner, rank i.

    `core` is an all-reduce of one lane, or one of its halves.
    """

    core: SymmetricProgram
    ranks: int
    lanes: int = 1
    links: int = 1

    @property
    def name(self) -> str:  # type: ignore[override]  # derived from the core, like the next ones
        """The name of the core program."""
        return self.core.name

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """The collective of the core program."""
        return self.core.kind

    @property
    def chunks(self) -> int:  # type: ignore[override]
        """The number of chunks: one per core rank."""
        return self.core.chunks

    @property
    def steps(self) -> int:  # type: ignore[override]
        """The number of steps: those of the core, a fold before and an unfold behind them."""
        return self.core.steps + 2

    @property
    def scatter_steps(self) -> int:  # type: ignore[override]
        """The number of steps that sum up: the fold and those of the core."""
        return self.core.scatter_steps + 1

    def layout(self, elements: int, element_bytes: int = 1) -> Layout:
        """Return the layout of the chunks."""
        return self.core.layout(elements, element_bytes)

    def owner(self, chunk: int) -> int:
        """Return the core rank that a chunk is summed up on."""
        return self.core.owner(chunk)

    def half(self, kind: Kind) -> Self:
        """Return one half of the all-reduce; folded ranks own nothing after the reduce-scatter."""
        return replace(self, core=self.core.half(kind))

    def _of(self, rank: int, *, sent: bool) -> Iterator[Message]:
        size = self.core.ranks
        low, high = rank % size, rank % size + size
        folded = high < self.ranks
        if folded and self.kind != "all_gather" and sent == (rank >= size):
            yield Message(0, 0, high, low, 0, 0, self.chunks, adds=True)
        if rank < size:
            inner = self.core.sends(rank) if sent else self.core.receives(rank)
            for message in inner:
                yield message._replace(step=message.step + 1)
        if folded and self.kind != "reduce_scatter" and sent == (rank < size):
            yield Message(self.steps - 1, 0, low, high, 0, 0, self.chunks, adds=False)


def _cost(servers: int) -> tuple[int, Fraction, Fraction]:
    """Return the steps, the volume, and the share that the busiest server adds."""
    levels = servers.bit_length() - 1
    core = scattered(1 << levels)
    fold = int(servers != 1 << levels)
    return 2 * levels + 2 * fold, 2 * core + 2 * fold, core + fold
