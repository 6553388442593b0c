"""``planner compare``: compare all methods on one problem.

The problem comes from a request, or from a profile and a network.
"""

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from planner.cli import (
    compare_bigdl,
    compare_bml,
    compare_caramel,
    compare_drizzle,
    compare_fsdp,
    compare_ibatch,
    compare_iteration,
    compare_overlap,
    compare_yan,
)
from planner.cli.common import (
    check_outputs,
    in_file,
    in_option,
    read,
    write_json,
    write_text,
)
from planner.cli.compare_cluster import MEMORY, OPTIONS, settle_cluster
from planner.cli.compare_help import add_compare
from planner.cli.compare_network import ASSUMED, on_network, settle_network
from planner.cli.family import DEFAULT_SECONDS, ComparedProblem, Family, Profiled, warning_lines
from planner.cli.interrupting import ended, interruptible
from planner.cli.parsing import parse_names
from planner.cli.progress import Progress
from planner.cli.regret_text import beside
from planner.cli.writing import replacing
from planner.comparison import Comparison, compare
from planner.draw import format_table
from planner.draw.plans import DRAWINGS, plan_chart
from planner.errors import InvalidInputError, PlannerError
from planner.jsonio import PROBLEMS, decode_profile
from planner.jsonio.decoding import decode
from planner.jsonio.heads import Head
from planner.jsonio.mistaken import refuse_other
from planner.jsonio.service import decode_request
from planner.jsonio.types import or_none
from planner.printing import printable

__all__ = ["add_parser"]

FAMILIES: Mapping[str, Family] = {
    "ibatch": compare_ibatch.FAMILY,
    "caramel": compare_caramel.FAMILY,
    "yan": compare_yan.FAMILY,
    "bml": compare_bml.FAMILY,
    "bigdl": compare_bigdl.FAMILY,
    "drizzle": compare_drizzle.FAMILY,
    "fsdp": compare_fsdp.FAMILY,
    "iteration": compare_iteration.FAMILY,
    "overlap": compare_overlap.FAMILY,
}
"""Families that can be compared."""

_MEMORY: Mapping[str, Sequence[str]] = {
    "fsdp": ("--activations",),
    "iteration": (),
    "yan": ("--activations",),
}
"""Memory options that a problem does not take; problems without an entry take none."""

PROFILED: Mapping[str, Profiled] = {
    name: family.profiled for name, family in FAMILIES.items() if family.profiled is not None
}
"""Families that can be compared on a profile; the first is the default."""


def add_parser(commands: Any) -> None:
    """Add the command."""
    add_compare(commands, run, FAMILIES)


def run(options: argparse.Namespace) -> int:
    """Compare the methods; print a table or JSON and write the best plan."""
    name, compared = _of_events(options) if "events" in options else _of_file(options)
    family, drawing = FAMILIES[name], DRAWINGS[name]
    with in_option("--picture"):
        draw = drawing.writer(Path(options.picture)) if options.picture else None
    inputs = options.events if "events" in options and options.events else (options.file,)
    check_outputs({"--picture": options.picture, "--output": options.output}, inputs)
    seconds = compared.time_limit or DEFAULT_SECONDS
    progress = Progress(quiet=options.quiet)
    limit = seconds if options.time_limit is None else options.time_limit
    with interruptible() as cancel:
        comparison = compare(
            compared.problem,
            parse_names(options.methods, "--methods")
            if options.methods
            else compared.methods or family.methods,
            solve=compared.solve or partial(family.solve, cancel=cancel),
            time_limit=limit,
            progress=lambda method: progress(f"running {method}, at most {limit:g} s"),
            cancel=cancel,
        )
    results = comparison.rows
    best = None
    if results and results[0].plan is not None:
        progress(f"looking around the plan of {results[0].method}")
        best = compared.told((compared.best or compared.answer)(results[0]), results[0])
    progress.done()
    chart = None if best is None else plan_chart(best, PROBLEMS[name].view(best), compared.name)
    to_file = options.output not in (None, "-")
    if best is not None and to_file:  # before standard output, whose reader may stop early
        write_json(msgspec.json.encode(best).decode() + "\n", options.output)
    try:
        if options.json:
            first = [] if best is None else [best]
            others = results if compared.best_apart else results[len(first) :]
            rest = (compared.told(compared.answer(result), result) for result in others)
            answers = [*first, *rest]
            write_json(msgspec.json.encode(answers).decode() + "\n", None)
        else:
            _print_table(family, compared, comparison, best)
            if chart is not None:
                width = shutil.get_terminal_size((100, 24)).columns
                write_text("\n" + drawing.text(chart, width) + "\n")
        if best is None:
            print("planner: no method found a plan", file=sys.stderr)
        elif options.output and not to_file:
            write_json(msgspec.json.encode(best).decode() + "\n", options.output)
    finally:
        if draw is not None and chart is not None:
            with replacing(options.picture) as place:
                draw(chart, place)
    return ended(cancel)


def _of_events(options: argparse.Namespace) -> tuple[str, ComparedProblem]:
    """Return the name and the problem of Spark's event logs."""
    options.problem = options.problem or "drizzle"
    if options.file:
        raise InvalidInputError("FILE", "not together with --events, which say it all")
    others = ("--startup", "--bandwidth", "--network", "--network-model")
    _refuse(options, (*others, *OPTIONS), "--events")
    vars(options).setdefault("max_group", None)  # a log does not tell its users' limit
    _settle(options, options.problem)
    return options.problem, compare_drizzle.of_events(options)


def _of_file(options: argparse.Namespace) -> tuple[str, ComparedProblem]:
    """Return the name and the problem of a request, or of a profile."""
    if not options.file:
        raise InvalidInputError("FILE", "missing: a profile, or a request of planner solve")
    data = read(options.file)
    with in_file(options.file):
        value = decode(data)
    of_request = isinstance(value, dict) and "problem" in value
    if isinstance(value, dict) and of_request and "status" in value:
        raise PlannerError(f"{options.file}: holds an answer: expected a request or a profile")
    if not of_request:
        with in_file(options.file):
            refuse_other(value, "profile")
    return (_requested if of_request else _profiled)(data, options)


def _apart() -> list[str]:
    """Return the options that build a problem from a profile."""
    only = ["--problem", "--startup", "--bandwidth", "--network", "--network-model"]
    return only + [option.name for profiled in PROFILED.values() for option in profiled.options]


def _refuse(options: argparse.Namespace, names: Sequence[str], where: str) -> None:
    """Raise InvalidInputError for the first given option that does not apply."""
    for name in names:
        if vars(options).get(name.removeprefix("--").replace("-", "_")) is not None:
            raise InvalidInputError(name, f"does not apply to {where}")


def _requested(data: bytes, options: argparse.Namespace) -> tuple[str, ComparedProblem]:
    """Return the name and the problem of a request."""
    _refuse(
        options,
        (*_apart()[1:], *OPTIONS),
        f"a request, and {options.file} holds one, not a profile",
    )
    with in_file(options.file):
        request = decode_request(data)
        problem: str = request.problem
        compared = FAMILIES[problem].requested(request)
        compared = replace(compared, time_limit=or_none(request.time_limit_s))
    if options.problem not in (None, problem):
        raise InvalidInputError("--problem", f"{options.file} holds a request of {problem}")
    return problem, compared


def _profiled(data: bytes, options: argparse.Namespace) -> tuple[str, ComparedProblem]:
    """Return the name and the problem of a profile on a network."""
    problem: str = options.problem or next(iter(PROFILED))
    if problem not in PROFILED:
        raise InvalidInputError(
            "--problem", f"{problem} needs a request; {options.file} holds a profile"
        )
    family = PROFILED[problem]
    _settle(options, problem)
    _refuse(options, _MEMORY.get(problem, MEMORY), f"--problem {problem}")
    scale = settle_cluster(options)
    network = settle_network(options, family)
    family.check(options)
    with in_file(options.file):
        profile = decode_profile(data).scaled(scale)
        part = family.part(profile, options)
    typed = on_network(part, family, network, options)
    compared = family.compared(profile, part, typed, options)
    notes = () if options.network is None else options.network.notes
    return problem, replace(compared, warnings=(*compared.warnings, *notes), profile=profile)


def _settle(options: argparse.Namespace, problem: str) -> None:
    """Refuse options of other problems, and set missing options to their defaults."""
    settings = vars(options)
    own = {option.key for option in PROFILED[problem].options}
    for name, family in PROFILED.items():
        for option in family.options:
            if name == problem:
                settings.setdefault(option.key, option.default)
            elif option.key in settings and option.key not in own:
                raise InvalidInputError(
                    option.name, f"does not apply to --problem {problem}, only to {name}"
                )


def _print_table(
    family: Family, compared: ComparedProblem, comparison: Comparison[Any, Any], best: Head | None
) -> None:
    known = () if compared.profile is None else compared.profile.doubts
    doubts = (*known, *compared.warnings)
    doubts = doubts if best is None or best.warnings is UNSET else best.warnings
    about = list(map(printable, compared.about))
    first = [text for text in doubts if text == ASSUMED]
    rest = [text for text in doubts if text != ASSUMED]
    lines = [
        *warning_lines(first),
        *about,
        *warning_lines(rest),
        "",
        format_table(*family.table(comparison)),
    ]
    lines += [
        printable(f"{row.method}: {row.infeasibility.reason}")
        for row in comparison.rows
        if row.infeasibility
    ]
    lines += [printable(f"left out: {method} ({reason})") for method, reason in comparison.left_out]
    lines += map(printable, compared.notes(comparison) if compared.notes else ())
    remarks = list(beside(best))
    lines += ["", *remarks] if remarks and remarks[0] else remarks
    write_text("\n".join(lines) + "\n")
