"""``planner export``: write a plan as settings of another tool."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET

from planner.cli.common import command, in_file, read, read_as, warn, write_json
from planner.cli.compare_tables import warning_lines
from planner.cli.export_programs import (
    check_worth,
    made_for,
    write_algorithm,
    write_traces,
    write_tuner,
)
from planner.jsonio import decode_profile
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph
from planner.model.profiles import Profile
from planner.model.validation import integer, shown
from planner.solving.targets import EVERY
from planner.view.wording import applied

_TOOLS = (
    *("ddp", "fsdp2", "horovod", "deepspeed", "megatron"),
    *("chakra", "msccl", "mscclpp", "nccl-tuner"),
)


def add_parser(commands: Any) -> None:
    """Add the command."""
    command(
        commands,
        "export",
        run,
        "write a plan for DDP, FSDP2, Horovod, DeepSpeed, Megatron or MSCCL, or as Chakra traces",
        "planner export ddp plan.json -o buckets.json\n"
        "  planner export deepspeed plan.json --profile resnet18.json -o ds_config.json\n"
        "  planner export chakra plan.json --profile resnet18.json --ranks 8 -o resnet18\n"
        "  planner export mscclpp plan.json -o all-reduce.json",
        {
            f"tool {'|'.join(_TOOLS)}": "ddp: sizes and parameters of buckets; fsdp2: modules to "
            "shard together, and what else a plan of --mode fsdp sets; horovod: a file for "
            "horovodrun --config-file; deepspeed: the nearest zero_optimization; megatron: the "
            "nearest size of buckets; chakra: execution traces for simulators such as ASTRA-sim, "
            "FILE.0.et and so on; msccl, mscclpp: the program by which a plan of planner plan, bml "
            "or bigdl sums up, as an algorithm of MSCCL or an execution plan of MSCCL++; "
            "nccl-tuner: which algorithm and protocol for which size, for NCCL's example tuner "
            "plugin, of networks measured with each forced",
            "plans PLAN+": "an answer of planner solve or planner plan, or two of ibatch (pull and "
            "push); '-': standard input; for nccl-tuner: ALGORITHM/PROTOCOL=NETWORK of each",
            "-o, --output FILE": "default: standard output",
            "--profile FILE": "the profile planned for, which has the sizes of single parameters "
            "(for deepspeed and megatron, if the plan has none) and the dataflow (for chakra)",
            "--element-bytes N (4)": "size of one number of a gradient (for deepspeed, megatron "
            "and chakra); default: 4",
            "--anyway": "write a plan that is slower, by the tool's rules, than the tool's default",
            "--ranks N": "traces to write (for chakra); default: what the plan is priced for",
            "--algorithm NAME": "which program, if transfers are summed up by several (for msccl "
            "and mscclpp)",
            "--depth N": "in how many parts, if transfers are summed up in several (for msccl and "
            "mscclpp)",
        },
    )


def run(options: argparse.Namespace) -> int:
    """Export a plan."""
    if options.tool == "nccl-tuner":
        return write_tuner(options)
    from planner.programs import read_plan

    integer(options.element_bytes, "--element-bytes", minimum=1, maximum=64)
    most = 1 if options.tool in ("chakra", "msccl", "mscclpp") else 2
    if len(options.plans) > most:
        expected = ("one", "one or two")[most - 1]
        raise InvalidInputError("PLAN", f"expected {expected}, got {len(options.plans)}")
    profile = read_as(options.profile, _profile) if options.profile else None
    graph = None if profile is None else profile.graph
    warnings = [] if profile is None else list(profile.caveats)
    notes: list[str] = []
    how: Iterable[str] = ()
    with in_file(" ".join(options.plans)):
        answers = [read_plan(read(path)) for path in options.plans]
        if options.tool == "chakra":
            write_traces(options, answers[0], graph)
        elif options.tool in ("msccl", "mscclpp"):
            write_algorithm(options, answers[0])
        else:
            notes = check_worth(options.tool, answers, anyway=options.anyway)
            settings = settings_for(options.tool, answers, graph, options.element_bytes)
            write_json(json.dumps(settings, indent=1, ensure_ascii=False) + "\n", options.output)
            if made_for(answers[0]) == options.tool:
                how = applied(EVERY[options.tool], options.plans[0], options.output)
    warnings += [warning for answer in answers for warning in answer.warnings or ()]
    warn([*warning_lines(list(dict.fromkeys(warnings))), *notes])
    if sys.stderr is not None:
        sys.stderr.write("".join(f"{line}\n" for line in how))
    return 0


def settings_for(
    tool: str, answers: Sequence[Any], graph: Graph | None, element_bytes: int
) -> dict[str, Any]:
    """Return the settings of a framework by which it follows plans, as plain values."""
    from planner.formats.exporters.frameworks import (
        ddp_settings,
        deepspeed_settings,
        gradients_of,
        horovod_settings,
        megatron_settings,
        pulls_of,
    )
    from planner.formats.exporters.fsdp2 import fsdp2_settings, fsdp2_unit_settings
    from planner.jsonio.fsdp import FsdpAnswer

    if tool == "fsdp2":
        if len(answers) == 1 and isinstance(answers[0], FsdpAnswer):
            return fsdp2_unit_settings(answers[0])
        return fsdp2_settings(pulls_of(*answers))
    batches = gradients_of(*answers)
    if tool in ("ddp", "horovod"):
        return (ddp_settings if tool == "ddp" else horovod_settings)(batches)
    sizes = _sizes(answers, graph)
    unknown = [piece.parameter for batch in batches for piece in batch.pieces]
    unknown = [name for name in unknown if name not in sizes]
    if unknown:
        raise InvalidInputError(
            "--profile",
            f"has no parameter {shown(unknown[0])}, which the plan sends: expected the profile "
            "that was planned for",
        )
    if tool == "megatron":
        return megatron_settings(batches, sizes, element_bytes)
    # A plan for this tool lists parameters in the order of the tool's buckets.
    order = None if graph is None or made_for(answers[0]) == tool else _ready_order(graph, batches)
    return deepspeed_settings(batches, sizes, element_bytes, order)


def _sizes(answers: Sequence[Any], graph: Graph | None) -> dict[str, int]:
    """Return the bytes of every parameter in the model's order, from the profile or the plan."""
    if graph is not None:
        return {parameter.name: parameter.size_bytes for parameter in graph.parameters}
    for answer in answers:
        sizes: dict[str, int] | Any = getattr(answer, "parameter_bytes", UNSET)
        if sizes is not UNSET and made_for(answer) is not None:
            return dict(sizes)
    raise InvalidInputError(
        "--profile",
        "missing: buckets follow from the sizes of single parameters, which the profile has, and "
        "a plan made with --for deepspeed or megatron",
    )


def _ready_order(graph: Graph, batches: Any) -> list[str]:
    """Return the plan's parameters in the order in which their gradients become ready."""
    planned = {piece.parameter for batch in batches for piece in batch.pieces}
    place = {op: number for number, op in enumerate(graph.pass_order("backward"))}
    # Gradients of one op become ready in reverse order: a bias before its weight.
    rows = [
        (max(place[op] for op in updaters), -index) for index, updaters in enumerate(graph.updaters)
    ]
    order = sorted(range(len(rows)), key=rows.__getitem__)
    return [graph.parameters[j].name for j in order if graph.parameters[j].name in planned]


def _profile(data: bytes) -> Profile:
    profile = decode_profile(data)
    if profile.graph is None:
        raise InvalidInputError("parameters", "missing: expected a profile with its graph")
    return profile
