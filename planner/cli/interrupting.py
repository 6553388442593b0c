"""How commands end: exit statuses, and Ctrl-C.

Ctrl-C ends a search with the best plan so far; a second Ctrl-C ends the command.

Python handles no signal while compiled code runs. A thread therefore reads the signals from a
wake-up file descriptor.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType

from planner.cli.common import warn

_OVER = b"\0"
"""Ends the thread; no signal has this number."""


class Exit(IntEnum):
    """The exit status of every command."""

    DONE = 0
    """Success; an answer that no plan exists is a success too."""
    FAULT = 1
    """A bug in planner."""
    INVALID = 2
    """The input was invalid, or reading, writing, measuring or running failed."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C after writing the best plan so far; shells use this number."""


def ended(cancel: threading.Event) -> Exit:
    """Return the exit status of a command that has written its best plan."""
    return Exit.INTERRUPTED if cancel.is_set() else Exit.DONE


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C in the block sets, with a note on standard error."""
    cancel = threading.Event()
    usual = signal.getsignal(signal.SIGINT)
    if (
        usual is not signal.default_int_handler
        or threading.current_thread() is not threading.main_thread()
    ):
        yield cancel
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def wait() -> None:
        while (received := os.read(reading, 1)) != _OVER:
            if received[0] == signal.SIGINT:
                cancel.set()

    times = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal times
        times += 1
        cancel.set()
        if times > 1:
            signal.default_int_handler(number, frame)
        warn(["ending with the best so far; Ctrl-C once more ends at once"])

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, handle)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, usual)
        signal.set_wakeup_fd(before)
        os.write(writing, _OVER)  # a forked process may keep the pipe open, so closing is no signal
        waiting.join()
        os.close(writing)
        os.close(reading)
