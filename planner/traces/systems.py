"""Which system sent what was recorded, and whether computation waited for it.

Problem: a trace names collectives, not the framework that called for them. Method: DDP gathers
nothing. ZeRO and Megatron's distributed optimiser gather the parameters behind the backward pass;
of the two, Megatron scatters the gradients. Parameters that were gathered ahead of the gradients
are Megatron's (``--overlap-param-gather``) or those of ZeRO's stage 3, which a trace does not tell
apart; between gradients they are sharded. Transfers and computation took turns if hardly anything
of the transfers was overlapped.
Guarantee: none for other systems that send alike. Complexity: O(transfers log transfers).
Source: own; DeepSpeed 0.19 and Megatron Core 0.16, traced over gloo on two and four ranks.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from planner.model.errors import NotApplicableError
from planner.solving.targets import TARGETS, Target
from planner.traces.recorded import (
    Recorded,
    Transfer,
    both,
    clipped,
    gradient_sends,
    length,
    merged,
    periods_of,
    without,
)

_OVERLAP = 50
"""Transfers and computation take turns if less than 1/_OVERLAP of the transfers is overlapped."""

_SHARDED = (
    "parameters were gathered between gradients: they are sharded, as by ZeRO's stage 3, or split "
    "among ranks; planner plan PROFILE --for fsdp2 plans units of a profile"
)
_EITHER = (
    "gradients were reduce-scattered, and parameters gathered ahead of them, as Megatron and "
    "ZeRO's stage 3 do: expected --for megatron or --for deepspeed"
)


def check_sends(rank: Recorded) -> None:
    """Raise `NotApplicableError` unless gradients of known sizes were sent in marked steps."""
    inside, reduced = [each for each in rank.transfers if each.step >= 0], gradient_sends(rank)
    kinds = sorted({transfer.collective for transfer in inside})
    if not rank.steps:
        reason = "no steps are marked (ProfilerStep#N): record with a schedule, and call step()"
    elif not rank.periods:
        reason = "no kernel is known to be launched in a step: record ProfilerActivity.CPU, too"
    elif not inside:
        reason = "no transfer belongs to a step: nothing to plan"
    elif not reduced:
        reason = (
            f"{', '.join(kinds)} were sent: buckets are planned of all-reduces or reduce-scatters"
        )
    elif not any(transfer.size_bytes for transfer in reduced):
        reason = "no transfer of gradients has a size: record with record_shapes=True"
    else:
        return
    raise NotApplicableError("", reason)


def recorded_system(
    rank: Recorded, sends: Sequence[Transfer], target: Target | None = None
) -> Target:
    """Return the target that sent what was recorded; `sends` are its gradients.

    `target` is what it is said to be, where the recording leaves a choice. Raises
    `NotApplicableError` if that is missing, or if parameters were gathered between gradients.
    """
    gathers = [
        each for each in rank.transfers if each.collective == "all_gather" and each.step >= 0
    ]
    scattered = sends[0].collective == "reduce_scatter"
    if not scattered and 2 * _bytes(gathers) < _bytes(sends):
        return TARGETS["ddp"]
    ahead: list[Transfer] = []
    for step in {each.step for each in sends}:
        asked = [each.called_ns for each in sends if each.step == step]
        own = [each for each in gathers if each.step == step]
        ahead += [each for each in own if each.called_ns < min(asked)]
        between = [each for each in own if min(asked) < each.called_ns < max(asked)]
        if 2 * len(between) > len(asked):
            raise NotApplicableError("", _SHARDED)
    if not scattered:
        return TARGETS["deepspeed"]
    either = TARGETS["megatron"], TARGETS["deepspeed"]
    if 2 * _bytes(ahead) < _bytes(sends):
        return either[0]
    if target not in either:
        raise NotApplicableError("", _EITHER)
    return target


def _bytes(transfers: Sequence[Transfer]) -> int:
    return sum(each.size_bytes or 0 for each in transfers)


def take_turns(rank: Recorded, sends: Sequence[Transfer]) -> bool:
    """Return whether transfers of gradients and computation took turns."""
    sent = merged((each.start_ns, each.end_ns) for each in sends)
    return length(both(sent, rank.computation)) * _OVERLAP < length(sent)


def since_the_calls(rank: Recorded) -> Recorded:
    """Return a recording in which every transfer begins when the host called for it."""
    return replace(
        rank, transfers=tuple(replace(each, start_ns=each.called_ns) for each in rank.transfers)
    )


def others_ns(rank: Recorded, sends: Sequence[Transfer], steps: Sequence[int]) -> int:
    """Return how long a step waits for its other transfers (ns): the median over `steps`."""
    gradients = merged((each.start_ns, each.end_ns) for each in sends)
    others = merged((each.start_ns, each.end_ns) for each in set(rank.transfers).difference(sends))
    waits = without(without(others, gradients), rank.computation)
    periods = periods_of(rank)
    return round(median(length(clipped(waits, periods[step])) for step in steps))
