"""How commands end: the exit statuses, and what each means."""

from enum import IntEnum

__all__ = ["Exit"]


class Exit(IntEnum):
    """The exit status of every command."""

    DONE = 0
    """It did what was asked; that there is no plan is an answer, too."""
    FAULT = 1
    """A fault of the program itself."""
    INVALID = 2
    """What was given was invalid, or could not be read, written, measured or run."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C, after writing the best so far; the number is that of shells."""
