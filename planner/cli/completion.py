"""``planner completion``: what a shell needs to complete commands, options and their choices.

The script is made from the parser of the command line itself, so it knows every option there is.
It needs no package and starts no process: what is completed stands in the script. Zsh reads that
of bash.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from planner.cli.common import command, write_document
from planner.jsonio.files import shipped_clusters

__all__ = ["Command", "add_parser", "commands_of", "script"]

SHELLS = ("bash", "zsh", "fish")

_HOW = """\
bash: source <(planner completion bash), in ~/.bashrc
zsh:  source <(planner completion zsh), in ~/.zshrc behind compinit
fish: planner completion fish > ~/.config/fish/completions/planner.fish
"""


class Flag(NamedTuple):
    """An option: its names, what it is for, whether a value follows, and the values there are."""

    names: tuple[str, ...]
    about: str
    valued: bool
    choices: tuple[str, ...]


class Command(NamedTuple):
    """A command: its path, such as ``calibrate network``, the words behind it, and its options."""

    path: tuple[str, ...]
    words: dict[str, str]
    options: tuple[Flag, ...]

    @property
    def key(self) -> str:
        """The path as the scripts have it: a blank before every word."""
        return "".join(f" {word}" for word in self.path)


def add_parser(commands: Any, whole: argparse.ArgumentParser) -> None:
    """Add the command, which completes the whole command line."""
    parser = command(
        commands,
        "completion",
        run,
        "print a script that completes commands and options in a shell",
        "planner completion bash > ~/.local/share/bash-completion/completions/planner",
    )
    parser.description = f"{parser.description}\n\n{_HOW}"
    parser.add_argument("shell", choices=SHELLS, help="for which shell")
    parser.set_defaults(whole=whole)


def run(options: argparse.Namespace) -> int:
    """Print."""
    write_document(script(options.shell, tuple(commands_of(options.whole))), None)
    return 0


def commands_of(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[Command]:
    """Yield the command of a parser, and those below it."""
    words: dict[str, str] = {}
    options = []
    below: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        choices = tuple(map(str, action.choices or ()))
        if isinstance(action, argparse._SubParsersAction):
            below = list(action.choices.items())
            words = {choice.dest: choice.help or "" for choice in action._choices_actions}
        elif not action.option_strings:
            words |= dict.fromkeys(choices, "")
        elif action.help is not argparse.SUPPRESS:
            if "--cluster" in action.option_strings:
                choices = tuple(shipped_clusters())
            names = tuple(action.option_strings)
            options.append(Flag(names, _short(action.help or ""), action.nargs != 0, choices))
    yield Command(path, words, tuple(options))
    for name, child in below:
        yield from commands_of(child, (*path, name))


def script(shell: str, commands: Sequence[Command]) -> str:
    """Return the script for a shell."""
    if shell == "fish":
        return _fish(commands)
    head = "#compdef planner\nautoload -U +X bashcompinit && bashcompinit\n"
    return (head if shell == "zsh" else "") + _bash(commands)


def _bash(commands: Sequence[Command]) -> str:
    paths = "|".join(f"'{listed.key}'" for listed in commands if listed.path)
    values, options, words = [], [], []
    for listed in commands:
        plain = [name for option in listed.options for name in option.names if _plain(option)]
        if plain:
            keys = "|".join(f"'{listed.key} {name}'" for name in plain)
            values.append(f"{keys}) return ;;")
        for option in listed.options:
            if option.choices:
                keys = "|".join(f"'{listed.key} {name}'" for name in option.names)
                values.append(f"{keys}) words='{' '.join(option.choices)}' ;;")
        names = [option.names[-1] for option in listed.options]
        options.append(f"'{listed.key}') words='{' '.join(names)}' ;;")
        if listed.words:
            words.append(f"'{listed.key}') words='{' '.join(listed.words)}' ;;")
    return f"""\
# Completes planner; made by: planner completion
_planner() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
    local at='' words='' word
    COMPREPLY=()
    if [ "$current" = '=' ]; then
        current=''
    elif [ "$before" = '=' ]; then
        before="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    for word in "${{COMP_WORDS[@]:1:$((COMP_CWORD-1))}}"; do
        case "$at $word" in
        {paths}) at="$at $word" ;;
        esac
    done
    case "$at $before" in
    {_lines(values)}
    esac
    if [ -z "$words" ]; then
        case "$current" in
        -*)
            case "$at" in
            {_lines(options, 12)}
            esac ;;
        *)
            case "$at" in
            {_lines(words, 12)}
            esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _planner planner
"""


def _fish(commands: Sequence[Command]) -> str:
    paths = " ".join(f"'{listed.key}'" for listed in commands if listed.path)
    lines = [
        "# Completes planner; made by: planner completion",
        "function __planner_at",
        "    set -l at ''",
        "    for word in (commandline -opc)[2..-1]",
        '        switch "$at $word"',
        f"            case {paths}",
        '                set at "$at $word"',
        "        end",
        "    end",
        '    test "$at" = "$argv[1]"',
        "end",
    ]
    for listed in commands:
        where = f"complete -c planner -n \"__planner_at '{listed.key}'\""
        lines += [
            f"{where} -f -a {word} -d {_quoted(_short(listed.words[word]))}"
            for word in listed.words
        ]
        for option in listed.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            )
            value = " -r" if option.valued else ""
            if option.choices:
                value += f" -a '{' '.join(option.choices)}'"
            lines.append(f"{where} {names}{value} -d {_quoted(option.about)}")
    return "\n".join(lines) + "\n"


def _plain(option: Flag) -> bool:
    """Tell whether any value may follow, such as a file."""
    return option.valued and not option.choices


def _short(text: str) -> str:
    """Return the beginning of a help text."""
    return text.partition(";")[0].partition(":")[0].replace("%%", "%")[:70]


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def _lines(lines: Sequence[str], indent: int = 4) -> str:
    return f"\n{' ' * indent}".join(lines)
