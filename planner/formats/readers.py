"""Files that can be read as profiles, by the name of what wrote them.

A reader is a function of a file's bytes, with the model's `name`, the file's `source` and the
`batch_size` by name, that returns a profile and warnings about what cannot be true in the file.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from planner.errors import PluginError
from planner.formats.kineto import read_kineto
from planner.formats.pipedream import read_pipedream
from planner.plugins import plugged
from planner.profiles import Profile
from planner.validation import shown

__all__ = ["READERS", "Reader"]


class Reader(NamedTuple):
    """A format.

    Attributes
    ----------
    read : callable
        Reads it; raises an `InvalidInputError` that leads to the line or the event.
    about : str
        What it is, for a help text.
    suffixes : tuple of str
        Endings that are no part of a model's name, outermost first.
    streams : bool
        Whether it reads a binary file piece by piece, tells its `progress`, and takes a
        `statistic` of several steps.
    """

    read: Callable[..., tuple[Profile, tuple[str, ...]]]
    about: str
    suffixes: tuple[str, ...]
    streams: bool = False

    def name_of(self, file: str) -> str:
        """Return the name of the model that a file's name stands for."""
        for suffix in self.suffixes:
            file = file.removesuffix(suffix)
        return file if self.suffixes else Path(file).stem


def _checked(name: str, read: Callable[..., Any]) -> Callable[..., tuple[Profile, tuple[str, ...]]]:
    """Return another package's reader, which has to return what readers return."""

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
    "pipedream": Reader(read_pipedream, "its profiler's graph.txt", (".txt",)),
    "kineto": Reader(
        read_kineto,
        "a trace of PyTorch's profiler (.json, .json.gz), recorded with record_shapes=True",
        (".gz", ".json"),
        streams=True,
    ),
}

_OTHERS = {
    name: Reader(_checked(name, read), "a plug-in", ()) for name, read in plugged("formats").items()
}

READERS: Mapping[str, Reader] = {**_OTHERS, **_OWN}
"""Every format by the name that ``planner import`` uses."""
