"""``planner import fx``: write compiled graphs as requests."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from planner.cli.common import in_file, read, write_json
from planner.families.overlap import Problem, evaluate, own_order, with_limit
from planner.formats.importers.fx import check_ranks, problem_of
from planner.jsonio.fx import decode_fx
from planner.jsonio.overlap import encode_request
from planner.model.errors import InvalidInputError


def _fx(files: Sequence[str]) -> Problem:
    documents = []
    for file in files:
        data = read(file)
        with in_file(file):
            documents.append(decode_fx(data))
    check_ranks(documents, list(files))
    with in_file(files[0]):
        return problem_of(documents[0])


class GraphReader(NamedTuple):
    """A format of compiled graphs: its reader and a description."""

    read: Callable[[Sequence[str]], Problem]
    about: str


GRAPHS: Mapping[str, GraphReader] = {
    "fx": GraphReader(
        _fx, "a compiled graph that planner.profiling.fx wrote, of one rank or of several"
    )
}
"""Formats of compiled graphs by their names in ``planner import``."""


def import_graph(options: argparse.Namespace) -> int:
    """Import a graph; the memory limit is the peak of the graph's original order."""
    for name in ("name", "batch_size", "ranks", "ranks_per_host", "statistic"):
        if getattr(options, name) is not None:
            raise InvalidInputError(f"--{name.replace('_', '-')}", "not of compiled graphs")
    if options.in_place:
        raise InvalidInputError("--in-place", "not of compiled graphs")
    problem = GRAPHS[options.format].read(options.file)
    peak = evaluate(problem, own_order(problem)).peak_bytes
    write_json(encode_request(with_limit(problem, peak)), options.output)
    return 0
