"""Sentences about a proposal of `planner tune`: the recorded step, its prediction, what to set."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from planner.model.units import counted, format_bytes, format_ns, format_share
from planner.solving.advice import WORTH
from planner.traces.proposals import MOST_OFF, Proposal
from planner.traces.tuning import one_size
from planner.view.table import format_table
from planner.view.wording import times

_PARTS = {
    "passes": "forward and backward pass",
    "waiting": "waiting for transfers",
    "other": "the rest: the optimiser, data, the host",
}

PART_COLUMNS = ("part", "a step", "share")


class Verdict(NamedTuple):
    """What to do: a sentence, the settings to paste (empty: none), and remarks on them."""

    says: str
    settings: str
    remarks: tuple[str, ...]


def tune_lines(proposal: Proposal, settings: Mapping[str, Any] | None, ranks: int) -> Iterator[str]:
    """Yield the lines of the text; `ranks` is the number of traces."""
    yield f"{recorded_text(proposal, ranks)}:"
    yield format_table(list(PART_COLUMNS), part_rows(proposal))
    yield ""
    before, after = settings_texts(proposal)
    yield f"as recorded: {before}"
    yield check_text(proposal)
    yield f"planned for {proposal.target.title}: {after}"
    yield gain_text(proposal)
    yield ""
    verdict = verdict_of(proposal, settings)
    yield f"{verdict.says}:" if verdict.settings else verdict.says
    yield from filter(None, (verdict.settings, *verdict.remarks))


def recorded_text(proposal: Proposal, ranks: int) -> str:
    """Return a clause on the recorded steps, of which `ranks` traces were given."""
    return (
        f"{counted(ranks, 'rank')}; rank {proposal.rank}, for which the others wait, has "
        f"{counted(proposal.steps, 'step')} of {format_ns(proposal.step_ns)} with the same "
        f"{sent(proposal)}s"
    )


def part_rows(proposal: Proposal) -> list[tuple[str, ...]]:
    """Return the parts of a recorded step, the longest first."""
    return [
        (_PARTS[name], format_ns(time), format_share(time / proposal.step_ns))
        for name, time in sorted(proposal.parts.items(), key=lambda part: -part[1])
        if time
    ]


def sent(proposal: Proposal) -> str:
    """Return the name of one part of the settings: a bucket or a unit."""
    return "unit" if proposal.target.sharded else "bucket"


def settings_texts(proposal: Proposal) -> tuple[str, str]:
    """Return the number of buckets or units and their sizes, as recorded and as planned."""
    plans = (proposal.likeliest.traced, proposal.plan)
    texts = []
    for sizes, plan in zip((proposal.buckets, proposal.proposed), plans, strict=True):
        least, most = (format_bytes(size) for size in (min(sizes), max(sizes)))
        span = least if least == most else f"{least} to {most}"
        text = f"{counted(len(sizes), sent(proposal))} of {span}"
        if proposal.target.sharded:
            kept = sum(unit.keep for unit in plan.units)
            text += f", {kept or 'none'} kept after the forward pass"
        texts.append(text)
    return texts[0], texts[1]


def check_text(proposal: Proposal) -> str:
    """Return how far off the prediction of the recorded step is."""
    which = "long" if proposal.error > 0 else "short"
    off = format_share(abs(proposal.error))
    return f"predicted: {format_ns(proposal.predicted_ns)}, {off} too {which}"


def gain_text(proposal: Proposal) -> str:
    """Return the predicted gain, its interval, and the most that any settings gain."""
    text = (
        f"expected: {format_ns(proposal.plan_ns)} instead of {format_ns(proposal.step_ns)}, "
        f"{times(proposal.gain)} as fast "
        f"(between {times(proposal.least_gain)} and {times(proposal.most_gain)})"
    )
    if proposal.at_most is not None:
        text += f"; no settings are more than {times(max(proposal.at_most, 1.0))} as fast"
    return text


def verdict_of(proposal: Proposal, settings: Mapping[str, Any] | None) -> Verdict:
    """Return the advice; `settings` of the target are None if they are not worth setting."""
    if settings is not None:
        return _worth(proposal, settings)
    if proposal.doubtful:
        off = format_share(float(MOST_OFF))
        says = (
            f"no proposal: the recorded step is predicted more than {off} off, so others would be "
            "too; the table of its parts says where its time goes"
        )
    elif proposal.gain < WORTH:
        says = "keep what you have: no gain is certain"
    else:
        says = "keep what you have: it may be slower"
        if not proposal.contention:
            says += (
                ", as a trace does not say what transfers take from computation on processors: "
                "give --network of planner calibrate network"
            )
    return Verdict(says, "", ())


def _worth(proposal: Proposal, settings: Mapping[str, Any]) -> Verdict:
    target, remarks = proposal.target, []
    if target.name == "ddp":
        sizes = json.dumps(settings["bucket_cap_mb_list"])
        code = f"model = DistributedDataParallel(model, bucket_cap_mb_list={sizes})"
        size, gain = one_size(proposal)
        remarks.append(
            f"earlier versions take one size: bucket_cap_mb={size:g} is {times(gain)} as fast"
        )
    elif target.sharded:
        code = _fully_shard(settings)
    else:
        own = {name: value for name, value in settings.items() if name != "planner"}
        code = json.dumps(own, indent=1)
    if target.name == "horovod":
        remarks.append(
            "its groups need the names of parameters, which a trace does not have: make a "
            "profile (planner profile), and plan it with --for horovod"
        )
    remarks.append("the next trace tells whether it holds")
    return Verdict(f"worth setting. {target.title}, {target.version}", code, tuple(remarks))


def _fully_shard(settings: Mapping[str, Any]) -> str:
    """Return calls of ``fully_shard`` and of the methods that a plan sets."""
    fields = ("modules", "reshard_after_forward", "forward_prefetch", "backward_prefetch")
    rows = (", ".join(repr(unit[field]) for field in fields) for unit in settings["units"])
    lines = (
        "# modules, whether to reshard them after the forward pass, what to prefetch in each pass",
        "units = [",
        *(f"    ({row})," for row in rows),
        "]",
        "find = model.get_submodule",
        "for names, reshard, _, _ in units:  # with your mesh and policies",
        "    fully_shard([find(name) for name in names], reshard_after_forward=reshard)",
        "fully_shard(model)",
        "for names, _, forward, backward in units:",
        "    find(names[0]).set_modules_to_forward_prefetch([find(name) for name in forward])",
        "    find(names[0]).set_modules_to_backward_prefetch([find(name) for name in backward])",
        *(f"model.{method}({value})" for method, value in settings["settings"].items()),
    )
    return "\n".join(lines)
