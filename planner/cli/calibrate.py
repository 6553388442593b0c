"""``planner calibrate``: measure the constants of a cost model."""

import argparse
import shlex
from typing import Any

from planner.cli.calibrate_network import add_network
from planner.cli.common import check_outputs, command, write_json
from planner.cli.parsing import add_options, given
from planner.cli.telling import Progress

_COMPUTE = """\
Measures muladd_ns, activation_ns, error_ns and interference as a request of the
problem `yan` takes them, by numpy, one process a core. Other load disturbs it:
the provenance in the output says how much the measurements spread.

latency_ns and nic_bits_per_s are the network's and are not measured here: take
them from a measurement of the network.
"""


def add_parser(commands: Any) -> None:
    """Add the command."""
    summary = "measure constants: of computation for the problem yan, and of a network"
    kinds = commands.add_parser(
        "calibrate", help=summary, description=summary[0].upper() + summary[1:] + "."
    ).add_subparsers(metavar="WHAT", required=True)
    compute = command(
        kinds,
        "compute",
        run_compute,
        "measure the constants of computation on this machine",
        "planner calibrate compute -o constants.json",
        _COMPUTE,
    )
    add_options(
        compute,
        {
            "--cores N": "most cores at work at once; default: all there are",
            "--repetitions N": "rounds; default: 15",
            "-o, --output FILE": "default: standard output",
        },
        {"--repetitions": {"default": 15}},
    )
    add_network(kinds)


def run_compute(options: argparse.Namespace) -> int:
    """Measure the constants of computation, with progress on standard error."""
    from planner.families.yan.calibration import measure_computation
    from planner.jsonio.measurements import encode_computation

    check_outputs({"--output": options.output})
    source = ["planner", "calibrate", "compute", *given(options, ("cores",))]
    source += ["--repetitions", str(options.repetitions)]
    progress = Progress(quiet=options.quiet)
    try:
        computation = measure_computation(
            options.cores,
            repetitions=options.repetitions,
            source=shlex.join(source),
            progress=lambda done, of: progress("calibrate: round", done, of),
        )
    finally:
        progress.done()
    write_json(encode_computation(computation), options.output)
    return 0
