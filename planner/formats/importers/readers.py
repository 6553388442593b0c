"""Profile readers, by the name of the format.

A reader is a function of a file's bytes, with the keywords `name` (of the model), `source` (of the
file) and `batch_size`, that returns a profile and warnings.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from planner.formats.importers.kineto import read_kineto
from planner.formats.importers.pipedream import read_pipedream
from planner.model.errors import PluginError
from planner.model.profiles import Profile
from planner.model.validation import shown
from planner.solving.plugins import plugged


class Reader(NamedTuple):
    """A format that can be read as a profile.

    Attributes
    ----------
    read : callable
        The reader; it raises an `InvalidInputError` with the line or the event.
    about : str
        Description for a help text.
    """

    read: Callable[..., tuple[Profile, tuple[str, ...]]]
    about: str


def _checked(name: str, read: Callable[..., Any]) -> Callable[..., tuple[Profile, tuple[str, ...]]]:
    """Return another package's reader, wrapped in a check of the type it returns."""

    def run(data: bytes, **named: Any) -> tuple[Profile, tuple[str, ...]]:
        match read(data, **named):
            case (Profile() as profile, warnings):
                return profile, tuple(map(str, warnings))
            case other:
                raise PluginError(
                    f"format {name}: expected a profile and warnings, got {shown(other)}"
                )

    return run


_OWN: Mapping[str, Reader] = {
    "pipedream": Reader(read_pipedream, "its profiler's graph.txt"),
    "kineto": Reader(
        read_kineto,
        "a trace of PyTorch's profiler (.json, .json.gz), recorded with record_shapes=True",
    ),
}

_OTHERS = {
    name: Reader(_checked(name, read), "a plug-in") for name, read in plugged("formats").items()
}

READERS: Mapping[str, Reader] = {**_OTHERS, **_OWN}
"""The formats, by the name that ``planner import`` uses."""
