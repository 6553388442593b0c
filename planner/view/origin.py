"""Where the page's numbers come from, and the commands that apply its plan."""

import shlex
from collections.abc import Iterator, Sequence

from msgspec import UNSET

from planner.jsonio.iteration_answer import IterationAnswer
from planner.model.clusters import Cluster
from planner.model.profiles import Profile
from planner.solving.targets import to_apply
from planner.view.html import Html, element, joined, listed, paragraph
from planner.view.wording import target_of

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
        ("threads", str(provenance.threads or "")),
        ("batch size", str(profile.batch_size or "")),
        ("runs", str(provenance.repetitions or "")),
        ("statistic", provenance.statistic),
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


def _facts(facts: Sequence[tuple[str, str]]) -> Html:
    pairs = [joined(element("dt", name), element("dd", text)) for name, text in facts if text]
    return element("dl", *pairs)


def _notes(notes: Sequence[str]) -> Html:
    return listed(*notes, class_="notes") if notes else Html("")


# ---
# Commands that apply a plan, for each framework that can follow it.

PLAN = "plan.json"


def steps(
    answer: IterationAnswer, cluster: Cluster, command: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield a description and the command or code of each step; nothing without a plan.

    `command` is the one that made the report, from ``planner report`` on.
    """
    if answer.objective_ns is None:
        return
    advice = answer.advice
    if advice is not UNSET and advice.keep_ddp:
        cap = advice.bucket_cap_mb
        argument = "" if cap is None else f", bucket_cap_mb={cap}"
        yield (
            "Keep DDP, with the buckets that suit it best",
            f"model = DistributedDataParallel(model{argument})",
        )
        return
    plan = ["planner", "plan", *command[2:], "-o", PLAN]
    yield "Write the plan", shlex.join(plan)
    target = target_of(answer)
    if target is not None:
        for where, lines in to_apply(target, PLAN, f"{target.name}.json").items():
            yield f"Apply it, {where}", "\n".join(lines)
        return
    machines = cluster.working
    each = max(cluster.workers // max(machines, 1), 1)
    launch = f"torchrun --nnodes {machines} --nproc-per-node {each} -m planner run {PLAN}"
    yield (
        "See, on these machines, whether it keeps what is predicted (and name their rendezvous)",
        f"{launch} --model MODULE:FACTORY --against-ddp",
    )
    yield (
        "In a training program, by this package",
        f'planner.runtime.attach(model, Path("{PLAN}").read_bytes(), optimizer, world)',
    )


def applying(answer: IterationAnswer, cluster: Cluster, command: Sequence[str]) -> Html:
    """Return the steps as a part of the page."""
    shown = [
        joined(paragraph(f"{what}:"), element("pre", element("code", how)))
        for what, how in steps(answer, cluster, command)
    ]
    return joined(element("h3", "How to apply this"), *shown) if shown else Html("")
