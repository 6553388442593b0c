"""``planner calibrate``: measure or fit the constants of a cost model."""

import argparse
import platform
import shlex
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from planner.cli.calibrate_network import add_network
from planner.cli.common import (
    ERROR_SIGN,
    check_outputs,
    command,
    file_name,
    in_file,
    read,
    read_as,
    write_fit,
    write_json,
)
from planner.cli.parsing import add_options, given
from planner.cli.telling import Progress
from planner.model.validation import integer
from planner.view.table import format_table

if TYPE_CHECKING:
    from planner.families.drizzle import Calibration, Measurement
    from planner.families.yan.calibration import Fit
    from planner.families.yan.problem import Constants

_COMPUTE = """\
Measures muladd_ns, activation_ns, error_ns and interference as a request of the
problem `yan` takes them, by numpy, one process a core. Other load disturbs it:
the provenance in the output says how much the measurements spread.

latency_ns and nic_bits_per_s are the network's and are not measured here: take
them from a measurement of the network, or fit them (planner calibrate fit).
"""
_FIT = """\
MEASUREMENTS is a request of the problem `yan`, whose constants are the starting
guess, with one more field:

  "measurements": [{"parameter_servers": 1, "replicas": 2, "workers_per_replica": 2,
                    "layers": [{"partitions": 2, "threads": 1, "copies": 1}, ...],
                    "epoch_ns": 81000000000}, ...]

Fits muladd_ns, activation_ns, error_ns, nic_bits_per_s and one factor for all of
latency_ns by least squares on relative errors; interference stays what it is, and
so does ("held") what fits as well at its start, but for noise. Each part of the
measurements is then predicted by constants that are fitted to the others.
"""
_GROUPS = """\
MEASUREMENTS holds how long scheduling took, for each iteration:

  {"measurements": [{"tasks": 256, "group_size": 1, "overhead_ns": 100000000},
                    {"tasks": 256, "group_size": 10, "overhead_ns": 13000000},
                    {"tasks": 64, "group_size": 1, "overhead_ns": 28000000}, ...]}

Fits group_ns, task_ns and constant_task_ns of a request of the problem `drizzle`,
none below 0, by least squares on relative errors. Each measurement is then
predicted by constants that are fitted to the others. Says which constants the
measurements cannot tell apart: measure other numbers of tasks, other group sizes.
"""


def add_parser(commands: Any) -> None:
    """Add the command."""
    summary = "measure or fit constants: of the problems yan and drizzle, and of a network"
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
    fit = command(
        kinds,
        "fit",
        run_fit,
        "fit the constants to measured epochs",
        "planner calibrate fit epochs.json -o constants.json",
        _FIT,
    )
    folds = "parts of the cross-validation; measurement i is in part i mod N; default: 5, or one a "
    folds += "measurement if there are fewer"
    add_options(fit, {"--folds N": folds}, {"--folds": {"default": 5}})
    groups = command(
        kinds,
        "groups",
        run_groups,
        "fit the constants of a scheduler to measured overheads (problem drizzle)",
        "planner calibrate groups overheads.json -o constants.json",
        _GROUPS,
    )
    for parser in (fit, groups):
        parser.add_argument("measurements", metavar="MEASUREMENTS", help="'-': standard input")
        add_options(
            parser,
            {
                "-o, --output FILE": "where the constants go, with their provenance",
                "--json": "the same on standard output, instead of the table",
            },
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


def run_fit(options: argparse.Namespace) -> int:
    """Fit the constants to measured epochs, with progress on standard error."""
    from planner.families.yan.calibration import fit
    from planner.jsonio.measurements import decode_measurements, encode_fit

    integer(options.folds, "--folds", minimum=2)
    check_outputs({"--output": options.output}, (options.measurements,))
    data = read(options.measurements)
    progress = Progress(quiet=options.quiet)
    try:
        with in_file(options.measurements):
            problem, measurements = decode_measurements(data)
            result = fit(
                problem,
                measurements,
                folds=options.folds,
                progress=lambda done, of: progress("calibrate: fit", done, of),
            )
    finally:
        progress.done()
    text = encode_fit(
        result,
        file_name(options.measurements),
        {"python": platform.python_version()}
        | {package: version(package) for package in ("numpy", "scipy")},
    )
    write_fit(options, text, lambda: _report(problem.constants, result))
    return 0


def _report(start: "Constants", result: "Fit") -> str:
    rows = []
    fitted = _named(result.constants)
    for name, before in _named(start).items():
        after = fitted[name]
        plain = name.partition("[")[0]
        note = "held" if plain in result.held else "at 0" if plain in result.at_floor else ""
        rows.append((name, f"{before:.6g}", f"{after:.6g}", f"x {after / before:.4g}", note))
    lines = [format_table(("constant", "start", "fitted", "change", ""), rows)]
    if result.held:
        lines.append("held at its start: no other value fits better, but for noise")
    if result.at_floor:
        lines.append("at 0: with next to nothing of it, the others fit best")
    count = len(result.predictions_ns)
    errors = [
        (what, f"{100 * errors_of.mean:.3g} %", f"{100 * errors_of.largest:.3g} %")
        for what, errors_of in (("fitted", result.fitted), ("held out", result.held_out))
    ]
    lines += ["", format_table((f"{count} measurements", "mean error", "largest"), errors), ""]
    lines.append(f"held out ({result.folds} parts):")
    if result.kendall is None or result.spearman is None:
        lines.append("  no rank correlation: all measurements, or all predictions, are equal")
    else:
        lines.append(f"  Kendall tau-b {result.kendall:.3f}, Spearman rho {result.spearman:.3f}")
    lines.append(
        "  the configuration predicted best took "
        f"{100 * float(result.regret):.3g} % longer than the best one"
    )
    return "\n".join(lines) + "\n"


def _named(constants: "Constants") -> dict[str, float]:
    """Return the constants that are fitted, by name."""
    latencies = {f"latency_ns[{place}]": time for place, time in enumerate(constants.latency_ns)}
    computation = ("muladd_ns", "activation_ns", "error_ns")
    values = {name: getattr(constants, name) for name in computation} | latencies
    values["nic_bits_per_s"] = constants.nic_bits_per_s
    return {name: float(value) for name, value in values.items()}


# ---
# ``planner calibrate groups``: fit the constants of a scheduler to measured overheads.


def run_groups(options: argparse.Namespace) -> int:
    """Fit the constants to a table of overheads."""
    from planner.jsonio.spark import decode_overheads, encode_calibration

    check_outputs({"--output": options.output}, (options.measurements,))
    measurements, calibration = read_as(options.measurements, decode_overheads)
    text = encode_calibration(calibration, file_name(options.measurements))
    write_fit(options, text, lambda: _overheads(measurements, calibration))
    return 0


def _overheads(measurements: "Sequence[Measurement]", calibration: "Calibration") -> str:
    from planner.families.drizzle.calibration import CONSTANTS
    from planner.jsonio.spark import mean_and_largest

    constants = [
        (
            name,
            f"{float(getattr(calibration, name)):.6g}",
            "?" if name in calibration.confounded else "",
        )
        for name in CONSTANTS
    ]
    lines = [format_table(("constant", "fitted", ""), constants)]
    if calibration.confounded:
        lines.append(
            f"?: the measurements cannot tell {' and '.join(calibration.confounded)} apart; others "
            "fit as well,\nand promise other overheads for other numbers of tasks or group sizes"
        )
    header = ["tasks", "group size", "overhead (ns)", "fitted"]
    columns = [[_signed(error) for error in calibration.errors]]
    if calibration.held_out is not None:
        header.append("held out")
        columns.append([_signed(error) for error in calibration.held_out])
    rows = [
        (str(measurement.tasks), str(measurement.group_size), str(measurement.overhead_ns), *errors)
        for measurement, *errors in zip(measurements, *columns, strict=True)
    ]
    lines += ["", format_table(header, rows), f"errors: {ERROR_SIGN}", ""]
    mean, largest = mean_and_largest(calibration.errors)
    lines.append(f"fitted: mean error {mean:.3%}, largest {largest:.3%}")
    if calibration.held_out is None:
        lines.append("held out: too few measurements to leave one out")
    else:
        mean, largest = mean_and_largest(calibration.held_out)
        lines.append(f"held out, one at a time: mean error {mean:.3%}, largest {largest:.3%}")
    return "\n".join(lines) + "\n"


def _signed(error: Any) -> str:
    return f"{float(error):+.2%}"
