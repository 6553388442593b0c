"""The predicted iteration time, rounded to its accuracy, and its most critical assumption.

Times with a spread of a tenth predict no better than to a tenth. The most critical assumption is
the scenario whose time differs most from the planned time, among the plan's regrets.
"""

from math import ceil, log10

from msgspec import UNSET

from planner.jsonio.iteration_answer import IterationAnswer
from planner.jsonio.regret import RegretAnswer
from planner.model.clusters import Cluster
from planner.model.profiles import Profile
from planner.model.units import format_ns, format_rate

FEWEST, MOST = 2, 4
"""Least and most digits: one digit rounds by up to a third; measured times show four."""


def digits_of(profile: Profile) -> int:
    """Return the number of significant digits that the profile's spread justifies."""
    spread = sum(
        (layer.forward_spread_ns or 0) + (layer.backward_spread_ns or 0) for layer in profile.layers
    )
    whole = profile.forward_ns + profile.backward_ns
    if not spread or not whole:
        return FEWEST  # the spread is unknown
    return min(max(ceil(-log10(spread / whole)), FEWEST), MOST)


def about_ns(time: int, digits: int) -> str:
    """Return a time as text with `digits` significant digits."""
    if time <= 0:
        return format_ns(time)
    step = 10 ** max(len(str(time)) - digits, 0)
    return format_ns((time + step // 2) // step * step)


def assumption(answer: IterationAnswer, cluster: Cluster, digits: int) -> str:
    """Return the most critical assumption and its alternative, to follow "if"."""
    rows = () if answer.regret is UNSET else answer.regret
    planned = answer.objective_ns or 0
    decisive = max(rows, key=lambda row: abs(row.plan_ns - planned), default=None)
    if decisive is None or decisive.plan_ns == planned:
        return "the profile and the cluster's file are right"
    what, otherwise = _scenario(decisive, cluster)
    return f"{what} ({otherwise}: about {about_ns(decisive.plan_ns, digits)})"


def _scenario(row: RegretAnswer, cluster: Cluster) -> tuple[str, str]:
    """Return the assumption that a scenario changes, and the change."""
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
