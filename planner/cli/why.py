"""``planner why``: explain the waiting of a recorded job and what a plan could save."""

import argparse
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from planner.cli.common import (
    command,
    file_name,
    in_file,
    read,
    warn,
    write_json,
    write_text,
)
from planner.cli.why_text import why_lines
from planner.formats.importers.kineto import profile_in
from planner.formats.importers.kineto_recorded import recorded_in
from planner.formats.importers.kineto_trace import Trace, clock_remarks, read_trace
from planner.jsonio import caramel
from planner.jsonio.why import why_report
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph
from planner.model.units import counted, escaped, format_ns
from planner.traces.recorded import Recorded
from planner.traces.why import Why, why
from planner.view.progress import Progress


def add_parser(commands: Any) -> None:
    """Add the command."""
    command(
        commands,
        "why",
        run,
        "say what the computation of a recorded job waited for, and what a plan could save",
        "planner why rank0.json.gz rank1.json.gz -o plan.json",
        {
            "traces TRACE+": "traces of PyTorch's profiler (.json, .json.gz), one a rank; '-': "
            "standard input",
            "--transfers REGEX": "kernels whose names REGEX is found in are transfers too, and "
            "none is in doubt; default: those of known libraries, the doubtful ones are named",
            "--json": "print all of it as JSON: planner schema why",
            "-o, --output FILE": "write the plan that saves it",
            "--time-limit S": "for planning; default: no limit",
        },
        {"--transfers": {"type": _pattern}},
    )


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"not a regular expression: {error}") from None


def run(options: argparse.Namespace) -> int:
    """Read the traces, analyse them, and print the result."""
    progress = Progress(quiet=options.quiet)
    ranks: list[Recorded] = []
    warnings: list[str] = []
    graph: Graph | None = None
    reason = ""
    for place, path in enumerate(options.traces):
        name = file_name(path)
        progress(f"reading {name}")
        data = read(path)
        with in_file(path, data=data):
            trace = read_trace(data)
        ranks.append(recorded_in(trace, place, transfers=options.transfers))
        remarks = _remarks(trace, ranks[-1], options.transfers)
        warnings += [f"{name}: {remark}" for remark in remarks]
        if graph is None:
            try:
                graph, reason = profile_in(trace, name=name, source=name)[0].graph, ""
            except InvalidInputError as error:
                reason = f"{name}: {error}"
    progress("planning")
    answer = why(ranks, graph, reason, time_limit=options.time_limit)
    progress.done()
    warnings += _missing_ranks(answer)
    if options.output:
        if answer.saving.planned is None:
            raise InvalidInputError("--output", f"there is no plan: {answer.saving.reason}")
        document = caramel.answer(*answer.saving.planned)
        write_json(msgspec.json.encode(document).decode() + "\n", options.output)
    if options.json:
        report = msgspec.json.encode(why_report(answer, warnings))
        write_json(msgspec.json.format(report, indent=1).decode() + "\n", None)
    else:
        warn(f"warning: {escaped(warning)}" for warning in warnings)
        write_text("\n".join([*why_lines(answer), ""]))
    return 0


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


def _missing_ranks(answer: Why) -> Iterator[str]:
    """Yield a remark if traces of some ranks are missing."""
    ranks = max((rank.ranks or 0 for rank in answer.ranks), default=0)
    if answer.one_of_several:
        yield (
            f"one rank of {ranks or 'several'} was given: waiting for other ranks, starting up and "
            "sending cannot be told apart; give the traces of all ranks"
        )
    elif 1 < len(answer.ranks) < ranks:
        yield (
            f"{len(answer.ranks)} of {ranks} ranks were given: waiting for the others counts as "
            "slow transfers or start-ups"
        )
