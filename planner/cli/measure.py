"""``planner profile``: measure a torch model, and print what was measured.

If a launcher starts it as several ranks, all ranks measure at the same time, as they will train.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from typing import Any

from planner.cli.common import command, write_json, write_text
from planner.cli.compare_tables import provenance, warning_lines
from planner.cli.parsing import FACTORY, MODEL_INPUT, check_integers, given, load_model
from planner.jsonio import encode_profile
from planner.model.profiles import Profile
from planner.model.units import counted, format_bytes, format_ns, printable
from planner.view.progress import Progress

_TIMEOUT_S = 600.0
"""How long (s) a rank waits for the others, which load and measure the model."""


def add_parser(commands: Any) -> None:
    """Add the command."""
    command(
        commands,
        "profile",
        run,
        "measure a torch model, layer by layer",
        "planner profile torchvision.models:resnet18 --input 3x224x224 --batch-size 8 "
        "-o resnet18.json",
        {
            "factory MODULE:FACTORY": FACTORY,
            "-o, --output FILE": "default: standard output",
            "--name NAME": "name of the model; default: the factory's name",
            **MODEL_INPUT,
            "--warmup N (3)": "default: 3",
            "--repetitions N (10)": "default: 10",
            "--threads N": "of torch; default: OMP_NUM_THREADS, else 1, as torchrun gives each "
            "rank",
            "--optimizer sgd|adam": "time its updates too, as those of `planner run`; default: sgd "
            "where a launcher started several ranks, else none",
        },
    )


def run(options: argparse.Namespace) -> int:
    """Measure a model, with progress on standard error."""
    check_integers(options, {"batch_size": 1, "warmup": 0, "repetitions": 1, "threads": 1})
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    with redirect_stdout(sys.stderr):  # keep the model's own prints out of the profile
        if alone:
            profile = _measured(options)
        else:
            options.optimizer = options.optimizer or "sgd"
            slowest = _measured_by_all(options)
            if slowest is None:
                return 0
            profile = slowest
    write_json(encode_profile(profile), options.output)
    if options.output in (None, "-"):
        if sys.stderr is not None:
            sys.stderr.write(summary(profile, "standard output"))
    else:
        write_text(summary(profile, options.output))
    return 0


def summary(profile: Profile, place: str) -> str:
    """Return the size, the times and the warnings of a new profile, and the place of its file."""
    graph, origin = profile.graph, profile.provenance
    parameters = 0 if graph is None else len(graph.parameters)
    sizes = f"{counted(len(profile.layers), 'layer')}, {counted(parameters, 'parameter')}"
    gradients = format_bytes(profile.parameter_bytes)
    forward, backward = format_ns(profile.forward_ns), format_ns(profile.backward_ns)
    lines = [
        f"{printable(profile.name)}: {sizes} with gradients, {gradients}",
        f"forward {forward}, backward {backward}, by {counted(origin.threads or 1, 'thread')}",
        provenance(profile),
        *(printable(note) for note in origin.notes),
        *warning_lines(origin.warnings),
        f"written to {printable(place)}",
    ]
    return "\n".join([*lines, ""])


def _measured_by_all(options: argparse.Namespace) -> Profile | None:
    """Measure on all ranks of the job; return the slowest rank's profile on rank 0, else None."""
    from planner.runtime.measuring.slowest import slowest_profile
    from planner.runtime.world.joining import join

    with join(_TIMEOUT_S) as job:
        first = job.rank == 0
        options.quiet = options.quiet or not first
        own = _measured(options, lambda: job.gather("who measures", ""))
        slowest = slowest_profile(job, own)
    return slowest if first else None


def _measured(options: argparse.Namespace, ready: Callable[[], object] = tuple) -> Profile:
    from planner.profiling import measure
    from planner.profiling.samples import optimizer_of

    model, inputs = load_model(options.factory, options.input, options.batch_size)

    import torch

    if options.threads or not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(options.threads or 1)  # 1, as torchrun gives each rank
    ready()
    name = options.name or options.factory.partition(":")[2]
    asked = given(options, ("input", "batch_size", "threads", "optimizer"))
    progress = Progress(quiet=options.quiet)
    profile = measure(
        model,
        inputs,
        name=name,
        source=shlex.join(["planner", "profile", options.factory, *asked]),
        warmup=options.warmup,
        repetitions=options.repetitions,
        batch_size=options.batch_size,
        progress=lambda done, of: progress(f"{name}: run", done, of),
        optimizer=partial(optimizer_of, options.optimizer) if options.optimizer else None,
    )
    progress.done()
    return profile
