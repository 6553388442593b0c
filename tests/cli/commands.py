"""The commands of the command line, and their options, as its parser has them."""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from planner.cli.main import parser


class Command(NamedTuple):
    """A command: its words, such as ``("calibrate", "network")``, and the names of its options."""

    path: tuple[str, ...]
    options: tuple[str, ...]


def commands(
    of: argparse.ArgumentParser | None = None, path: tuple[str, ...] = ()
) -> Iterator[Command]:
    """Yield the command of a parser, by default the whole command line's, and those below it."""
    one = parser() if of is None else of
    yield Command(path, tuple(name for action in one._actions for name in action.option_strings))
    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from commands(child, (*path, name))
