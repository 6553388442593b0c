"""``planner calibrate groups``: fit the constants of a scheduler to measured overheads."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from planner.cli.common import (
    ERROR_SIGN,
    add_fit_options,
    check_outputs,
    command,
    file_name,
    read_as,
    write_fit,
)
from planner.view.table import format_table

if TYPE_CHECKING:
    from planner.families.drizzle import Calibration, Measurement

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


def add_groups(kinds: Any) -> None:
    """Add the subcommand that reads a table of overheads."""
    parser = command(
        kinds,
        "groups",
        run_groups,
        "fit the constants of a scheduler to measured overheads (problem drizzle)",
        "planner calibrate groups overheads.json -o constants.json",
    )
    parser.description = f"{parser.description}\n\n{_GROUPS}"
    add_fit_options(parser)


def run_groups(options: argparse.Namespace) -> int:
    """Fit the constants to a table of overheads."""
    from planner.jsonio.drizzle_measurements import decode_overheads, encode_calibration

    check_outputs({"--output": options.output}, (options.measurements,))
    measurements, calibration = read_as(options.measurements, decode_overheads)
    text = encode_calibration(calibration, file_name(options.measurements))
    write_fit(options, text, lambda: _report(measurements, calibration))
    return 0


def _report(measurements: "Sequence[Measurement]", calibration: "Calibration") -> str:
    from planner.families.drizzle.calibration import CONSTANTS
    from planner.jsonio.drizzle_measurements import mean_and_largest

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
