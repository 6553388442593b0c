"""``planner why``: what a recorded job's computation waited for, and what a plan could save."""

import argparse
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from planner.cli.common import (
    check_outputs,
    command,
    in_file,
    readable,
    warn,
    write_json,
    write_text,
)
from planner.cli.importing import opened
from planner.cli.parsing import seconds
from planner.cli.progress import Progress
from planner.draw import format_table
from planner.errors import InvalidInputError
from planner.formats.kineto import profile_in
from planner.formats.kineto_clocks import clock_remarks
from planner.formats.kineto_recorded import recorded_in
from planner.formats.kineto_trace import read_trace
from planner.graphs import Graph
from planner.jsonio import caramel
from planner.jsonio.why import why_report
from planner.printing import escaped
from planner.traces.recorded import Recorded
from planner.traces.why import Why, why
from planner.units import counted, format_bytes, format_ns

__all__ = ["add_parser"]

_ROWS = 12
_MB = 10**6
MEANINGS = {
    "input": "the host waited for data",
    "host": "the host launched the next kernel too late",
    "straggler": "another rank came later",
    "slow": "it lasted longer than the fastest transfers here",
    "startup": "start-ups",
    "late": "it was ready, the network idle, and it had not begun",
    "large": "part of it was ready, and the network idle",
    "bytes": "the network was busy: its bytes, and those before it",
}


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(
        commands,
        "why",
        run,
        "say what the computation of a recorded job waited for, and what a plan could save",
        "planner why rank0.json.gz rank1.json.gz -o plan.json",
    )
    parser.add_argument(
        "traces",
        metavar="TRACE",
        nargs="+",
        help="traces of PyTorch's profiler (.json, .json.gz), one a rank; '-': standard input",
    )
    parser.add_argument(
        "--json", action="store_true", help="print all of it as JSON: planner schema why"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the plan that saves it")
    parser.add_argument(
        "--time-limit", type=seconds, metavar="S", help="for planning; default: no limit"
    )


def run(options: argparse.Namespace) -> int:
    """Read, analyse, and show."""
    check_outputs({"--output": options.output}, options.traces)
    progress = Progress(quiet=options.quiet)
    ranks: list[Recorded] = []
    warnings: list[str] = []
    graph: Graph | None = None
    reason = ""
    for place, path in enumerate(options.traces):
        recorded, remarks, made, lacking = _read(path, place, progress, wanted=graph is None)
        ranks.append(recorded)
        warnings += remarks
        graph, reason = made or graph, lacking
    progress("planning")
    answer = why(ranks, graph, reason, time_limit=options.time_limit)
    progress.done()
    if options.output and answer.saving.planned is None:
        raise InvalidInputError("--output", f"there is no plan: {answer.saving.reason}")
    if options.output and answer.saving.planned is not None:
        write_json(_plan(answer), options.output)
    if options.json:
        report = msgspec.json.encode(why_report(answer, warnings))
        write_json(msgspec.json.format(report, indent=1).decode() + "\n", None)
    else:
        warn(f"warning: {escaped(warning)}" for warning in warnings)
        write_text("\n".join([*_lines(answer), ""]))
    return 0


def _read(
    path: str, place: int, progress: Progress, *, wanted: bool
) -> tuple[Recorded, list[str], Graph | None, str]:
    """Return a rank, what is to be said of its trace, and its dataflow or why there is none."""
    name = readable(Path(path).name)
    with opened(path) as (source, size), in_file(path):
        trace = read_trace(
            source,
            progress=lambda done: progress(
                f"{name}: MB read:", done // _MB, max(size, done) // _MB
            ),
        )
    remarks = [f"{name}: {remark}" for remark in clock_remarks(trace)]
    recorded = recorded_in(trace, place)
    if not recorded.steps:
        remarks.append(f"{name}: no steps are marked (ProfilerStep#N): the trace counts as one")
    if not recorded.transfers:
        remarks.append(f"{name}: nothing was sent: no collectives of NCCL, gloo or MPI")
    if trace.unknown:
        remarks.append(f"{name}: left out: events of category {', '.join(trace.unknown)}")
    if not wanted:
        return recorded, remarks, None, ""
    try:
        profile, _ = profile_in(trace, name=name, source=name)
    except InvalidInputError as error:
        return recorded, remarks, None, f"{name}: {error}"
    return recorded, remarks, profile.graph, ""


def _plan(answer: Why) -> str:
    planned = answer.saving.planned
    assert planned is not None
    document = caramel.answer(planned.problem, planned.result)
    return msgspec.json.encode(document).decode() + "\n"


def _lines(answer: Why) -> Iterator[str]:
    ranks, steps = len(answer.ranks), answer.steps
    yield f"{counted(ranks, 'rank')}, {counted(steps, 'step')} each"
    yield ""
    yield format_table(
        ["rank", "whole", "idle", "computing", "communicating", "of it hidden", "waited"],
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
    total = sum(answer.causes.values())
    yield ""
    if not total:
        yield "computation waited for no transfer"
    else:
        each = total // (steps * ranks)
        yield f"a step waits {format_ns(each)} for transfers, in the mean of ranks and steps:"
        yield format_table(
            ["why", "a step", "share"],
            [
                [MEANINGS[name], format_ns(time // (steps * ranks)), _share(time, total)]
                for name, time in sorted(answer.causes.items(), key=lambda pair: -pair[1])
                if time
            ],
        )
        yield ""
        yield from _longest(answer)
    yield ""
    yield from _saving(answer)


def _longest(answer: Why) -> Iterator[str]:
    """Yield the transfers that were waited for longest, the same ones of all steps together."""

    def kind(wait: Any) -> tuple[Any, ...]:
        return wait.rank, wait.transfer.collective, wait.transfer.size_bytes or 0

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
        carried = format_bytes(size) if size else "?"
        rows.append(
            (
                waited,
                [f"{collective} {carried}", str(rank), str(len(waits)), format_ns(waited), blame],
            )
        )
    rows.sort(key=lambda row: -row[0])
    yield format_table(
        ["waited for", "rank", "times", "in all", "most of it"], [row for _, row in rows[:_ROWS]]
    )
    if len(rows) > _ROWS:
        yield f"… and {len(rows) - _ROWS} more (--json has all)"


def _saving(answer: Why) -> Iterator[str]:
    saving = answer.saving
    yield (
        f"a better plan saves at most {format_ns(saving.at_most_ns)} of a step: of "
        f"{format_ns(saving.exposed_ns)} waited and not the host's fault, any plan waits "
        f"{format_ns(saving.least_ns)} at these computations, bytes, and fastest transfers"
    )
    if saving.plan_ns is None:
        if saving.reason:
            yield f"no plan was made: {saving.reason}"
    else:
        assert saving.planned is not None
        plan = saving.planned.result.plan
        yield (
            f"the plan waits {format_ns(saving.plan_ns)} with "
            f"{counted(len(plan.groups) if plan else 0, 'all-reduce')}, and saves "
            f"{format_ns(saving.saved_ns or 0)} besides what other ranks cause (-o writes it)"
        )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"
