"""``planner compare``: every method on one profile and one network, side by side."""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

from planner import ibatch
from planner.cli.common import (
    Progress,
    command,
    in_file,
    picture_format,
    read,
    save_picture,
    write_json,
    write_text,
)
from planner.cli.draw import title
from planner.costs import AffineCost
from planner.draw import Chart, format_table, text_gantt
from planner.errors import InvalidInputError
from planner.ibatch.comparison import Comparison, Row, compare
from planner.jsonio import decode_profile
from planner.jsonio import ibatch as ibatch_json
from planner.profiles import Profile
from planner.units import format_bytes, format_ns, parse_bytes, parse_rate, parse_time
from planner.validation import integer

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(
        commands,
        "compare",
        run,
        "compare every way of batching a profiled model's communication",
        "planner compare data/profiles/vgg19.json --startup 100us --bandwidth 10Gb/s "
        "--picture plan.svg",
    )
    parser.add_argument("profile", metavar="PROFILE", help="a profile; '-': standard input")
    parser.add_argument(
        "--startup", required=True, metavar="TIME", help="start-up cost of a communication: 100us"
    )
    parser.add_argument(
        "--bandwidth", required=True, metavar="RATE", help="10Gb/s (bits) or 1.25GB/s (bytes)"
    )
    parser.add_argument(
        "--direction",
        choices=["pull", "push"],
        default="pull",
        help="pull: parameters before the forward pass (default); push: gradients after backward",
    )
    parser.add_argument(
        "--granularity",
        choices=["block", "layer"],
        default="block",
        help="unit to batch: whole blocks of branches (default), or every layer with parameters",
    )
    parser.add_argument(
        "--objective",
        choices=["makespan", "eq4"],
        default="makespan",
        help="the real makespan (default), or the iBatch paper's Eq. 4 under its Eq. 5",
    )
    parser.add_argument("--max-batch", metavar="SIZE", help="cap on the size of a batch: 64MiB")
    parser.add_argument(
        "--methods", metavar="A,B,…", help=f"default: all of {', '.join(list(ibatch.METHODS)[1:])}"
    )
    parser.add_argument(
        "--time-limit", type=float, default=10.0, metavar="S", help="seconds a method; default: 10"
    )
    parser.add_argument(
        "--picture", metavar="FILE", help="draw the best plan (.svg, .png, .json.gz)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the best plan as JSON")
    parser.add_argument("--json", action="store_true", help="print every answer as JSON, no table")


def run(options: argparse.Namespace) -> int:
    """Compare."""
    startup = parse_time(options.startup, "--startup")
    rate = parse_rate(options.bandwidth, "--bandwidth")
    cap = None if options.max_batch is None else parse_bytes(options.max_batch, "--max-batch")
    if cap is not None:
        integer(cap, "--max-batch", minimum=1)
    if options.picture:
        picture_format(Path(options.picture))
    try:
        profile = decode_profile(read(options.profile))
        chain = profile.chain(options.granularity)
    except InvalidInputError as error:
        raise in_file(options.profile, error) from None
    try:
        problem = ibatch.Problem.from_profile(
            chain,
            AffineCost.from_bandwidth(startup, rate),
            direction=options.direction,
            objective=options.objective,
            max_batch_bytes=cap,
        )
    except InvalidInputError as error:
        raise InvalidInputError("--startup, --bandwidth", error.message) from None
    progress = Progress()
    comparison = compare(
        problem,
        methods=None if options.methods is None else options.methods.split(","),
        time_limit=options.time_limit,
        progress=lambda method: progress(f"running {method}"),
    )
    progress.done()
    names = tuple(layer.name for layer in chain.layers)
    answers = [ibatch_json.answer(problem, row.result, names) for row in comparison.rows]
    if options.json:
        write_json(msgspec.json.encode(answers).decode() + "\n", None)
    else:
        _print_table(profile, problem, comparison, options)
    best = answers[0] if answers and answers[0].schedule is not msgspec.UNSET else None
    if best is None:
        print("planner: no method found a plan", file=sys.stderr)
        return 0
    timeline = ibatch_json.timeline(best)
    chart = Chart(title(best, timeline, profile.name), timeline, best.lower_bound_ns)
    if not options.json:
        width = shutil.get_terminal_size((100, 24)).columns
        write_text("\n" + text_gantt(chart, width) + "\n")
    if options.output:
        write_json(msgspec.json.encode(best).decode() + "\n", options.output)
    if options.picture:
        save_picture(chart, Path(options.picture))
    return 0


def _print_table(
    profile: Profile, problem: ibatch.Problem, comparison: Comparison, options: argparse.Namespace
) -> None:
    origin = profile.provenance
    about = ["profile", origin.kind, origin.date, origin.processor]
    assert problem.layer_bytes is not None
    what = (
        f"{profile.name}, {problem.direction}: {problem.layers} units, "
        f"{format_bytes(sum(problem.layer_bytes))} to send, "
        f"{format_ns(problem.compute_prefix[-1])} to compute"
    )
    samples = f", batch size {profile.batch_size}" if profile.batch_size else ""
    lines = [
        what,
        " ".join(filter(None, about)) + samples,
        f"network: start-up {options.startup}, bandwidth {options.bandwidth}",
        "",
        format_table(
            (
                "method",
                "batches",
                "makespan",
                "exposed comm.",
                "overlap",
                "above bound",
                "status",
                "run time",
            ),
            [_cells(row) for row in comparison.rows],
        ),
    ]
    lines += [
        f"{row.result.method}: {row.result.infeasibility.reason}"
        for row in comparison.rows
        if row.result.infeasibility
    ]
    lines += [f"left out: {method} ({reason})" for method, reason in comparison.left_out]
    write_text("\n".join(lines) + "\n")


def _percent(gap: float | None) -> str:
    if gap is None:
        return "?"
    return "<0.01%" if 0 < gap < 5e-5 else f"{gap:.2%}"


def _cells(row: Row) -> tuple[str, ...]:
    result, evaluation = row.result, row.evaluation
    runtime = f"{result.runtime_s * 1e3:.3g} ms"
    if result.plan is None or evaluation is None:
        return (result.method, "–", "–", "–", "–", "–", result.status, runtime)
    return (
        result.method,
        str(len(result.plan.batches)),
        format_ns(evaluation.makespan_ns),
        format_ns(evaluation.exposed_communication_ns),
        format_ns(evaluation.overlap_ns),
        _percent(result.gap),
        result.status,
        runtime,
    )
