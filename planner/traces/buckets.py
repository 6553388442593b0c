"""The buckets of a recorded job, and the costs of its transfers that agree with the recording.

Problem: under which buckets did it run, and what would others cost? Method: DDP, ZeRO and Megatron
fill buckets with gradients in the order in which they become ready, so the sizes of a step's
all-reduces (or reduce-scatters) cut that order; those that do not fit, such as the all-reduce of a
loss, are passed over. Transfers that overlap
share the network: together they are one burst. A burst of k transfers and b bytes is taken to last
s·k + β·b; `lines_of` returns the least, the best and the largest start-up s that agree with the
bursts. If all bursts are alike, every share of start-ups does.
Guarantee: none; `planner.traces.tuning` checks the costs on the recorded step.
Complexity: O(transfers log transfers). Source: own; buckets as in reducer.cpp of PyTorch 2.13.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from statistics import median, median_low
from typing import NamedTuple

from planner.model.costs import AffineCost
from planner.traces.recorded import Recorded, Transfer, gradient_sends

NEAR = 100
"""Sizes that differ by less than 1/NEAR are the same: systems may pad their buckets."""

_WIDTHS = (Fraction(1), Fraction(1, 2), Fraction(2))
"""Size of a number as sent, relative to its size in a gradient: equal, or 16 bits for 32, or the
reverse."""

_STARTUPS = 256
"""Number of start-ups that are tried."""

_NOISE = Fraction(1, 100)
"""Lines agree with a recording if they miss it by no more than the best one and this share."""


class Burst(NamedTuple):
    """All-reduces of one step that overlap."""

    transfers: int
    size_bytes: int
    lasts_ns: int


class Settings(NamedTuple):
    """The buckets of a recorded rank."""

    sizes: tuple[int, ...]  # bytes of gradients in each, in the order in which they were sent
    counts: tuple[int, ...]  # gradients in each, in the order of readiness; empty if unknown
    behind: tuple[int, ...]  # gradients that were complete when each was called for, if known
    steps: tuple[int, ...]  # positions of the steps that have these buckets
    bursts: tuple[Burst, ...]  # of all of these steps, with the gradients' own bytes
    width: Fraction  # bytes sent of each byte of a gradient: they may travel as another type


def settings_of(
    rank: Recorded, sizes: Sequence[int], *, any_order: bool = False
) -> Settings | None:
    """Return the commonest buckets of a rank's steps; None if no step has buckets.

    `sizes` are the gradients' bytes, in the order in which they become ready. With `any_order` it
    is unknown which gradients each bucket has, and they may be cut: systems also fill buckets in
    the model's order, which a trace does not tell.
    """
    sent: dict[int, list[Transfer]] = defaultdict(list)
    for transfer in gradient_sends(rank):
        if transfer.size_bytes:
            sent[transfer.step].append(transfer)
    for width in _WIDTHS:
        by_step = {}
        for step, transfers in sent.items():
            own = [round((each.size_bytes or 0) / width) for each in transfers]
            buckets = all_of(own, sum(sizes)) if any_order else bucket_counts(own, sizes)
            if buckets is not None:
                by_step[step] = buckets
        if by_step:
            commonest = Counter(by_step.values()).most_common(1)[0][0]
            steps = tuple(step for step, buckets in by_step.items() if buckets == commonest)
            used = {
                step: sent[step][: len(commonest)] if any_order else sent[step] for step in steps
            }
            bursts = tuple(
                burst._replace(size_bytes=round(burst.size_bytes / width))
                for transfers in used.values()
                for burst in bursts_of(transfers)
            )
            if any_order:
                rows = [
                    [each.behind for each in row if each.behind is not None]
                    for row in zip(*used.values(), strict=True)
                ]
                behind = tuple(map(median_low, rows)) if all(rows) else ()
                return Settings(commonest, (), behind, steps, bursts, width)
            cut = pairwise(accumulate(commonest, initial=0))
            made = tuple(sum(sizes[start:stop]) for start, stop in cut)
            return Settings(made, commonest, (), steps, bursts, width)
    return None


def all_of(sent: Sequence[int], total: int) -> tuple[int, ...] | None:
    """Return the first transfers, as many as have the gradients' bytes; None if no number has."""
    off = [abs(size - total) for size in accumulate(sent)]
    best = min(range(len(off)), key=off.__getitem__, default=0)
    return tuple(sent[: best + 1]) if off and off[best] * NEAR < total else None


def bucket_counts(sent: Iterable[int], sizes: Sequence[int]) -> tuple[int, ...] | None:
    """Return the number of gradients in each bucket, or None if transfers do not cut the gradients.

    `sent` are the bytes of the transfers, in order. Transfers that are no bucket are passed over.
    """
    counts, place = [], 0
    for size in sent:
        stop, total = place, 0
        while stop < len(sizes) and total < size:
            total += sizes[stop]
            stop += 1
        if stop - place > 1 and total - size > size - (total - sizes[stop - 1]):
            stop -= 1
            total -= sizes[stop]
        if stop > place and abs(total - size) * NEAR < size:
            counts.append(stop - place)
            place = stop
    return tuple(counts) if counts and place == len(sizes) else None


def bursts_of(transfers: Iterable[Transfer]) -> tuple[Burst, ...]:
    """Return the bursts of one step's transfers, by start."""
    bursts: list[Burst] = []
    begin = end = 0
    for transfer in sorted(transfers, key=lambda each: each.start_ns):
        size = transfer.size_bytes or 0
        if bursts and transfer.start_ns < end:
            last = bursts.pop()
            end = max(end, transfer.end_ns)
            bursts.append(Burst(last.transfers + 1, last.size_bytes + size, end - begin))
        else:
            begin, end = transfer.start_ns, transfer.end_ns
            bursts.append(Burst(1, size, end - begin))
    return tuple(bursts)


def lines_of(bursts: Iterable[Burst]) -> tuple[AffineCost, ...]:
    """Return the costs that agree with bursts: the best, then those of least and most start-up."""
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for transfers, size, time in bursts:
        alike[transfers, size].append(time)
    kinds = [(*kind, round(median(lasts)), len(lasts)) for kind, lasts in alike.items()]
    sent = sum(size * count for _, size, _, count in kinds)
    started = sum(transfers * count for transfers, _, _, count in kinds)
    lasted = sum(time * count for *_, time, count in kinds)
    spread = Fraction(
        sum(abs(time - round(median(times))) for times in alike.values() for time in times)
    )

    def line(startup: int) -> AffineCost:
        return AffineCost(startup, max(Fraction(lasted - startup * started, sent), Fraction(0)))

    def missed(cost: AffineCost) -> Fraction:
        return sum(
            (
                abs(time - transfers * cost.startup_ns - size * cost.ns_per_byte) * count
                for transfers, size, time, count in kinds
            ),
            Fraction(0),
        )

    most = lasted // started
    lines = {startup: line(startup) for startup in range(0, most + 1, max(most // _STARTUPS, 1))}
    errors = {startup: missed(cost) for startup, cost in lines.items()}
    best = min(errors, key=lambda startup: (errors[startup], startup))
    allowed = errors[best] + max(spread, _NOISE * lasted)
    agreeing = [startup for startup, error in errors.items() if error <= allowed]
    chosen = dict.fromkeys((best, min(agreeing), max(agreeing)))
    return tuple(lines[startup] for startup in chosen)


def without_startup(bursts: Iterable[Burst]) -> AffineCost:
    """Return the cost of bursts as if their bytes took all of the time."""
    size, lasted = map(sum, zip(*((size, time) for _, size, time in bursts), strict=True))
    return AffineCost(0, Fraction(lasted, size))
