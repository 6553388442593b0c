"""Parse the command line and turn errors into exit statuses (`planner.cli.interrupting.Exit`)."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from planner.cli.common import check_files, complain
from planner.cli.interrupting import Exit
from planner.cli.parsing import as_typed
from planner.cli.writing import writing
from planner.model.errors import InvalidInputError, PlannerError
from planner.model.machine import VERSION
from planner.model.units import escaped

_COMMANDS = (
    *("plan", "report", "compare", "solve", "draw", "profile"),
    *("calibrate", "run", "import", "why", "tune", "export", "schema"),
)
_MODULES = {"profile": "measure", "import": "importing"}
"""Modules of commands whose module has another name; only the called command is loaded."""

_EXAMPLES = """\
examples:
  planner plan data/profiles/vgg19.json --cluster data/clusters/caramel-16.json
  planner compare data/profiles/vgg19.json --startup 100us --bandwidth 10Gb/s
  planner solve request.json -o plan.json
  planner draw plan.json -o plan.svg
"""


def main(
    arguments: Sequence[str] | None = None, *, loaded: Callable[[], None] = lambda: None
) -> int:
    """Run one command and return its exit status; `loaded` is called once its code is loaded."""
    options = argparse.Namespace()
    try:
        given = sys.argv[1:] if arguments is None else arguments
        options = parser(given).parse_args(given)
        loaded()
        check_files(options)
        status: int = options.run(options)
        if sys.stdout is not None:
            with writing("standard output"):
                sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, such as head, has ended
        _close_output()
        return Exit.DONE
    except (PlannerError, OSError) as error:
        message = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            message = f"{escaped(str(error.filename))}: {error.strerror}"
        if isinstance(error, InvalidInputError):
            message = escaped(str(as_typed(error, options)))
        complain(f"planner: error: {message}")
        _close_output()
        return Exit.INVALID
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception as fault:
        if os.environ.get("PLANNER_DEBUG"):
            raise
        complain(
            f"planner: a fault of planner itself: {fault!r}\n"
            "(set PLANNER_DEBUG=1 to see where, and please report it)"
        )
        return Exit.FAULT
    return status


def _close_output() -> None:
    """Discard unwritten output so that Python does not fail again at exit."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser(arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the parser of the command that `arguments` call, or of all commands."""
    known = argparse.ArgumentParser(
        prog="planner",
        description="Plans the communication of distributed deep-learning jobs, and proves how "
        "good each plan is.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known.add_argument("--version", action="version", version=f"planner {VERSION}")
    commands = known.add_subparsers(metavar="COMMAND", required=True)
    called = [word for word in arguments if not word.startswith("-")][:1]
    for name in called if called and called[0] in _COMMANDS else _COMMANDS:
        import_module(f"planner.cli.{_MODULES.get(name, name)}").add_parser(commands)
    return known
