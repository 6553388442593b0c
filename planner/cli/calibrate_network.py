"""``planner calibrate network``: measure the cost of communication between the ranks of a job."""

import argparse
import os
import shlex
import sys
from contextlib import ExitStack, redirect_stdout
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from planner.cli.common import command, in_option, write_json, write_text
from planner.cli.network_report import cluster_text, report
from planner.cli.parsing import (
    MODEL_INPUT,
    check_integers,
    given,
    load_model,
    parse_bcube,
    parse_count,
    parse_names,
    refuse,
)
from planner.model import machine
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.errors import InvalidInputError, MissingExtraError
from planner.model.units import parse_bytes
from planner.model.validation import integer
from planner.view.progress import Progress

if TYPE_CHECKING:
    from planner.model.fitting import Sweep

_NETWORK = """\
Started once a rank by a launcher such as torchrun. Times a collective over gloo
for sizes from 64 B up, and fits three models: a table, an affine cost, and the line
through 64 B and 4 MB. Rank 0 says how far each is off, and writes them for planner
compare --network; --cluster-out makes a cluster for planner plan --cluster.
"""

_WARMUP = 2
_MOST_SECONDS = 3600
_LEAST_BESIDE = 4096
"""Smallest transfer (bytes) with which contention is measured."""


def add_network(kinds: Any) -> None:
    """Add the subcommand."""
    command(
        kinds,
        "network",
        run_network,
        "measure what communication costs between the ranks of a job (problems caramel, ibatch)",
        "torchrun --nproc-per-node 4 -m planner calibrate network -o network.json",
        {
            "--collective all_reduce|all_gather|reduce_scatter (all_reduce)": "all_reduce: sum up "
            "gradients (default, for caramel); all_gather: pull a batch of parameters; "
            "reduce_scatter: push a batch of gradients (for ibatch)",
            "--bcube n,k": "all-reduce by BML on BCube(n, k) instead of gloo's ring",
            "--interfaces A,B,…": "with --bcube: one network interface a level; gloo's own "
            "collectives run over GLOO_SOCKET_IFNAME",
            "--largest SIZE (4MB)": "the largest transfer; default: 4MB",
            "--depths 1,2,… (1)": "numbers of chunks in flight to time an all-reduce with; "
            "default: 1",
            "--repetitions N (20)": "rounds; default: 20",
            "--seconds S (0.02)": "how long each sample repeats a transfer, after half as long "
            "untimed, so that what the link passes at once (a token bucket's burst) is spent; "
            "default: 0.02",
            "--timeout S (60)": "seconds to wait for another rank; default: 60",
            "--interference MODULE:FACTORY": "the model (as for planner profile) during whose "
            "passes transfers are timed, too: what they take from computation, and how much longer "
            "they last there; default: products of matrices",
            "--alone": "do not time transfers during computation; plans are then not said to be "
            "worth running",
            **{option: f"with that model: {text}" for option, text in MODEL_INPUT.items()},
            "-o, --output FILE": "where rank 0 writes the models, with provenance",
            "--cluster-out FILE": "where rank 0 writes a cluster with NICs that make all-reduces "
            "cost what was measured, each rank a machine of it, for planner plan --cluster",
            "--json": "the same on standard output, instead of the table",
        },
        about=_NETWORK,
    )


def run_network(options: argparse.Namespace) -> int:
    """Measure on every rank; report on rank 0, with progress on standard error."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError("torch", "torch") from None
    from planner.jsonio.network_measurements import encode_network
    from planner.model.fitting import fit_network

    known = ("collective", "bcube", "largest", "depths", "seconds", "interference", "alone")
    asked = given(options, (*known, "input", "batch_size", "repetitions"))
    source = ["planner", "calibrate", "network", *filter(None, asked)]
    _check(options)
    first = os.environ.get("RANK") == "0"
    sweep, interference = _measured(options, Progress(quiet=options.quiet or not first))
    if not first:
        return 0
    provenance = {
        "source": shlex.join(source),
        "date": datetime.now(UTC).date().isoformat(),
        "processor": machine.processor(),
        "threads": torch.get_num_threads(),
        "interfaces": options.interfaces or os.environ.get("GLOO_SOCKET_IFNAME", ""),
        "versions": machine.versions(torch=str(torch.__version__)),
    }
    fit = fit_network(sweep)
    text = encode_network(sweep, fit, provenance, interference)
    if options.cluster_out:  # before standard output, whose reader may stop early
        write_json(cluster_text(options, sweep, fit, interference, provenance), options.cluster_out)
    if options.output:
        write_json(text, options.output)
    if options.json:
        write_json(text, None)
    elif options.output != "-":
        write_text(report(sweep, fit, interference))
    return 0


def _check(options: argparse.Namespace) -> None:
    """Check and convert the options in place, before this rank waits for the others."""
    from planner.model.fitting import sweep_sizes
    from planner.runtime.measuring.sweep import MAX_REPETITIONS, check_depths

    integer(options.repetitions, "--repetitions", minimum=1, maximum=MAX_REPETITIONS)
    if not 0 < options.seconds <= _MOST_SECONDS:
        raise InvalidInputError(
            "--seconds", f"expected more than 0 and at most {_MOST_SECONDS}, got {options.seconds}"
        )
    if options.cluster_out == "-":
        raise InvalidInputError("--cluster-out", "expected a file: standard output has the report")
    if options.cluster_out and options.collective != "all_reduce":
        raise InvalidInputError(
            "--cluster-out", f"a cluster follows from all-reduces, not from {options.collective}"
        )
    depths = parse_names(options.depths, "--depths")
    options.depths = tuple(parse_count(depth, "--depths") for depth in depths)
    # Before joining: later, the first rank to fail would hide the reason from the others.
    with in_option("--depths"):
        check_depths(options.collective, options.depths)
    with in_option("--largest"):
        options.sizes = sweep_sizes(parse_bytes(options.largest, "--largest"))
    if not options.alone and options.sizes[-1] <= _LEAST_BESIDE:
        raise InvalidInputError("--largest", f"expected above {_LEAST_BESIDE} B without --alone")
    if options.alone:
        refuse(options, ("--interference",), "not with --alone")
    if not options.interference:
        refuse(options, ("--input", "--batch-size"), "only with --interference MODULE:FACTORY")
    check_integers(options, {"batch_size": 1})
    if options.bcube is None:
        if options.interfaces:
            raise InvalidInputError(
                "--interfaces", "only with --bcube: else set GLOO_SOCKET_IFNAME, as for gloo"
            )
        return
    if options.collective != "all_reduce":
        raise InvalidInputError("--bcube", f"BML is an all-reduce, not an {options.collective}")
    options.bcube = parse_bcube(options.bcube)


def _measured(options: argparse.Namespace, progress: Progress) -> "tuple[Sweep, Interference]":
    from planner.runtime.measuring.contention import measure_interference, passes_of, sizes_for
    from planner.runtime.measuring.sweep import measure_network
    from planner.runtime.world.joining import join

    def shown(done: int, of: int, what: str = "network") -> None:
        progress(f"{what}: round", done, of)

    names = parse_names(options.interfaces, "--interfaces") if options.interfaces else None
    compute = None
    if options.interference:
        compute = passes_of(*load_model(options.interference, options.input, options.batch_size))
    with ExitStack() as stack:
        stack.callback(progress.done)
        stack.enter_context(redirect_stdout(sys.stderr))  # the model's own prints
        world = join(options.timeout, names)
        stack.callback(world.leave)
        collective = options.collective
        if options.bcube is not None:
            from planner.runtime.collectives.interpreter import BcubeAllReduce

            collective = BcubeAllReduce(world, options.bcube.n, options.bcube.k)
            stack.callback(collective.close)
        sweep = measure_network(
            world,
            collective,
            options.sizes,
            options.repetitions,
            depths=options.depths,
            warmup=_WARMUP,
            sample_ns=max(round(options.seconds * 1e9), 1),
            progress=shown,
        )
        interference = NO_CONTENTION
        if not options.alone:
            largest = options.sizes[-1]
            smaller = [size for size in sizes_for(collective) if size < largest] or [_LEAST_BESIDE]
            interference = measure_interference(
                world,
                collective,
                [*smaller, largest],
                compute=compute,
                progress=partial(shown, what="interference"),
            )
        return sweep, interference
