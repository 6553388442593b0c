"""The origin of the page's numbers, what is predicted, and the memory that a worker needs."""

import shlex
from collections.abc import Sequence
from math import ceil, log10

from msgspec import UNSET

from planner.jsonio.iteration_answer import IterationAnswer
from planner.jsonio.what_if import RegretAnswer
from planner.model.clusters import Cluster
from planner.model.profiles import Profile
from planner.model.units import counted, format_ns, format_rate
from planner.view.html import Html, element, joined, listed, paragraph
from planner.view.wording import size_text

_KINDS = {
    "measured": "measured",
    "imported": "read from another tool's file",
    "synthetic": "made up, not measured",
}


def origin(profile: Profile, cluster: Cluster, about: str, command: Sequence[str]) -> Html:
    """Return the sources and notes of profile and cluster, and the command that makes the page.

    `about` is a line about the cluster.
    """
    provenance = profile.provenance
    facts = [
        ("numbers", _KINDS[provenance.kind]),
        ("source", provenance.source),
        ("date", provenance.date),
        ("processor", provenance.processor),
        ("threads", "" if provenance.threads is None else str(provenance.threads)),
        ("batch size", "" if profile.batch_size is None else str(profile.batch_size)),
        ("runs", _runs(provenance.warmup, provenance.repetitions, provenance.statistic)),
        ("versions", ", ".join(f"{name} {text}" for name, text in provenance.versions.items())),
    ]
    return joined(
        element("h3", f"Profile: {profile.name}"),
        _facts(facts),
        _notes([f"Warning: {text}" for text in provenance.warnings]),
        _notes(provenance.notes),
        element("h3", f"Cluster: {cluster.name}"),
        _facts([("what", about), ("source", cluster.source)]),
        _notes(cluster.notes),
        element("h3", "How this page was made"),
        element("pre", element("code", shlex.join(command))),
        paragraph(
            "All times of plans are computed, from the profile's and the cluster's numbers; none "
            "on this page is a measurement of a training job.",
            class_="note",
        ),
    )


def memory(answer: IterationAnswer) -> Html:
    """Return the memory that a worker needs and has."""
    if answer.memory is UNSET:
        return paragraph("The profile has no sizes to say it by.")
    needed, have = answer.memory.needed_bytes, answer.memory.available_bytes
    if have is None:
        room = "The cluster file does not say how much there is."
    else:
        room = f"It has {size_text(have)}: {needed / have:.1%} are taken."
    return joined(
        paragraph(f"A worker needs {size_text(needed)}. {room}"),
        paragraph(
            "Counted are parameters, gradients, the optimiser's state, the activations of one "
            "iteration and the largest transfer; an allocator takes more.",
            class_="note",
        ),
    )


def _facts(facts: Sequence[tuple[str, str]]) -> Html:
    pairs = [joined(element("dt", name), element("dd", text)) for name, text in facts if text]
    return element("dl", *pairs)


def _notes(notes: Sequence[str]) -> Html:
    return listed(*notes, class_="notes") if notes else Html("")


def _runs(warmup: int | None, repetitions: int | None, statistic: str) -> str:
    if repetitions is None:
        return statistic
    text = counted(repetitions, "measured run")
    if warmup:
        text += f" after {warmup:,} to warm up"
    return f"{text}, {statistic}" if statistic else text


# ---
# The predicted iteration time, rounded to its accuracy, and its most critical assumption.
#
# Times with a spread of a tenth predict no better than to a tenth. The most critical assumption is
# the scenario whose time differs most from the planned time, among the plan's regrets.

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
