"""Recorded traces as the commands read them: one a rank, with remarks on possible faults."""

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from planner.cli.common import file_name, in_file, read, warn, write_json, write_text
from planner.formats.importers.kineto_recorded import recorded_in
from planner.formats.importers.kineto_trace import Trace, clock_remarks, read_trace
from planner.model.units import counted, escaped, format_ns
from planner.traces.recorded import Recorded
from planner.traces.waits import one_of_several
from planner.view.progress import Progress


def pattern(text: str) -> re.Pattern[str]:
    """Return the pattern of an option."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"not a regular expression: {error}") from None


class Read(NamedTuple):
    """A trace of one rank."""

    path: str
    name: str  # of its file
    trace: Trace
    recorded: Recorded
    remarks: tuple[str, ...]  # possible faults, with the file's name


def read_ranks(
    paths: Sequence[str], transfers: re.Pattern[str] | None, progress: Progress
) -> Iterator[Read]:
    """Yield the traces of files; `transfers` names further kernels that are transfers."""
    for place, path in enumerate(paths):
        name = file_name(path)
        progress(f"reading {name}")
        data = read(path)
        with in_file(path, data=data):
            trace = read_trace(data)
        recorded = recorded_in(trace, place, transfers=transfers)
        remarks = tuple(f"{name}: {text}" for text in _remarks(trace, recorded, transfers))
        yield Read(path, name, trace, recorded, remarks)


def _remarks(trace: Trace, recorded: Recorded, transfers: re.Pattern[str] | None) -> Iterator[str]:
    """Yield the possible faults of a trace, or of its reading."""
    yield from clock_remarks(trace)
    if not recorded.steps:
        yield "no steps are marked (ProfilerStep#N): the trace counts as one"
    elif not recorded.periods:
        steps = counted(len(recorded.steps), "step")
        yield f"no kernel is known to be launched in a step: all of the trace counts to the {steps}"
    else:
        begin, end = recorded.periods[0][0], recorded.periods[-1][1]
        aside = [it for it in recorded.transfers if it.end_ns <= begin or it.start_ns >= end]
        if aside:
            yield (
                f"{len(aside)} of {counted(len(recorded.transfers), 'transfer')}, "
                f"{format_ns(sum(it.lasts_ns for it in aside))} in all, ran before or behind the "
                "marked steps: no step's wait"
            )
    if not recorded.transfers:
        what = "no kernel or range is a transfer of a known library"
        if transfers is not None:
            what = f"no name matches {transfers.pattern!r} or a known library's transfers"
        if recorded.several:
            ranks = f"{recorded.ranks or 'several'} ranks"
            yield (
                f"the job has {ranks}, and {what}: what was sent counts as computation, or was "
                "not recorded"
            )
        else:
            yield f"nothing was sent: {what}"
    if trace.unknown:
        yield f"left out: events of category {', '.join(trace.unknown)}"


def write_outputs(
    options: argparse.Namespace,
    plan: object | None,
    report: object,
    lines: Iterable[str],
    warnings: Iterable[str],
) -> int:
    """Write a plan with ``--output``, and print a report as JSON or as lines; return the status."""
    if options.output and plan is not None:
        write_json(msgspec.json.encode(plan).decode() + "\n", options.output)
    if options.json:
        document = msgspec.json.format(msgspec.json.encode(report), indent=1)
        write_json(document.decode() + "\n", None)
    else:
        warn(f"warning: {escaped(warning)}" for warning in warnings)
        write_text("\n".join([*lines, ""]))
    return 0


def missing_ranks(recorded: Sequence[Recorded]) -> Iterator[str]:
    """Yield a remark if traces of some ranks are missing."""
    ranks = max((rank.ranks or 0 for rank in recorded), default=0)
    if one_of_several(recorded):
        yield (
            f"one rank of {ranks or 'several'} was given: waiting for other ranks, starting up and "
            "sending cannot be told apart; give the traces of all ranks"
        )
    elif 1 < len(recorded) < ranks:
        yield (
            f"{len(recorded)} of {ranks} ranks were given: waiting for the others counts as "
            "slow transfers or start-ups"
        )
