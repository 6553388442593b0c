"""``planner export`` of a plan's messages for MSCCL, MSCCL++ and Chakra, and of NCCL's tuning."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from planner.cli.common import check_outputs, measured_tables, read_as, warn, write_document
from planner.cli.writing import write_file
from planner.families.collectives.program import in_parts
from planner.formats.exporters.nccl_tuner import encode_rules, rules_of
from planner.model.errors import InvalidInputError, PlannerError
from planner.model.graphs import Graph
from planner.model.measured import MeasuredNetwork
from planner.model.units import counted, format_ns, printable
from planner.model.validation import integer
from planner.solving.targets import EVERY

if TYPE_CHECKING:
    from planner.programs import Answer
    from planner.programs.collectives import SummingProgram

_MAX_RANKS = 65536


def write_algorithm(options: argparse.Namespace, answer: "Answer") -> None:
    """Write a plan's program for MSCCL or MSCCL++."""
    from planner.formats.exporters.msccl import write_msccl
    from planner.formats.exporters.mscclpp import write_mscclpp

    planned = _planned(answer, options.algorithm, options.depth)
    program = in_parts(planned.program, planned.depth)
    write = write_msccl if options.tool == "msccl" else write_mscclpp
    write_document(write(program), options.output)


def _planned(answer: "Answer", algorithm: str | None, depth: int | None) -> "SummingProgram":
    from planner.jsonio.iteration_answer import IterationAnswer
    from planner.programs.collectives import summing_program

    stated = answer.synchronisation if isinstance(answer, IterationAnswer) else None
    if stated and stated.mode == "sharded":
        raise InvalidInputError(
            "synchronisation.mode",
            "a sharded plan runs the halves of its program: expected a replicated one, which "
            "planner plan --mode replicated makes",
        )
    try:
        return summing_program(answer, algorithm, depth)
    except InvalidInputError as error:
        if error.path not in ("algorithm", "depth"):
            raise
        raise InvalidInputError(f"--{error.path}", error.message) from None


def write_traces(options: argparse.Namespace, answer: "Answer", graph: Graph | None) -> None:
    """Write Chakra traces of all ranks."""
    from planner.formats.exporters.chakra import write_chakra

    if options.output in (None, "-"):
        raise InvalidInputError("--output", "missing: there is a file for each rank")
    if graph is None:
        raise InvalidInputError("--profile", "missing: a plan does not say which op needs which")
    trace = write_chakra(answer, graph, options.element_bytes)
    planned = getattr(answer, "ranks", None) or getattr(answer, "workers", None)
    ranks = options.ranks or planned or None
    if ranks is None:
        raise InvalidInputError("--ranks", "missing: the plan does not say among how many")
    integer(ranks, "--ranks", minimum=2, maximum=_MAX_RANKS)
    for rank in range(ranks):
        write_file(f"{options.output}.{rank}.et", trace)


# ---
# ``planner export nccl-tuner``: the choice of algorithm and protocol by size for NCCL's plugin.


def write_tuner(options: argparse.Namespace) -> int:
    """Write the rows, and print their number."""
    networks: dict[tuple[str, str], MeasuredNetwork] = {}
    files = []
    for argument in options.plans:
        choice, _, path = argument.partition("=")
        algorithm, _, protocol = choice.partition("/")
        if not path or not protocol:
            raise InvalidInputError(
                "PLAN", "expected ALGORITHM/PROTOCOL=FILE, such as ring/simple=network.json"
            )
        if (algorithm, protocol) in networks:
            raise InvalidInputError("PLAN", f"{choice} given twice: import its files as one")
        files.append(path)
        networks[algorithm, protocol] = read_as(path, measured_tables)
    check_outputs({"--output": options.output}, files)
    rules = rules_of(networks)
    write_document(encode_rules(rules, "written by planner from measured tables"), options.output)
    warn([counted(len(rules), "row")])
    return 0


# ---
# The price of an exported plan under the rules of its target.


def made_for(answer: object) -> str | None:
    """Return the name of the plan's target, or None."""
    target = getattr(answer, "target", UNSET)
    return None if target is UNSET else str(target.name)


def check_worth(tool: str, answers: Sequence[object], *, anyway: bool) -> list[str]:
    """Return notes on a plan's time under the tool's rules, compared with the tool's default.

    Raises PlannerError if the default is faster, unless `anyway`, or if the tool cannot follow the
    plan.
    """
    priced = [getattr(answer, "targets", UNSET) for answer in answers]
    known = [table[tool] for table in priced if table is not UNSET and tool in table]
    if tool not in EVERY or len(known) != 1:
        return []
    (price,), title = known, EVERY[tool].title
    remedy = f"plan for it (--for {tool})"
    if price.plan_ns is None:
        raise PlannerError(f"{'' if price.reason is UNSET else printable(price.reason)}: {remedy}")
    times = (
        f"by the rules of {title} this plan takes {format_ns(price.plan_ns)}, "
        f"its default {format_ns(price.default_ns)}"
    )
    if price.plan_ns > price.default_ns and not anyway:
        raise PlannerError(f"{times}: {remedy}, keep the default, or write it with --anyway")
    return [times]
