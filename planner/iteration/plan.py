"""What a plan of a whole iteration is: transfers in order, and how each travels."""

from dataclasses import dataclass
from typing import Literal

from planner.caramel.problem import Part
from planner.iteration.ways import MIXED

__all__ = ["MODES", "How", "Kind", "Mode", "Plan", "Transfer"]


Kind = Literal["all_reduce", "push", "pull"]
"""What a transfer does: sum up on all workers; sum up, each its share; or hand the shares out."""

How = tuple[str, int]
"""An algorithm, and a depth."""

Mode = Literal["replicated", "sharded"]
"""Whether every worker updates all parameters, or each its share of them."""

MODES: tuple[Mode, ...] = ("replicated", "sharded")
"""Every mode by the name requests use."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one transfer carries.

    Attributes
    ----------
    kind : {"all_reduce", "push", "pull"}
        What it does.
    parts : tuple of Part
        At least one, none empty: bytes of gradients, of a pull bytes of parameters.
    not_before_ns : int
        When it may leave at the earliest (systems that look for work at intervals).
    algorithm : str, optional
        How it is synchronised, if not by the algorithm of its plan.
    depth : int
        In how many parts it is sent, each a step behind the one before.
    """

    kind: Kind
    parts: tuple[Part, ...]
    not_before_ns: int = 0
    algorithm: str | None = None
    depth: int = 1

    @property
    def size_bytes(self) -> int:
        """Bytes of the transfer."""
        if len(self.parts) == 1:  # most are, where there are thousands of transfers
            ((_, start, stop),) = self.parts
            return stop - start
        return sum(part.stop - part.start for part in self.parts)


@dataclass(frozen=True, slots=True)
class Plan:
    """Transfers in the order in which they leave, and how they travel.

    Attributes
    ----------
    algorithm : str
        How gradients are synchronised (`planner.iteration.synchronisation`), but for transfers that
        name another algorithm.
    transfers : tuple of Transfer
        In transfer order.
    backward_orders : tuple of tuple of int
        One order of the backward ops if all workers keep to it; else one a worker, and a gradient
        is ready when the last worker has it.
    forward_order : tuple of int
        Order of the forward ops.
    barrier : bool
        Whether the forward pass waits for all transfers.
    late : bool
        As in `planner.caramel.Plan`.
    """

    algorithm: str
    transfers: tuple[Transfer, ...]
    backward_orders: tuple[tuple[int, ...], ...]
    forward_order: tuple[int, ...]
    barrier: bool = False
    late: bool = False

    def how(self, transfer: Transfer) -> How:
        """Return by which algorithm, and at which depth, a transfer of it is synchronised."""
        return transfer.algorithm or self.algorithm, transfer.depth

    @property
    def used(self) -> tuple[How, ...]:
        """Algorithms and depths of its transfers, first what carries most bytes."""
        carried: dict[How, int] = {}
        for transfer in self.transfers:
            how = self.how(transfer)
            carried[how] = carried.get(how, 0) + transfer.size_bytes
        return tuple(sorted(carried, key=lambda how: -carried[how]))

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Every algorithm it uses, its own first."""
        return tuple(dict.fromkeys((self.algorithm, *(name for name, _ in self.used))))

    @property
    def way(self) -> str:
        """What it is an alternative of: its algorithm, or `MIXED`."""
        return self.algorithm if len(self.algorithms) == 1 else MIXED

    @property
    def mode(self) -> Mode:
        """Whether it needs every parameter's state on every worker, or a share of it."""
        whole = all(transfer.kind == "all_reduce" for transfer in self.transfers)
        return "replicated" if whole else "sharded"
