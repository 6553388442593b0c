"""``planner compare``: every method on one profile and one network, side by side."""

import argparse
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from planner.cli import compare_caramel, compare_ibatch
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
from planner.cli.draw import chart_of
from planner.cli.family import Family
from planner.comparison import Comparison
from planner.draw import format_table, text_gantt
from planner.errors import InvalidInputError
from planner.jsonio import decode_profile
from planner.profiles import Profile
from planner.units import parse_rate, parse_time

__all__ = ["add_parser"]

FAMILIES: Mapping[str, Family] = {
    "ibatch": compare_ibatch.FAMILY,
    "caramel": compare_caramel.FAMILY,
}
"""What can be compared."""


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(
        commands,
        "compare",
        run,
        "compare every way of batching a profiled model's communication",
        "planner compare data/profiles/vgg19.json --startup 100us --bandwidth 10Gb/s "
        "--picture plan.svg\n"
        "  planner compare data/profiles/resnet50.json --problem caramel --startup 50us "
        "--bandwidth 10Gb/s --workers 8",
    )
    parser.add_argument("profile", metavar="PROFILE", help="a profile; '-': standard input")
    parser.add_argument(
        "--problem",
        choices=list(FAMILIES),
        default="ibatch",
        help="ibatch: batches of layers (default); caramel: gradient transfers between workers",
    )
    parser.add_argument(
        "--startup", required=True, metavar="TIME", help="start-up cost of a communication: 100us"
    )
    parser.add_argument(
        "--bandwidth", required=True, metavar="RATE", help="10Gb/s (bits) or 1.25GB/s (bytes)"
    )
    parser.add_argument(
        "--methods",
        metavar="A,B,…",
        help="default: all of "
        + "; ".join(f"{', '.join(one.methods)} ({name})" for name, one in FAMILIES.items()),
    )
    parser.add_argument(
        "--time-limit", type=float, default=10.0, metavar="S", help="seconds a method; default: 10"
    )
    parser.add_argument(
        "--picture", metavar="FILE", help="draw the best plan (.svg, .png, .json.gz)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the best plan as JSON")
    parser.add_argument("--json", action="store_true", help="print every answer as JSON, no table")
    for name, family in FAMILIES.items():
        group = parser.add_argument_group(f"with --problem {name}")
        for option in family.options:
            group.add_argument(option.name, default=argparse.SUPPRESS, **option.settings)


def run(options: argparse.Namespace) -> int:
    """Compare."""
    family = FAMILIES[options.problem]
    _settle(options)
    startup = parse_time(options.startup, "--startup")
    rate = parse_rate(options.bandwidth, "--bandwidth")
    family.check(options)
    if options.picture:
        picture_format(Path(options.picture))
    try:
        profile = decode_profile(read(options.profile))
        subject = family.subject(profile, options)
    except InvalidInputError as error:
        raise in_file(options.profile, error) from None
    try:
        problem = family.problem(subject, startup, rate, options)
    except InvalidInputError as error:
        raise InvalidInputError("--startup, --bandwidth", error.message) from None
    progress = Progress()
    comparison = family.compare(
        problem,
        methods=None if options.methods is None else options.methods.split(","),
        time_limit=options.time_limit,
        progress=lambda method: progress(f"running {method}"),
    )
    progress.done()
    answers = [family.answer(subject, problem, row.result) for row in comparison.rows]
    if options.json:
        write_json(msgspec.json.encode(answers).decode() + "\n", None)
    else:
        _print_table(family, profile, problem, comparison, options)
    best = answers[0] if answers and comparison.rows[0].result.plan is not None else None
    if best is None:
        print("planner: no method found a plan", file=sys.stderr)
        return 0
    chart = chart_of(best, profile.name)
    if not options.json:
        width = shutil.get_terminal_size((100, 24)).columns
        write_text("\n" + text_gantt(chart, width) + "\n")
    if options.output:
        write_json(msgspec.json.encode(best).decode() + "\n", options.output)
    if options.picture:
        save_picture(chart, Path(options.picture))
    return 0


def _settle(options: argparse.Namespace) -> None:
    """Refuse options of other problems, and set those not given to their defaults."""
    given = vars(options)
    for name, family in FAMILIES.items():
        for option in family.options:
            if name == options.problem:
                given.setdefault(option.key, option.default)
            elif option.key in given:
                raise InvalidInputError(
                    option.name, f"does not apply to --problem {options.problem}, only to {name}"
                )


def _print_table(
    family: Family,
    profile: Profile,
    problem: Any,
    comparison: Comparison[Any, Any],
    options: argparse.Namespace,
) -> None:
    origin = profile.provenance
    about = ["profile", origin.kind, origin.date, origin.processor]
    samples = f", batch size {profile.batch_size}" if profile.batch_size else ""
    header, rows = family.table(comparison)
    lines = [
        family.summary(profile, problem),
        " ".join(filter(None, about)) + samples,
        family.network(options),
        "",
        format_table(header, rows),
    ]
    lines += [
        f"{row.result.method}: {row.result.infeasibility.reason}"
        for row in comparison.rows
        if row.result.infeasibility
    ]
    lines += [f"left out: {method} ({reason})" for method, reason in comparison.left_out]
    write_text("\n".join(lines) + "\n")
