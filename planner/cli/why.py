"""``planner why``: explain the waiting of a recorded job and what a plan could save."""

import argparse
from typing import Any

from planner.cli.common import command
from planner.cli.recorded import missing_ranks, pattern, read_ranks, write_outputs
from planner.cli.why_text import why_lines
from planner.formats.importers.kineto import profile_in
from planner.jsonio import caramel
from planner.jsonio.why import why_report
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph
from planner.traces.recorded import Recorded
from planner.traces.why import why
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
        {"--transfers": {"type": pattern}},
    )


def run(options: argparse.Namespace) -> int:
    """Read the traces, analyse them, and print the result."""
    progress = Progress(quiet=options.quiet)
    ranks: list[Recorded] = []
    warnings: list[str] = []
    graph: Graph | None = None
    reason = ""
    for _, name, trace, recorded, remarks in read_ranks(
        options.traces, options.transfers, progress
    ):
        ranks.append(recorded)
        warnings += remarks
        if graph is None:
            try:
                graph, reason = profile_in(trace, name=name, source=name)[0].graph, ""
            except InvalidInputError as error:
                reason = f"{name}: {error}"
    progress("planning")
    answer = why(ranks, graph, reason, time_limit=options.time_limit)
    progress.done()
    warnings += missing_ranks(ranks)
    document = None
    if options.output:
        if answer.saving.planned is None:
            raise InvalidInputError("--output", f"there is no plan: {answer.saving.reason}")
        document = caramel.answer(*answer.saving.planned)
    report = why_report(answer, warnings)
    return write_outputs(options, document, report, why_lines(answer), warnings)
