"""Files that can be read as profiles, by the name of what wrote them.

A reader is a function of a file's bytes, with the model's `name`, the file's `source` and the
`batch_size` by name, that returns a profile and warnings about what cannot be true in the file.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from planner.formats.kineto import read_kineto
from planner.formats.pipedream import read_pipedream
from planner.profiles import Profile

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
        return file


READERS: Mapping[str, Reader] = {
    "pipedream": Reader(read_pipedream, "its profiler's graph.txt", (".txt",)),
    "kineto": Reader(
        read_kineto,
        "a trace of PyTorch's profiler (.json, .json.gz), recorded with record_shapes=True",
        (".gz", ".json"),
        streams=True,
    ),
}
"""Every format by the name that ``planner import`` uses."""
