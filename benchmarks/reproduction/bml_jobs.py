"""How long an iteration lasts with BML on BCube(3, 2), and with parameter servers on one switch.

Problem: the BML paper trains LeNet-5 and VGG-19 on nine servers and reports job times (Figs. 6 and
7). What does the model say of them, whatever the computation takes?

Method: windows of the gradients (ready, and needed by the forward pass) are those of a shipped
profile, all times multiplied by one factor. What is sent, in three ways:

    BML               every tensor by itself takes 2(N-1)/(kN) of its time over one link; one
                      after the other, in the order in which they are ready
    equal servers     the same with 2(N-1)/N: every server holds 1/N of each tensor
    whole tensors     tensor i lives on server i mod N. Its N-1 pushes pass that server's NIC one
                      tensor after the other, its N-1 pulls leave by the other direction of it

Servers do not hinder each other in the last one: each takes 1/(N-1) of every worker's NIC, and a
worker talks to at most N-1 others. What overlaps is not quite known, so there are three readings:
`none` (computation, then communication), `backward` (transfers begin when a gradient is ready, the
forward pass waits for all of them), `both` (a forward op waits for what it reads).

Guarantee: exact fractions of these assumptions. No start-up costs, no time for additions.
Complexity: O(T log T) an iteration with T tensors.
Source: Wang et al., "BML", NeurIPS 2018, sections 4.1 to 4.3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

from planner import AffineCost
from planner.families.caramel import Problem
from planner.families.caramel.windows import Windows
from planner.families.collectives import Fabric
from planner.families.collectives.exchange import bml_on, direct_on
from planner.jsonio import decode_profile
from planner.model.topologies import BCube

PROFILES = Path(__file__).parents[2] / "data" / "profiles"

BCUBE = BCube(3, 2)
SERVERS = BCUBE.servers

NS_PER_BYTE = Fraction(8, 40)
"""40 Gb/s."""

OVERLAPS = ("none", "backward", "both")
BASELINES = ("equal servers", "whole tensors")
BML = "BML"

EQUAL = direct_on("ps", Fabric.of_bcube(BCUBE)).volume
VOLUMES = {BML: bml_on(BCUBE).volume, "equal servers": EQUAL}

FARTHEST = Fraction(10) ** 6
"""Computation is looked at from a millionth of communication to a million times as much."""


@dataclass(frozen=True, slots=True)
class Job:
    """A network as measured on another machine.

    Attributes
    ----------
    windows : Windows
        When gradients are ready and needed, in ns of that machine.
    batch : int
        Samples of an iteration there.
    """

    windows: Windows
    batch: int

    @property
    def full_transfer_ns(self) -> Fraction:
        """Time of one gradient over one link, T_F."""
        return sum(self.windows.sizes) * NS_PER_BYTE

    @property
    def communication_ns(self) -> Fraction:
        """What parameter servers of equal load take: the unit of the ratio below."""
        return EQUAL * self.full_transfer_ns

    @property
    def measured_ratio(self) -> Fraction:
        """Computation over communication, with the profile's own times."""
        return self.windows.compute_ns / self.communication_ns


@cache
def windows_of(name: str) -> Job:
    """Return the job of a shipped profile."""
    profile = decode_profile((PROFILES / f"{name}.json").read_bytes())
    assert profile.batch_size is not None
    problem = Problem(profile.dataflow(), AffineCost(0, NS_PER_BYTE))
    return Job(problem.windows, profile.batch_size)


@dataclass(frozen=True, slots=True)
class Printed:
    """A figure of measured jobs: what its text prints, and where its axis ends.

    Attributes
    ----------
    name, title : str
        Profile and network.
    batches : tuple of int
        Samples of a server in an iteration, on the x axis.
    least, most : float
        By how many per cent jobs are shorter, at the largest and at the smallest batch.
    axis_s : int
        Where the y axis ends; no bar is higher.
    """

    name: str
    title: str
    batches: tuple[int, ...]
    least: float
    most: float
    axis_s: int

    @property
    def job(self) -> Job:
        """The network's profile."""
        return windows_of(self.name)

    @property
    def span(self) -> Fraction:
        """The largest batch over the smallest one."""
        return Fraction(self.batches[-1], self.batches[0])


def lasting(job: Job, ratio: Fraction, way: str, overlap: str) -> Fraction:
    """Return what an iteration lasts, in ns.

    Parameters
    ----------
    job : Job
        The network.
    ratio : Fraction
        Computation of an iteration over `Job.communication_ns`.
    way : str
        ``BML`` or one of `BASELINES`.
    overlap : str
        One of `OVERLAPS`.
    """
    windows = job.windows
    scale = ratio / job.measured_ratio
    compute = windows.compute_ns * scale
    heads = [0 * scale if overlap == "none" else head * scale for head in windows.heads]
    ends = arrivals(windows.sizes, heads, way)
    if overlap == "none":
        return compute + max(ends)
    if overlap == "backward":
        return max(windows.backward_ns * scale, *ends) + windows.forward_ns * scale
    tails = (end + tail * scale for end, tail in zip(ends, windows.tails, strict=True))
    return max(compute, *tails)


def arrivals(sizes: tuple[int, ...], heads: list[Fraction], way: str) -> list[Fraction]:
    """Return when each tensor's sum is back on all servers, if it is ready at its head."""
    order = sorted(range(len(sizes)), key=lambda one: (heads[one], -one))  # the last layer first
    if way in VOLUMES:
        return queued(order, heads, [VOLUMES[way] * size * NS_PER_BYTE for size in sizes])
    through = [(SERVERS - 1) * size * NS_PER_BYTE for size in sizes]
    ends = [Fraction(0)] * len(sizes)
    for server in range(SERVERS):
        mine = [one for one in order if one % SERVERS == server]
        pushed = queued(mine, heads, through)
        if not any(heads):  # nothing overlaps: pulls begin when all has been pushed
            pushed = [max(pushed)] * len(sizes)
        pulled = queued(mine, pushed, through)
        for one in mine:
            ends[one] = pulled[one]
    return ends


def queued(order: list[int], ready: list[Fraction], lasts: list[Fraction]) -> list[Fraction]:
    """Return the ends of transfers that pass one NIC in an order, each once it is ready."""
    ends, free = [Fraction(0)] * len(ready), Fraction(0)
    for one in order:
        ends[one] = free = max(free, ready[one]) + lasts[one]
    return ends


def gain(job: Job, ratio: Fraction, baseline: str, overlap: str) -> Fraction:
    """Return by which share an iteration is shorter with BML."""
    before = lasting(job, ratio, baseline, overlap)
    return 1 - lasting(job, ratio, BML, overlap) / before


def ratio_at(target: Fraction, share: Callable[[Fraction], Fraction]) -> Fraction | None:
    """Return where a share that falls as the ratio grows comes down to `target`.

    None if it does not: it is below everywhere, or nowhere, up to `FARTHEST`.
    """
    low, high = 1 / FARTHEST, FARTHEST
    if not share(low) >= target > share(high):
        return None
    while float(high / low) > 1 + 1e-6:
        middle = Fraction(f"{float(low * high) ** 0.5:.9g}")
        low, high = (middle, high) if share(middle) >= target else (low, middle)
    return low
