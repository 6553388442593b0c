"""The plan of a whole iteration: transfers in order, and the algorithm of each."""

from dataclasses import dataclass
from typing import Literal

from planner.families.iteration.ways import MIXED
from planner.solving.transfers import Transfer

How = tuple[str, int]
"""An algorithm, and a depth."""

Mode = Literal["replicated", "sharded"]
"""Whether every worker updates all parameters, or its share of them."""

MODES: tuple[Mode, ...] = ("replicated", "sharded")
"""Every mode by the name requests use."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Transfers in the order in which they leave, and their algorithms.

    Attributes
    ----------
    algorithm : str
        Synchronisation algorithm (`planner.families.iteration.synchronisation`) of all transfers
        that name no other.
    transfers : tuple of Transfer
        In transfer order.
    backward_orders : tuple of tuple of int
        One order of the backward ops if all workers keep to it, else one per worker; a gradient is
        ready when the last worker has it.
    forward_order : tuple of int
        Order of the forward ops.
    barrier : bool
        Whether the forward pass waits for all transfers.
    late : bool
        Delayed release, as in `planner.caramel.Plan`.
    """

    algorithm: str
    transfers: tuple[Transfer, ...]
    backward_orders: tuple[tuple[int, ...], ...]
    forward_order: tuple[int, ...]
    barrier: bool = False
    late: bool = False

    def how(self, transfer: Transfer) -> How:
        """Return the algorithm and the depth of one of the plan's transfers."""
        return transfer.algorithm or self.algorithm, transfer.depth

    @property
    def used(self) -> tuple[How, ...]:
        """Algorithms and depths of the transfers, the one that carries most bytes first."""
        carried: dict[How, int] = {}
        for transfer in self.transfers:
            how = self.how(transfer)
            carried[how] = carried.get(how, 0) + transfer.size_bytes
        return tuple(sorted(carried, key=lambda how: -carried[how]))

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Every algorithm of the plan, its own first."""
        return tuple(dict.fromkeys((self.algorithm, *(name for name, _ in self.used))))

    @property
    def way(self) -> str:
        """Name of the alternative that the plan belongs to: its algorithm, or `MIXED`."""
        return self.algorithm if len(self.algorithms) == 1 else MIXED

    @property
    def mode(self) -> Mode:
        """Whether every worker keeps the whole state of each parameter, or its share."""
        whole = all(transfer.kind == "all_reduce" for transfer in self.transfers)
        return "replicated" if whole else "sharded"
