"""``planner calibrate``: measure or fit the constants of a cost model."""

import argparse
import platform
import shlex
from importlib.metadata import version
from typing import Any

from planner.cli.calibrate_network import add_network
from planner.cli.common import command, file_name, in_file, read, write_json
from planner.cli.parsing import given
from planner.view.progress import Progress

_COMPUTE = """\
Measures muladd_ns, activation_ns, error_ns and interference as a request of the
problem `yan` takes them, by numpy, one process a core. latency_ns and
nic_bits_per_s are the network's and not measured here: planner calibrate fit
fits them.
"""
_FIT = """\
MEASUREMENTS is a request of the problem `yan`, whose constants are the starting
guess, with "measurements": configurations that were run, and their epoch_ns.
Constants that fit as well at their start are "held", those that fit best at 0
"at_floor"; "held_out" is the error of constants fitted to the other parts.
"""


def add_parser(commands: Any) -> None:
    """Add the command."""
    summary = "measure or fit constants: of the problem yan, and of a network"
    kinds = commands.add_parser(
        "calibrate", help=summary, description=summary[0].upper() + summary[1:] + "."
    ).add_subparsers(metavar="WHAT", required=True)
    command(
        kinds,
        "compute",
        run_compute,
        "measure the constants of computation on this machine",
        "planner calibrate compute -o constants.json",
        {
            "--cores N": "most cores at work at once; default: all there are",
            "--repetitions N (15)": "rounds; default: 15",
            "-o, --output FILE": "default: standard output",
        },
        about=_COMPUTE,
    )
    command(
        kinds,
        "fit",
        run_fit,
        "fit the constants to measured epochs",
        "planner calibrate fit epochs.json -o constants.json",
        {
            "measurements MEASUREMENTS": "'-': standard input",
            "-o, --output FILE": "where the constants go, with their errors; default: standard "
            "output",
        },
        about=_FIT,
    )
    add_network(kinds)


def run_compute(options: argparse.Namespace) -> int:
    """Measure the constants of computation, with progress on standard error."""
    from planner.families.yan.calibration import measure_computation
    from planner.jsonio.measurements import encode_computation

    source = ["planner", "calibrate", "compute", *given(options, ("cores",))]
    source += ["--repetitions", str(options.repetitions)]
    progress = Progress(quiet=options.quiet)
    computation = measure_computation(
        options.cores,
        repetitions=options.repetitions,
        source=shlex.join(source),
        progress=lambda done, of: progress("calibrate: round", done, of),
    )
    progress.done()
    write_json(encode_computation(computation), options.output)
    return 0


def run_fit(options: argparse.Namespace) -> int:
    """Fit the constants to measured epochs, with progress on standard error."""
    from planner.families.yan.calibration import fit
    from planner.jsonio.measurements import decode_measurements, encode_fit

    data = read(options.measurements)
    progress = Progress(quiet=options.quiet)
    with in_file(options.measurements):
        result = fit(
            *decode_measurements(data),
            progress=lambda done, of: progress("calibrate: fit", done, of),
        )
    progress.done()
    text = encode_fit(
        result,
        file_name(options.measurements),
        {"python": platform.python_version(), "numpy": version("numpy"), "scipy": version("scipy")},
    )
    write_json(text, options.output)
    return 0
