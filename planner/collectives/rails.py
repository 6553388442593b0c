"""All-reduce on hosts with several accelerators, a NIC and a rail for each.

Problem: what does a half of an all-reduce, summing up or handing out, cost on h hosts of g
accelerators, N = h·g, when links within hosts and NICs between them differ?

Method: every algorithm is a sequence of hops, each some steps over links or NICs.

- `hierarchical`: accelerators of a host exchange 1/g each directly, those of a rail 1/h of that.
- `halving_doubling`: the same with log2 g and log2 h steps instead of one and one.
- `ring`: g rings through all accelerators, each with 1/g of the gradient, each leaving a host by a
  NIC of its own. In every one of the N-1 steps some hop crosses hosts, so NICs pace it; links carry
  the (g-1)/g that stay within hosts, at the same time. Rings keep to their rails, but for two
  accelerators on an odd number of hosts: there each ring ends with a hop from rail to rail.
- `ps`, `shuffle`: all exchange directly, also from rail to rail; N-g of the N-1 partners are on
  other hosts.

Guarantee: `hierarchical` and `halving_doubling` send (h-1)/(g·h) of the gradient over each NIC, the
lower bound for a host of g NICs; `ring` sends (N-1)/(g·N), little more; `ps` g times the bound
and almost that.

Complexity: O(1) for the costs.

Source: rings through all NICs as NCCL builds them; "PXN" and rail-optimised networks as NVIDIA's
documentation of NCCL and of DGX pods describes them. The direct exchanges within groups: Wang et
al., "BML", NeurIPS 2018, section 3.3.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from planner.collectives.program import Program
from planner.collectives.ring import ring_program
from planner.collectives.staged import staged
from planner.errors import NotApplicableError
from planner.network import scattered
from planner.topologies import Rails

__all__ = ["RAILS", "RAIL_PROGRAMS", "RailSteps"]


class RailSteps(NamedTuple):
    """A number of steps, and what the busiest link and NIC carry in them at once.

    Attributes
    ----------
    steps : int
        Steps; each waits for a NIC if `nic` is above 0, else for a link.
    further : int
        Messages that one accelerator sends in them beside the first of each step; of steps that
        wait for a NIC, those it sends by its NIC.
    link, nic : Fraction
        Bytes over the busiest link and NIC, summed over the steps, as shares of the gradient.
    """

    steps: int
    further: int
    link: Fraction
    nic: Fraction


def _hierarchical(rails: Rails) -> tuple[RailSteps, ...]:
    none = Fraction(0)
    inside = RailSteps(1, max(rails.accelerators - 2, 0), scattered(rails.accelerators), none)
    each = scattered(rails.hosts) / rails.accelerators
    across = RailSteps(1, max(rails.hosts - 2, 0), none, each)
    return tuple(hop for hop in (inside, across) if hop.link or hop.nic)


def _halving_doubling(rails: Rails) -> tuple[RailSteps, ...]:
    for name in ("hosts", "accelerators"):
        count = getattr(rails, name)
        if count & (count - 1):
            raise NotApplicableError(
                name, f"halving_doubling on rails needs powers of two, got {count}"
            )
    none = Fraction(0)
    inside = [RailSteps(1, 0, share, none) for share in _halves(rails.accelerators)]
    across = [RailSteps(1, 0, none, share / rails.accelerators) for share in _halves(rails.hosts)]
    return (*inside, *across)


def _halves(count: int) -> list[Fraction]:
    """Return what each step of halving sends among so many, a power of two."""
    return [Fraction(1, 2**step) for step in range(1, count.bit_length())]


def _ring(rails: Rails) -> tuple[RailSteps, ...]:
    each = scattered(rails.servers) / rails.accelerators  # of a ring, over each of its hops
    crosses = each if rails.hosts > 1 else Fraction(0)
    inside = each * (rails.accelerators - 1) if crosses else each * rails.accelerators
    return (RailSteps(rails.servers - 1, 0, inside, crosses),)


def _direct(rails: Rails) -> tuple[RailSteps, ...]:
    far = Fraction(rails.servers - rails.accelerators, rails.servers)
    near = Fraction(rails.accelerators - 1, rails.servers)
    return (RailSteps(1, max(rails.servers - rails.accelerators - 1, 0), near, far),)


RAILS: Mapping[str, Callable[[Rails], tuple[RailSteps, ...]]] = MappingProxyType(
    {
        "ring": _ring,
        "halving_doubling": _halving_doubling,
        "hierarchical": _hierarchical,
        "ps": _direct,
        "shuffle": _direct,
    }
)
"""The hops of one half of an all-reduce by each algorithm."""


def _wire(rails: Rails) -> Callable[[int, int, int], int]:
    """Return link 0 within hosts, and the NIC, 1, between them."""
    size = rails.accelerators
    return lambda sender, receiver, _: int(sender // size != receiver // size)


def _digits(rails: Rails, name: str, radices: list[int]) -> Program:
    return staged(name, radices, [range(len(radices))], links=2, wire=_wire(rails))


def _hierarchical_program(rails: Rails) -> Program:
    return _digits(rails, f"hierarchical{_shape(rails)}", [rails.accelerators, rails.hosts])


def _halving_doubling_program(rails: Rails) -> Program:
    _halving_doubling(rails)  # whether it applies
    bits = rails.servers.bit_length() - 1
    return _digits(rails, f"halving_doubling{_shape(rails)}", [2] * bits)


def _direct_program(rails: Rails) -> Program:
    return _digits(rails, f"direct{_shape(rails)}", [rails.servers])


def _ring_program(rails: Rails) -> Program:
    """Return g rings; each enters a host by one NIC, visits all accelerators, leaves by another."""
    hosts, size = rails.hosts, rails.accelerators
    # By which NIC, counted from the ring's own, one enters each host; the last leaves by the first.
    # Of two NICs there is no third: after an odd number of hosts they alternate wrongly, and the
    # last host is left by the NIC that is still to be visited, which is on the other rail.
    enters = [place % 2 for place in range(hosts)] + [0]
    if hosts % 2 and hosts > 1:
        enters[-2] = 2
    rings = []
    for ring in range(size):
        places = []
        for host in range(hosts):
            first, last = ((ring + enters[host + more]) % size for more in (0, 1))
            between = [nic for nic in range(size) if nic not in (first, last)]
            inside = [first, *between, last] if first != last else [first, *between]
            places += [host * size + accelerator for accelerator in inside]
        rings.append(places)
    return ring_program(
        rails.servers, rings, name=f"ring{_shape(rails)}", links=2, wire=_wire(rails)
    )


def _shape(rails: Rails) -> str:
    return f" on {rails.hosts} hosts of {rails.accelerators}, "


RAIL_PROGRAMS: Mapping[str, Callable[[Rails], Program]] = MappingProxyType(
    {
        "ring": _ring_program,
        "halving_doubling": _halving_doubling_program,
        "hierarchical": _hierarchical_program,
        "ps": _direct_program,
        "shuffle": _direct_program,
    }
)
"""The program of an all-reduce by each algorithm; link 0 is within hosts, 1 the NIC."""
