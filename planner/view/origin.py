"""The origin of the page's numbers, and the memory that a worker needs."""

import shlex
from collections.abc import Sequence

from msgspec import UNSET

from planner.jsonio.iteration_answer import IterationAnswer
from planner.model.clusters import Cluster
from planner.model.profiles import Profile
from planner.model.units import counted
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
