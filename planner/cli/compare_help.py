"""The options of ``planner compare``, and its help: short, and of one problem at a time.

The parser knows all options of all problems. ``--help`` by itself shows what they have in common,
and the problems with an example of each; beside ``--problem NAME`` or ``--peers`` it shows what
belongs to that.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from planner.cli import compare_peers
from planner.cli.common import add_loudness, command
from planner.cli.compare_network import add_network_options
from planner.cli.family import DEFAULT_SECONDS, Family, Option
from planner.cli.iteration_options import add_ignoring, add_memory_options
from planner.cli.parsing import seconds
from planner.cli.suggesting import SuggestingParser
from planner.iteration import METHODS as PEERS
from planner.methods import concrete

__all__ = ["add_compare"]

_SUMMARY = "compare every method on a request, or on a profiled model and a network"
_OF_PEERS = "planner compare --peers PROFILE ... --cluster FILE ... [option ...]"
_USAGE = f"planner compare [--problem NAME] FILE [option ...]\n       {_OF_PEERS}"
_PEERS = (
    "planner compare --peers data/profiles/vgg19.json data/profiles/resnet50.json "
    "--cluster caramel-16 --computation 1,0.02"
)

Families = Mapping[str, Family]


def add_compare(
    commands: Any, run: Callable[[argparse.Namespace], int], families: Families
) -> None:
    """Add the command, with every option of every problem."""
    parser = command(commands, "compare", run, _SUMMARY, "planner compare request.json")
    parser.usage = _USAGE
    _add_common(parser, families)
    add_network_options(parser)
    for option, names in _options(families):
        _add_own(parser, " or ".join(names), [option])
    compare_peers.add_options(parser)
    if isinstance(parser, SuggestingParser):
        parser.shown_for = partial(_shown, families)


def _add_common(parser: argparse.ArgumentParser, families: Families) -> None:
    parser.add_argument(
        "file",
        nargs="*",
        metavar="FILE",
        help="a profile, or a request of planner solve; '-': standard input; with --peers profiles",
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
        help="write the best plan as JSON; with --peers every case, as tables (.md) or as JSON",
    )
    parser.add_argument("--json", action="store_true", help="print every answer as JSON, no table")


def _options(families: Families) -> list[tuple[Option, list[str]]]:
    """Return every option that makes a problem of a profile, and of which problems it is."""
    options: dict[str, tuple[Option, list[str]]] = {}
    for name, family in families.items():
        for option in family.profiled.options if family.profiled else ():
            options.setdefault(option.name, (option, []))[1].append(name)
    return list(options.values())


def _add_own(parser: argparse.ArgumentParser, names: str, options: Sequence[Option]) -> None:
    """Add options of some problems."""
    group = parser.add_argument_group(f"with a profile and --problem {names}")
    for option in options:
        group.add_argument(option.name, default=argparse.SUPPRESS, **option.settings)


def _shown(families: Families, arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser with the help that is asked for: of a problem, of ``--peers``, or of all."""
    asking = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    asking.add_argument("--problem", nargs="?")
    asking.add_argument("--peers", action="store_true")
    asked, _ = asking.parse_known_args(list(arguments))
    family = families.get(asked.problem or "")
    about, usage = f"{_SUMMARY[0].upper()}{_SUMMARY[1:]}.", _USAGE
    if asked.peers:
        about, usage = "Compare plans of whole iterations, over many cases.", _OF_PEERS
        closing = [*_listed("methods", concrete(PEERS)), "example:", f"  {_PEERS}"]
    elif family is not None:
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
    if asked.peers:
        compare_peers.add_options(shown)
    elif family is not None and family.profiled is not None:
        add_network_options(shown)
        group = compare_peers.add_cluster_options(shown)
        if asked.problem == "iteration":
            add_memory_options(group)
        elif asked.problem == "yan":
            add_ignoring(group)
        _add_own(shown, asked.problem, family.profiled.options)
    return shown


def _problems(families: Families) -> list[str]:
    """Return every problem with an example, and where its own help is."""
    lines = ["problems, with an example of each:"]
    for name, family in families.items():
        lines += [f"  {name}: {family.asks}", f"    {family.example}"]
    lines += [
        "  --peers: whole iterations of many profiles, beside what other systems do",
        f"    {_PEERS}",
        "",
        "options and methods of one of them:",
        "  planner compare --problem NAME --help",
        "  planner compare --peers --help",
    ]
    return lines


def _listed(title: str, names: Sequence[str]) -> list[str]:
    """Return names in lines that a terminal has room for."""
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) > 85:
            lines.append("")
        lines[-1] += f"{'' if lines[-1] else '  '}{name}, "
    return [f"{title}:", *(line.rstrip() for line in lines[:-1]), lines[-1].removesuffix(", "), ""]
