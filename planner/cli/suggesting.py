"""An argument parser that suggests the closest option or command for an unknown one."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)$", re.DOTALL)


class SuggestingParser(argparse.ArgumentParser):
    """An `ArgumentParser` whose errors suggest the closest option or command.

    `shown_for`, if set, returns the parser whose help is printed, given the arguments.
    """

    shown_for: Callable[[Sequence[str]], argparse.ArgumentParser] | None = None
    _given: Sequence[str] = ()

    def format_help(self) -> str:
        """Return the help, of `shown_for` if set."""
        if self.shown_for is None:
            return super().format_help()
        return self.shown_for(self._given).format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; unknown arguments are an error of the command that was given them."""
        if args is not None:
            self._given = tuple(args)
        parsed, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        """Exit with the message and a suggestion; with the usage where nothing was given."""
        choice = _CHOICE.search(message)
        if choice is not None:
            names = re.findall(r"[\w.-]+", choice[2])
            meant = _meant([choice[1]], names)
        else:
            options = [name for name in self._option_string_actions if name.startswith("--")]
            meant = _meant(self._unknown(options), options)
        if not self._given:
            self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {message}{meant}\n")

    def _unknown(self, options: Iterable[str]) -> list[str]:
        """Return the given options that are neither known nor a known prefix."""
        before = self._given[: self._given.index("--")] if "--" in self._given else self._given
        names = [text.partition("=")[0] for text in before if text.startswith("--")]
        return [name for name in names if not any(option.startswith(name) for option in options)]


def _meant(unknown: Iterable[str], names: Sequence[str]) -> str:
    """Return the suggestions for unknown names; nothing if no name is close."""
    pairs = [(name, get_close_matches(name, names, 1)) for name in unknown]
    return "".join(f"; {name}: did you mean {close[0]}?" for name, close in pairs if close)
