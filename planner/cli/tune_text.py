"""The text of ``planner tune``: the recorded step, its prediction, and what to set."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from planner.model.units import counted, format_bytes, format_ns, format_share
from planner.solving.advice import WORTH
from planner.traces.tuning import MOST_OFF, Proposal, one_size
from planner.view.table import format_table
from planner.view.wording import times

_PARTS = {
    "passes": "forward and backward pass",
    "waiting": "waiting for transfers",
    "other": "the rest: the optimiser, data, the host",
}


def tune_lines(proposal: Proposal, settings: Mapping[str, Any] | None, ranks: int) -> Iterator[str]:
    """Yield the lines of the text; `ranks` is the number of traces."""
    lasts = proposal.step_ns
    yield (
        f"{counted(ranks, 'rank')}; rank {proposal.rank}, for which the others wait, has "
        f"{counted(proposal.steps, 'step')} of {format_ns(lasts)} with the same buckets:"
    )
    rows = [
        (_PARTS[name], format_ns(time), format_share(time / lasts))
        for name, time in sorted(proposal.parts.items(), key=lambda part: -part[1])
        if time
    ]
    yield format_table(["part", "a step", "share"], rows)
    yield ""
    yield f"as recorded: {_buckets(proposal.buckets)}"
    off = format_share(abs(proposal.error))
    which = "long" if proposal.error > 0 else "short"
    yield f"predicted: {format_ns(proposal.predicted_ns)}, {off} too {which}"
    yield f"planned for {proposal.target.title}: {_buckets(proposal.proposed)}"
    yield _gain(proposal)
    yield ""
    yield from _verdict(proposal, settings)


def _buckets(sizes: tuple[int, ...]) -> str:
    least, most = (format_bytes(size) for size in (min(sizes), max(sizes)))
    span = least if least == most else f"{least} to {most}"
    return f"{counted(len(sizes), 'all-reduce')} of {span}"


def _gain(proposal: Proposal) -> str:
    """Return the line of the predicted gain."""
    text = (
        f"expected: {format_ns(proposal.plan_ns)} instead of {format_ns(proposal.step_ns)}, "
        f"{times(proposal.gain)} as fast "
        f"(between {times(proposal.least_gain)} and {times(proposal.most_gain)})"
    )
    if proposal.at_most is not None:
        text += f"; no buckets are more than {times(max(proposal.at_most, 1.0))} as fast"
    return text


def _verdict(proposal: Proposal, settings: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield what to do, and why."""
    if settings is not None:
        yield f"worth setting. {proposal.target.title}, {proposal.target.version}:"
        if proposal.target.name == "ddp":
            sizes = json.dumps(settings["bucket_cap_mb_list"])
            yield f"model = DistributedDataParallel(model, bucket_cap_mb_list={sizes})"
            size, gain = one_size(proposal)
            yield f"earlier versions take one size: bucket_cap_mb={size:g} is {times(gain)} as fast"
        else:
            own = {name: value for name, value in settings.items() if name != "planner"}
            yield json.dumps(own, indent=1)
        if proposal.target.name == "horovod":
            yield (
                "its groups need the names of parameters, which a trace does not have: make a "
                "profile (planner profile), and plan it with --for horovod"
            )
        yield "the next trace tells whether it holds"
    elif proposal.doubtful:
        yield (
            "no proposal: the recorded step is predicted more than "
            f"{format_share(float(MOST_OFF))} off, so others would be too; the table above says "
            "where its time goes"
        )
    elif proposal.gain < WORTH:
        yield "keep what you have: no gain is certain"
    else:
        why = "it may be slower"
        if not proposal.contention:
            why += (
                ", as a trace does not say what transfers take from computation on processors: "
                "give --network of planner calibrate network"
            )
        yield f"keep what you have: {why}"
