"""``planner plan --mode fsdp``, or ``--for fsdp2``: plan FSDP's units, prefetching and memory."""

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from planner.cli.compare_tables import provenance, reasons, table, warning_lines
from planner.cli.interrupting import ended, interruptible
from planner.cli.iteration_options import Job, inputs_of, settle
from planner.cli.outputs import Outputs
from planner.cli.parsing import add_options, parse_names, refuse
from planner.cli.plan_text import about_cluster
from planner.families import fsdp
from planner.families.fsdp.baselines import RULES
from planner.families.fsdp.problem import CHANNELS
from planner.families.iteration.fsdp_from_profile import sharded_problem
from planner.jsonio.fsdp import FsdpAnswer, answer
from planner.jsonio.heads import of_profile
from planner.model.errors import InvalidInputError
from planner.model.units import (
    counted,
    format_bytes,
    format_ns,
    format_share,
    parse_bytes,
    printable,
)
from planner.model.validation import one_of
from planner.solving.compare import Comparison, compare
from planner.solving.result import Result
from planner.solving.targets import FSDP2, PLANNER
from planner.solving.what_if import WORTH
from planner.view import format_table
from planner.view.progress import Progress
from planner.view.wording import applied, times

FSDP = "fsdp"

_OWN = ("--channels", "--memory", "--recompute", "--shards")
_OTHERS = (
    *("--activations", "--algorithms", "--epoch-samples", "--interference", "--max-group"),
    *("--max-overhead", "--max-transfer", "--outlook", "--regret"),
)
"""Options of the other modes."""


def add_own_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this mode."""
    group = parser.add_argument_group(f"with --mode fsdp, or --for {FSDP2.name}, which is the same")
    add_options(
        group,
        {
            "--channels": "one communicator for all-gathers and reduce-scatters (default, as "
            "FSDP2's); two that do not disturb each other; or two that share the links",
            "--memory SIZE": "memory of a rank, such as 80GiB; default: the cluster's",
            "--recompute": "layers may be recomputed from what they read (activation "
            "checkpointing)",
            "--shards N,M,…": "over how many ranks parameters may be sharded, with copies on the "
            "others; default: all, and on hosts with several accelerators those of one host, of "
            "two, of four …",
        },
        {"--channels": {"choices": CHANNELS}},
    )


def asked(options: argparse.Namespace) -> bool:
    """Return whether the options select this mode."""
    return bool(options.mode == FSDP or vars(options)["for"] == FSDP2.name)


def refuse_options(options: argparse.Namespace) -> None:
    """Raise InvalidInputError for options of another mode."""
    own, target = asked(options), vars(options)["for"]
    if not own:
        refuse(options, _OWN, "applies to --mode fsdp only")
        return
    typed = "--mode fsdp" if options.mode == FSDP else f"--for {target}"
    refuse(options, _OTHERS, f"does not apply to {typed}")
    if options.mode not in ("any", FSDP):
        told = f"the plans of {FSDP2.title} are those of --mode fsdp, got {options.mode}"
        raise InvalidInputError("--mode", told)
    if target not in (PLANNER, FSDP2.name):
        told = f"the plans of --mode fsdp are for {FSDP2.name}, got {target}"
        raise InvalidInputError("--for", told)


def run(options: argparse.Namespace) -> int:
    """Plan FSDP's units and compare with the baselines."""
    one_of(options.method, fsdp.METHODS, "--method")
    job = settle(options)
    outputs = Outputs.of(options, fsdp.FSDP.name, inputs_of(options))
    problem = _problem(job, options)
    progress = Progress(quiet=options.quiet)
    methods = dict.fromkeys([options.method, *RULES])
    with interruptible() as cancel:
        comparison = compare(
            problem,
            methods,
            solve=partial(fsdp.solve, cancel=cancel),
            time_limit=options.time_limit,
            progress=lambda method: progress(f"planning {method}"),
            cancel=cancel,
        )
    progress.done()
    chosen = _chosen(comparison, options.method)
    made = of_profile(answer(problem, chosen), job.profile)
    outputs.write(
        made,
        job.profile.name,
        lambda: [
            *_lines(job, problem, made, chosen, comparison),
            *_verdict(chosen, comparison, options.output),
        ],
    )
    return ended(cancel)


def _problem(job: Job, options: argparse.Namespace) -> fsdp.Problem:
    memory = None if options.memory is None else parse_bytes(options.memory, "--memory")
    shards = None
    if options.shards is not None:
        names = parse_names(options.shards, "--shards")
        if not all(name.isdecimal() for name in names):
            raise InvalidInputError("--shards", f"expected numbers, got {options.shards}")
        shards = [int(name) for name in names]
    try:
        return sharded_problem(
            job.profile,
            job.cluster,
            computation=job.options["computation"],
            optimiser=job.options["optimiser"],
            channels=options.channels or "one",
            memory_bytes=memory,
            ignore_memory=job.options["ignore_memory"],
            recompute=options.recompute,
            shards=shards,
        )
    except InvalidInputError as error:
        if not error.path.startswith("shards"):
            raise
        raise InvalidInputError("--shards", error.message) from None


def _chosen(comparison: Comparison[Any, Any], method: str) -> Result[Any, Any]:
    """Return the result of the requested method; `auto` reports another name."""
    rows = {row.method: row for row in comparison.rows}
    return (
        rows[method]
        if method in rows
        else next(row for row in comparison.rows if row.method in ("exact", "search", "auto"))
    )


def _lines(
    job: Job,
    problem: fsdp.Problem,
    made: FsdpAnswer,
    result: Result[fsdp.Plan, fsdp.Evaluation],
    comparison: Comparison[Any, Any],
) -> Iterator[str]:
    yield f"{printable(job.profile.name)}: {fsdp.FSDP.summary(problem)}"
    yield provenance(job.profile)
    yield from warning_lines(made.warnings or ())
    yield f"cluster: {about_cluster(job.cluster)}"
    yield ""
    if result.plan is None:
        assert result.infeasibility is not None
        yield f"no plan: {printable(result.infeasibility.reason)}"
    else:
        assert result.evaluation is not None
        yield from _plan(problem, result.plan, result.evaluation)
    yield ""
    yield format_table(*table(fsdp.FSDP, problem, comparison))
    yield from reasons(row for row in comparison.rows if row is not result)


def _verdict(
    result: Result[fsdp.Plan, fsdp.Evaluation],
    comparison: Comparison[Any, Any],
    output: str | None,
) -> Iterator[str]:
    """Yield whether the plan is worth setting beside FSDP2's default, and how it is set."""
    plan_ns = result.objective_ns
    if plan_ns is None or result.method == FSDP2.name:
        return
    default_ns = {row.method: row.objective_ns for row in comparison.rows}[FSDP2.name]
    if default_ns is not None:  # else it takes more memory than there is
        default = f"the default of {FSDP2.title}, a unit a layer ({format_ns(default_ns)})"
        gain = format_share(default_ns / plan_ns - 1) if default_ns > plan_ns else "nothing"
        yield ""
        if default_ns < plan_ns * WORTH:
            yield f"keep {default}: the plan gains {gain} over it"
            return
        yield f"worth setting: {times(default_ns / plan_ns)} as fast as {default}"
    yield from applied(FSDP2, output)


def _plan(problem: fsdp.Problem, plan: fsdp.Plan, evaluation: fsdp.Evaluation) -> Iterator[str]:
    mesh = problem.meshes[plan.mesh]
    copies = "" if mesh.replicas == 1 else f", {mesh.replicas} copies"
    yield f"shard over {counted(mesh.shards, 'rank')}{copies}: {counted(len(plan.units), 'unit')}"
    number = 0
    for _, group in groupby(plan.units, key=lambda unit: (unit.keep, unit.recompute)):
        units = list(group)
        yield "  " + _units(problem, units, number)
        number += len(units)
    if len(plan.units) > 1:
        yield f"  keep the input of {counted(plan.buffers, 'reduce-scatter')} at most"
    peak = evaluation.peak
    parts = {
        "stored": evaluation.state_bytes,
        "parameters": peak.parameters,
        "buffers": peak.buffers,
        "gradients": peak.gradients,
        "activations": peak.activations,
    }
    most = evaluation.peak_bytes
    shown = ", ".join(f"{format_bytes(size, most)} {name}" for name, size in parts.items() if size)
    phase = "forward" if peak.step < len(plan.units) else "backward"
    yield (
        f"an iteration takes {format_ns(evaluation.iteration_ns)}, "
        f"{format_ns(evaluation.exposed_ns)} of it exposed"
        + (f", {format_ns(evaluation.recompute_ns)} recomputing" if evaluation.recompute_ns else "")
    )
    yield (
        f"memory peaks at {format_bytes(most)} in the {phase} pass of unit "
        f"{plan.unit_of(peak.step)}: {shown}"
    )


def _units(problem: fsdp.Problem, units: Sequence[fsdp.Unit], first: int) -> str:
    start, stop = units[0].start, units[-1].stop
    names = problem.names or [f"layer {layer}" for layer in range(problem.layers)]
    layers = printable(names[start])
    if stop > start + 1:
        layers += f" to {printable(names[stop - 1])}"
    last = first + len(units) - 1
    which = f"unit {first}" if len(units) == 1 else f"units {first} to {last}"
    kept = "kept after the forward pass" if units[0].keep else "freed and gathered again"
    again = ", recomputed" if units[0].recompute else ""
    return f"{which} ({layers}): {kept}{again}"
