"""Exit statuses of all commands."""

from enum import IntEnum


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
