"""The text of ``planner why``: where the time of a step goes, and what a better plan saves."""

from collections.abc import Iterator
from itertools import chain, groupby
from typing import Any

from planner.cli.common import readable
from planner.model.units import counted, format_bytes, format_ns
from planner.traces.why import Why
from planner.view.chart import shortened
from planner.view.table import cut, format_table

MEANINGS = {
    "input": "the host waited for data",
    "host": "the host launched the next kernel too late",
    "straggler": "another rank came later",
    "slow": "it lasted longer than the fastest transfers here",
    "startup": "start-ups",
    "late": "it was ready, the network idle, and it had not begun",
    "large": "part of it was ready, and the network idle",
    "bytes": "the network was busy: its bytes, and those before it",
    "undivided": "other ranks, start-ups, bytes, or late: one rank does not tell",
}
_NAME = 60
"""Longest kernel name shown (characters)."""


def why_lines(answer: Why) -> Iterator[str]:
    """Yield the lines of the text."""
    ranks, steps = len(answer.ranks), answer.steps
    yield f"{counted(ranks, 'rank')}, {counted(steps, 'step')} each"
    yield ""
    yield format_table(
        ["rank", "whole trace", "idle", "computing", "communicating", "of it hidden", "waited"],
        [
            [
                str(recorded.rank),
                format_ns(part.whole_ns),
                _share(part.idle_ns, part.whole_ns),
                _share(part.compute_ns, part.whole_ns),
                _share(part.communication_ns, part.whole_ns),
                "–" if part.overlap is None else f"{part.overlap:.1%}",
                format_ns(part.exposed_ns),
            ]
            for recorded, part in zip(answer.ranks, answer.breakdowns, strict=True)
        ],
    )
    yield ""
    yield from _kernels(answer)
    yield from _step(answer)
    total, in_all = sum(answer.causes.values()), answer.in_all
    yield ""
    if not total:
        known = " that is known" if answer.unexplained else ""
        yield f"computation waited for no transfer{known}"
    else:
        yield (
            f"a step waits {format_ns(total // in_all)} for transfers, in the mean of ranks and "
            "steps:"
        )
        causes = sorted(answer.causes.items(), key=lambda pair: -pair[1])
        yield _shares("why", [(MEANINGS[name], time) for name, time in causes], total, in_all)
        yield ""
        yield from _longest(answer)
    yield ""
    yield from _saving(answer)


def _kernels(answer: Why) -> Iterator[str]:
    """Yield the kernels counted as transfers, and the doubtful ones."""
    for title, sets in (
        (
            "in the whole trace these kernels count as transfers",
            [rank.counted for rank in answer.ranks],
        ),
        (
            "these may be transfers and count as computation (--transfers REGEX settles it)",
            [rank.doubtful for rank in answer.ranks],
        ),
    ):
        sums: dict[tuple[str, str], list[int]] = {}
        for kernels in chain.from_iterable(sets):
            row = sums.setdefault((kernels.name, kernels.library), [0, 0])
            row[0] += kernels.times
            row[1] += kernels.total_ns
        if not sums:
            continue
        yield f"{title}:"
        rows = [
            [shortened(readable(name), _NAME), library or "–", str(times), format_ns(total)]
            for (name, library), (times, total) in sorted(
                sums.items(), key=lambda pair: (-pair[1][1], pair[0])
            )
        ]
        yield format_table(["kernel", "of", "times", "in all"], cut(rows))
        yield ""


def _step(answer: Why) -> Iterator[str]:
    """Yield the parts of a step."""
    parts, in_all = answer.parts, answer.in_all
    whole = sum(part.lasts_ns for part in parts)
    if not whole:
        return
    yield f"a step lasts {format_ns(whole // in_all)}, in the mean of ranks and steps:"
    rows = [
        ("computing", sum(part.compute_ns for part in parts)),
        ("waiting for transfers", sum(part.waited_ns for part in parts)),
        ("copying memory", sum(part.copied_ns for part in parts)),
        ("idle", sum(part.idle_ns for part in parts)),
    ]
    yield _shares("part", rows, whole, in_all)


def _shares(what: str, rows: list[tuple[str, int]], whole: int, in_all: int) -> str:
    """Return a table of the parts of a time above 0, in the mean and as shares."""
    cells = [(name, format_ns(time // in_all), _share(time, whole)) for name, time in rows if time]
    return format_table([what, "a step", "share"], cells)


def _longest(answer: Why) -> Iterator[str]:
    """Yield the transfers with the longest waits; equal transfers of all steps are summed."""

    def kind(wait: Any) -> tuple[Any, ...]:
        return wait.rank, wait.transfer.collective, wait.transfer.size_bytes or 0

    largest = max(wait.transfer.size_bytes or 0 for wait in answer.waits)
    rows = []
    for (rank, collective, size), group in groupby(sorted(answer.waits, key=kind), kind):
        waits = list(group)
        waited = sum(wait.waited_ns for wait in waits)
        if not waited:
            continue
        causes = {name: sum(wait.causes[name] for wait in waits) for name in answer.causes}
        cause = max(causes, key=causes.__getitem__)
        last = {wait.last_rank for wait in waits if wait.last_rank is not None} - {rank}
        blame = f"{cause} (rank {min(last)})" if cause == "straggler" and len(last) == 1 else cause
        carried = format_bytes(size, largest) if size else "?"
        rows.append(
            (
                waited,
                [f"{collective} {carried}", str(rank), str(len(waits)), format_ns(waited), blame],
            )
        )
    rows.sort(key=lambda row: -row[0])
    header = ["waited for", "rank", "times", "in all", "most of it"]
    yield format_table(header, cut([row for _, row in rows]))


def _saving(answer: Why) -> Iterator[str]:
    saving = answer.saving
    if answer.unexplained:
        yield _open(answer)
    else:
        least = (
            "how much any plan waits is unknown from one rank"
            if answer.one_of_several
            else f"any plan waits {format_ns(saving.least_ns)} at these computations, bytes, and "
            "fastest transfers"
        )
        yield (
            f"a better plan saves at most {format_ns(saving.at_most_ns)} of a step: of "
            f"{format_ns(saving.exposed_ns)} waited and not the host's fault, {least}"
        )
    if saving.plan_ns is None:
        if saving.reason:
            yield f"no plan was made: {saving.reason}"
    else:
        assert saving.planned is not None
        plan = saving.planned[1].plan
        yield (
            f"the plan waits {format_ns(saving.plan_ns)} with "
            f"{counted(len(plan.groups) if plan else 0, 'all-reduce')}, and saves "
            f"{format_ns(saving.saved_ns or 0)} besides what other ranks cause (-o writes it)"
        )


def _open(answer: Why) -> str:
    """Return the possible savings while some kernels may or may not be transfers."""
    saving, told = answer.saving, "say with --transfers REGEX which are transfers"
    known = f"known transfers are waited for {format_ns(saving.exposed_ns)} of a step"
    if saving.doubtful_ns:
        most = format_ns(saving.exposed_ns + saving.doubtful_ns)
        known += f", and if all kernels in doubt are transfers, {most}: {told}"
    elif any(rank.doubtful for rank in answer.ranks):
        known += f", and the kernels in doubt run during other computation: {told}"
    else:
        known = (
            "the job has several ranks, and its traces show no transfer: record the device too, or "
            "name the transfers with --transfers REGEX"
        )
    return f"what a better plan saves is open: {known}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"
