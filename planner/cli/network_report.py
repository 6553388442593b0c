"""The report of measured communication and its fitted models, and the cluster made of it."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.cli.common import ERROR_SIGN, in_option, readable
from planner.model import machine
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.costs import AffineCost, TableCost
from planner.model.units import counted, format_ns
from planner.view.table import format_table

if TYPE_CHECKING:
    from planner.model.fitting import NetworkFit, Sweep, Timing

_NOISY = 0.5
"""A larger spread (share of the median) is reported as noise."""

_MODELS = ("table", "affine", "64 B, 4 MB")


def report(sweep: "Sweep", fit: "NetworkFit", interference: Interference = NO_CONTENTION) -> str:
    """Return a table of the times, a table of the models, and the models' errors."""
    several = len(fit.by_depth) > 1
    rows: list[tuple[str, ...]] = []
    models: list[tuple[str, ...]] = []
    for depth, fitted in fit.by_depth:
        timings = sweep.at(depth)
        at = (str(depth),) if several else ()
        columns = []
        costs = (fitted.table, fitted.affine, fitted.two_point)
        for name, cost in zip(_MODELS, costs, strict=True):
            errors, summary = _judged(cost, timings)
            columns.append(errors)
            models.append((name, *at, *summary))
        for timing, *errors in zip(timings, *columns, strict=True):
            spread = f"{timing.spread_ns / timing.median_ns:.1%}"
            size = f"{timing.size_bytes:,}"
            rows.append((size, *at, format_ns(timing.median_ns), spread, *errors))
    at = ("depth",) if several else ()
    header = ("bytes", *at, "measured", "spread", *_MODELS)
    summary = ("model", *at, "start-up, time per byte", "mean error", "largest", "at (bytes)")
    about = (
        f"{sweep.collective} ({sweep.algorithm}) among {sweep.ranks} ranks: medians of "
        f"{counted(sweep.repetitions, 'round')}, the slowest rank's time; errors of the models: "
        f"{ERROR_SIGN}"
    )
    lines = [about, "", format_table(header, rows), "", format_table(summary, models)]
    noisy = sum(
        measurement.spread_ns > _NOISY * measurement.median_ns for measurement in sweep.timings
    )
    if noisy:
        lines.append(
            f"{noisy} of {len(rows)} spreads are above {_NOISY:.0%}: something else was running; "
            "measure again, or more rounds"
        )
    if not interference.is_none:
        lines.append(
            f"during computation a transfer takes {format_ns(interference.startup_ns)} and "
            f"{float(interference.ns_per_byte):g} ns/B from it, and lasts "
            f"{float(interference.slowdown):.2f} times as long and "
            f"{format_ns(interference.delay_ns)}"
        )
    return "\n".join([*lines, ""])


def _judged(
    cost: AffineCost | TableCost | None, timings: "tuple[Timing, ...]"
) -> tuple[list[str], tuple[str, ...]]:
    """Return a model's error at each size, and its parameters with mean and largest error."""
    from planner.model.fitting import relative_errors

    if cost is None:
        return ["–"] * len(timings), ("–",) * 4
    errors = relative_errors(cost, timings)
    shares = [abs(error) for error in errors]
    largest = max(shares)
    worst = f"{timings[shares.index(largest)].size_bytes:,}"
    mean = sum(shares) / len(shares)
    if isinstance(cost, TableCost):
        what = f"{len(cost.points)} points"
    else:
        what = f"{format_ns(cost.startup_ns)}, {float(cost.ns_per_byte):.4g} ns"
    return [f"{error:+.1%}" for error in errors], (what, f"{mean:.1%}", f"{largest:.1%}", worst)


# ---
# The cluster file that ``planner calibrate network`` writes.


def cluster_text(
    options: argparse.Namespace,
    sweep: "Sweep",
    fit: "NetworkFit",
    interference: Interference,
    provenance: dict[str, Any],
) -> str:
    """Return the cluster file of a measured network."""
    from planner.jsonio.network_measurements import cluster_document
    from planner.jsonio.types import laid_out

    each = os.environ.get("LOCAL_WORLD_SIZE", "1")
    shared = int(each) if each.isdecimal() and int(each) else 1
    notes = ["the network does not tell how much memory there is: memory_bytes is left out"]
    if shared > 1:
        notes.append(f"{shared} ranks shared a machine, and each counts as one here")
    with in_option("--cluster-out"):
        document = cluster_document(
            sweep,
            fit,
            name=readable(Path(options.cluster_out).stem) or "measured",
            source=f"{provenance['source']}, {provenance['date']}, {provenance['processor']}",
            cores=max(machine.processors() // shared, 1),
            bcube=options.bcube,
            interference=interference,
            notes=notes,
        )
    return laid_out(document)
