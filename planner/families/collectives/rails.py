"""All-reduce costs on hosts of several accelerators with one NIC, and one rail, per accelerator.

Every algorithm is a sequence of hops over links within a host or NICs between the h hosts of g
accelerators, N = h·g. `hierarchical` and `halving_doubling` exchange 1/g within hosts, then 1/h of
that on the rails; `ps` and `shuffle` exchange directly, also across rails. `ring`: g rings, each
with 1/g of the gradient, leave a host by NICs of their own, so NICs pace each of the N-1 steps.
Guarantee: per half and NIC `hierarchical` and `halving_doubling` send (h-1)/(g·h) of the gradient,
the lower bound; `ring` sends (N-1)/(g·N), little more; `ps` and `shuffle` g times the bound.
Complexity: O(1) for the costs. Source: rings through all NICs as NCCL builds them; "PXN" and
rail-optimised networks: NVIDIA's documentation of NCCL and DGX pods; direct exchanges within
groups: Wang et al., "BML", NeurIPS 2018, section 3.3.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from planner.families.collectives.exchange import staged
from planner.families.collectives.program import Program
from planner.families.collectives.ring import ring_program
from planner.model.errors import NotApplicableError
from planner.model.network import scattered
from planner.model.topologies import Rails


class RailSteps(NamedTuple):
    """Some steps, and the load of the busiest link and NIC in them.

    A step waits for a NIC if `nic` is above 0, else for a link. `further` counts the messages that
    one accelerator sends besides the first of each step, over its NIC if the steps wait for one.
    `link` and `nic` are bytes summed over the steps, as shares of the gradient.
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
    """Return the share of the data that each step of recursive halving sends."""
    return [Fraction(1, 2**step) for step in range(1, count.bit_length())]


def _ring(rails: Rails) -> tuple[RailSteps, ...]:
    each = scattered(rails.servers) / rails.accelerators  # share of one ring over each of its hops
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
"""The hops of one half of an all-reduce, by algorithm."""


def _wire(rails: Rails) -> Callable[[int, int, int], int]:
    """Return the function that gives the link: 0 within a host, 1 (the NIC) between hosts."""
    size = rails.accelerators
    return lambda sender, receiver, _: int(sender // size != receiver // size)


def _staged(name: str, radices: Callable[[Rails], list[int]]) -> Callable[[Rails], Program]:
    """Return the generator of a digit-by-digit exchange over digits with these radices."""

    def program(rails: Rails) -> Program:
        digits = radices(rails)
        named = f"{name}{_shape(rails)}"
        return staged(named, digits, [range(len(digits))], links=2, wire=_wire(rails))

    return program


def _bits(rails: Rails) -> list[int]:
    _halving_doubling(rails)  # raises if it does not apply
    return [2] * (rails.servers.bit_length() - 1)


def _ring_program(rails: Rails) -> Program:
    """Return g rings; each enters a host by one NIC and leaves it by another."""
    hosts, size = rails.hosts, rails.accelerators
    # The NIC, relative to the ring's own, by which the ring enters each host; it leaves a host by
    # the NIC by which it enters the next. NICs 0 and 1 alternate; an odd number of hosts needs a
    # third NIC. With two accelerators there is none, so the ring has one hop from rail to rail.
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


_direct_program = _staged("direct", lambda rails: [rails.servers])

RAIL_PROGRAMS: Mapping[str, Callable[[Rails], Program]] = MappingProxyType(
    {
        "ring": _ring_program,
        "halving_doubling": _staged("halving_doubling", _bits),
        "hierarchical": _staged("hierarchical", lambda rails: [rails.accelerators, rails.hosts]),
        "ps": _direct_program,
        "shuffle": _direct_program,
    }
)
"""The program of an all-reduce, by algorithm; link 0 is within hosts, link 1 is the NIC."""
