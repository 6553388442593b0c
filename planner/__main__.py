"""``python -m planner``, and the command ``planner``.

Loading takes longer than some commands: Ctrl-C meanwhile ends the process at once (compiled code
that is being loaded may drop an exception), and at any time without a traceback.
"""

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_INTERRUPTED = 130


def entry_point() -> None:
    """Run the command line of this process."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where it is ignored
    if usual:
        signal.signal(signal.SIGINT, _leave)
    sys.excepthook, sys.unraisablehook = _uncaught, _unraisable
    from planner.cli.main import main

    def listen() -> None:
        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        status = main(loaded=listen)
    except KeyboardInterrupt:
        status = _INTERRUPTED
    finally:
        if usual:
            signal.signal(signal.SIGINT, _leave)
    sys.exit(status)


def _leave(*_: object) -> None:
    os._exit(_INTERRUPTED)


def _uncaught(
    kind: type[BaseException], error: BaseException, trace: "TracebackType | None"
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        _leave()
    sys.__excepthook__(kind, error, trace)


def _unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """End the process if the interruption came where Python would only print it."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _leave()
    sys.__unraisablehook__(unraisable)


if __name__ == "__main__":
    entry_point()
