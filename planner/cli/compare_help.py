"""The options of ``planner compare`` and its help, which is split by problem.

The parser knows all options of all problems. ``--help`` alone shows the common options and an
example of each problem; with ``--problem NAME`` it shows the options of that problem.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from planner.cli.common import add_loudness, command
from planner.cli.compare_cluster import add_cluster_options
from planner.cli.compare_network import add_network_options
from planner.cli.family import DEFAULT_SECONDS, Family, Option
from planner.cli.iteration_options import add_ignoring, add_memory_options
from planner.cli.parsing import seconds
from planner.cli.suggesting import SuggestingParser

__all__ = ["add_compare"]

_SUMMARY = "compare every method on a request, or on a profiled model and a network"
_USAGE = "planner compare [--problem NAME] FILE [option ...]"

Families = Mapping[str, Family]


def add_compare(
    commands: Any, run: Callable[[argparse.Namespace], int], families: Families
) -> None:
    """Add the command with the options of all problems."""
    parser = command(commands, "compare", run, _SUMMARY, "planner compare request.json")
    parser.usage = _USAGE
    _add_common(parser, families)
    add_network_options(parser)
    for option, names in _options(families):
        _add_own(parser, " or ".join(names), [option])
    add_memory_options(add_cluster_options(parser))
    if isinstance(parser, SuggestingParser):
        parser.shown_for = partial(_shown, families)


def _add_common(parser: argparse.ArgumentParser, families: Families) -> None:
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="a profile, or a request of planner solve; '-': standard input",
    )
    parser.add_argument(
        "--problem",
        choices=list(families),
        metavar="NAME",
        help="what to do with a profile; a request says itself what it asks",
    )
    parser.add_argument("--methods", metavar="A,B,…", help="default: all that --help lists")
    parser.add_argument(
        "--time-limit",
        type=seconds,
        metavar="S",
        help=f"seconds a method; default: the request's, or {DEFAULT_SECONDS:g}",
    )
    parser.add_argument(
        "--picture", metavar="FILE", help="draw the best plan (.svg, .png, .json.gz)"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the best plan as JSON",
    )
    parser.add_argument("--json", action="store_true", help="print every answer as JSON, no table")


def _options(families: Families) -> list[tuple[Option, list[str]]]:
    """Return every option for profiles with the names of its problems."""
    options: dict[str, tuple[Option, list[str]]] = {}
    for name, family in families.items():
        for option in family.profiled.options if family.profiled else ():
            options.setdefault(option.name, (option, []))[1].append(name)
    return list(options.values())


def _add_own(parser: argparse.ArgumentParser, names: str, options: Sequence[Option]) -> None:
    """Add the options of some problems."""
    group = parser.add_argument_group(f"with a profile and --problem {names}")
    for option in options:
        group.add_argument(option.name, default=argparse.SUPPRESS, **option.settings)


def _shown(families: Families, arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser that prints the help of one problem, or the common help."""
    asking = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    asking.add_argument("--problem", nargs="?")
    asked, _ = asking.parse_known_args(list(arguments))
    family = families.get(asked.problem or "")
    about, usage = f"{_SUMMARY[0].upper()}{_SUMMARY[1:]}.", _USAGE
    if family is not None:
        about = f"{asked.problem}: {family.asks}."
        usage = f"planner compare --problem {asked.problem} FILE [option ...]"
        closing = [*_listed("methods", family.methods), "example:", f"  {family.example}"]
    else:
        closing = _problems(families)
    shown = argparse.ArgumentParser(
        prog="planner compare",
        usage=usage,
        description=about,
        epilog="\n".join(closing),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_loudness(shown)
    _add_common(shown, families)
    if family is not None and family.profiled is not None:
        add_network_options(shown)
        group = add_cluster_options(shown)
        if asked.problem == "iteration":
            add_memory_options(group)
        elif asked.problem == "yan":
            add_ignoring(group)
        _add_own(shown, asked.problem, family.profiled.options)
    return shown


def _problems(families: Families) -> list[str]:
    """Return the help's lines about each problem, with an example."""
    lines = ["problems, with an example of each:"]
    for name, family in families.items():
        lines += [f"  {name}: {family.asks}", f"    {family.example}"]
    lines += [
        "",
        "options and methods of one of them:",
        "  planner compare --problem NAME --help",
    ]
    return lines


def _listed(title: str, names: Sequence[str]) -> list[str]:
    """Return names in lines that fit a terminal."""
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) > 85:
            lines.append("")
        lines[-1] += f"{'' if lines[-1] else '  '}{name}, "
    return [f"{title}:", *(line.rstrip() for line in lines[:-1]), lines[-1].removesuffix(", "), ""]
