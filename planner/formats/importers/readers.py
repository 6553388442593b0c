"""Profile readers, by the name of the format, and files of other tools that are recognised.

A reader is a function of a file's bytes, with the keywords `name` (of the model), `source` (of the
file) and `batch_size`, that returns a profile and warnings about implausible rows.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from planner.formats.importers import deepspeed_comms, nccl_tables
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
    suffixes : tuple of str
        File endings that do not belong to a model's name, outermost first.
    streams : bool
        Whether the reader takes a binary file piece by piece, reports its `progress`, and takes a
        `statistic` over several steps.
    """

    read: Callable[..., tuple[Profile, tuple[str, ...]]]
    about: str
    suffixes: tuple[str, ...]
    streams: bool = False

    def name_of(self, file: str) -> str:
        """Return the model name for a file name."""
        for suffix in self.suffixes:
            file = file.removesuffix(suffix)
        return file if self.suffixes else Path(file).stem


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
"""The formats, by the name that ``planner import`` uses."""


# ---
# Recognises files that were given to a command by mistake, and says what to do with them.
#
# A command reports this instead of its own parse error. To add a kind, add a row to `FOREIGN`. JSON
# documents are not in this table: JSON readers tell them apart by their fields.
#
# Complexity: O(characters). Source: own; NCCL's src/graph/xml.cc for its files.

SEARCHED = 1 << 24
"""Bytes in which a mark is sought."""


class Foreign(NamedTuple):
    """A kind of file.

    `mark` is found in such files and in no others; `instead` says what to give or to do. `reads` is
    the format of ``planner import`` that reads such files: that reader reports its own errors.
    """

    name: str
    mark: re.Pattern[str]
    instead: str
    reads: str = ""


_NO_TIMES = (
    "and times nothing. A network is timed by nccl-tests (planner import nccl-tests LOG -o "
    "network.json, to give as --network) or by planner calibrate network; a cluster is a JSON file "
    "with the number of machines and their NICs (--cluster; planner schema shows its fields)"
)
_XML = r"\A\ufeff?\s*(<\?xml[^>]*\?>\s*|<!--.*?-->\s*|<!DOCTYPE[^>]*>\s*)*"

FOREIGN = (
    Foreign(
        "NCCL's topology of one host (NCCL_TOPO_DUMP_FILE)",
        re.compile(_XML + r"<system\b[^>]*>.*?<(cpu|pci|gpu|nic|net)\b", re.DOTALL),
        "it shows how PCI, NVLink and NICs join the GPUs of a host, " + _NO_TIMES,
    ),
    Foreign(
        "NCCL's rings and trees (NCCL_GRAPH_DUMP_FILE)",
        re.compile(_XML + r"<graphs\b[^>]*>.*?<graph\b", re.DOTALL),
        "it shows which channels NCCL chose, " + _NO_TIMES,
    ),
    Foreign(
        "a summary of DeepSpeed's communication logger",
        deepspeed_comms.HEADER,
        "planner import deepspeed-comms LOG --ranks N --ranks-per-host G -o network.json makes a "
        "network (--network) of its all_reduce, all_gather and reduce_scatter, if it has any",
        "deepspeed-comms",
    ),
    Foreign(
        "a log of DeepSpeed's communication logger, operation by operation",
        re.compile(r"\bcomm op: \w+ \| time ?\(ms\): "),
        "have the job call deepspeed.comm.log_summary(), and give what it prints to planner import "
        "deepspeed-comms",
    ),
    Foreign(
        "what nccl-tests print",
        nccl_tables.HEADER,
        "planner import nccl-tests LOG -o network.json makes a network of it, to give as --network",
        "nccl-tests",
    ),
)
"""Kinds of files, unmistakable ones first."""


def foreign(data: bytes, reader: str = "") -> str:
    """Name the tool that wrote a file, and the file to give instead; empty if unknown.

    `data` is the file's beginning, `reader` the format as which it was read.
    """
    text = data[:SEARCHED].decode("utf-8", errors="replace")
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        return ""
    for kind in FOREIGN:
        if kind.mark.search(text):
            return "" if reader and kind.reads == reader else f"this is {kind.name}: {kind.instead}"
    return ""
