"""How long an iteration is predicted to take: with the digits, and on the assumption, it rests on.

A time computed from times that spread over a tenth is no better than to a tenth; and of all numbers
one decides most. Which one, the plan's regrets tell: the scenario in which it takes longest beside
what was planned for.
"""

from math import ceil, log10

from msgspec import UNSET

from planner.clusters import Cluster
from planner.jsonio.iteration_answer import IterationAnswer
from planner.jsonio.regret import RegretAnswer
from planner.profiles import Profile
from planner.units import format_ns, format_rate

__all__ = ["about_ns", "assumption", "digits_of"]

FEWEST, MOST = 2, 4
"""Digits: one would round by up to a third; four is what measured times are shown with."""


def digits_of(profile: Profile) -> int:
    """Return how many digits times deserve: as many as those of the profile spread over."""
    spread = sum(
        (layer.forward_spread_ns or 0) + (layer.backward_spread_ns or 0) for layer in profile.layers
    )
    whole = profile.forward_ns + profile.backward_ns
    if not spread or not whole:
        return FEWEST  # unknown
    return min(max(ceil(-log10(spread / whole)), FEWEST), MOST)


def about_ns(time: int, digits: int) -> str:
    """Return a time with so many significant digits."""
    if time <= 0:
        return format_ns(time)
    step = 10 ** max(len(str(time)) - digits, 0)
    return format_ns((time + step // 2) // step * step)


def assumption(answer: IterationAnswer, cluster: Cluster, digits: int) -> str:
    """Return the assumption that decides the time, and what it is otherwise, after "if"."""
    rows = () if answer.regret is UNSET else answer.regret
    planned = answer.objective_ns or 0
    decisive = max(rows, key=lambda row: abs(row.plan_ns - planned), default=None)
    if decisive is None or decisive.plan_ns == planned:
        return "the profile and the cluster's file are right"
    what, otherwise = _scenario(decisive, cluster)
    return f"{what} ({otherwise}: about {about_ns(decisive.plan_ns, digits)})"


def _scenario(row: RegretAnswer, cluster: Cluster) -> tuple[str, str]:
    """Return what a scenario leaves as it is thought, and how it is otherwise."""
    nic = cluster.nic
    if row.computation != 1:
        times = f"{row.computation:g} times as long"
        return "computation takes as long as the profile says", f"if {times}"
    if row.bandwidth != 1:
        speed = format_rate(nic.bytes_per_s)
        return f"a NIC carries the {speed} of the cluster's file", f"at {row.bandwidth:g} of it"
    if row.startup != 1:
        cost = format_ns(nic.startup_ns)
        return f"a start-up costs the {cost} of the cluster's file", f"at {row.startup:g} times it"
    return "all ranks run abreast", f"if one is {row.late:g} of the backward pass behind"
