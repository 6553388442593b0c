"""What becomes of traces that others recorded: read, imported, or refused with what is missing.

    python benchmarks/traces.py FOLDER [--hta PYTHON]

FOLDER has traces of PyTorch's profiler (.json, .json.gz); `SOURCES` says where those of the results
are from. None of them is in this repository. For each: its size, whether `planner import kineto`
makes a profile of it or why not, where `planner why` says that its time went, and how far off
`planner tune` predicts its steps, or why it plans nothing. PYTHON is that of
an environment with HolisticTraceAnalysis: then its figures stand beside ours, over the same events
(kernels launched within the recorded steps but the last, as it takes them by default).
"""

import argparse
import json
import subprocess
from dataclasses import replace
from math import isnan
from pathlib import Path
from statistics import median
from typing import Any

from planner.cli.tune import proposed
from planner.formats.importers.kineto import profile_in
from planner.formats.importers.kineto_recorded import recorded_in
from planner.formats.importers.kineto_trace import Trace, read_trace
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.units import format_bytes
from planner.traces.recorded import breakdown_of

SOURCES = """\
Traces: tests/data of facebookresearch/HolisticTraceAnalysis (names that begin with HTA, the folder
in the name; those of at least 4 MiB could not be had), and et_replay/tests/inputs of
facebookresearch/param (linear, resnet, and the eight ranks of dlrm, `worker*`), and
tests/traces/mi300/resnet_act_checkpoint of AMD-AGI/TraceLens.
"""

ASKED = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
for path in json.load(sys.stdin):
    row = None
    try:
        found = TraceAnalysis(trace_files={0: path}, trace_dir="/")
        parts = found.get_temporal_breakdown(visualize=False).iloc[0]
        row = [float(parts[f"{name}_pctg"]) for name in ("idle_time", "compute_time")]
        overlap = found.get_comm_comp_overlap(visualize=False).iloc[0]
        row.append(float(overlap["comp_comm_overlap_pctg"]))
    except Exception:
        pass
    print("ROW" + json.dumps(row), flush=True)
"""
"""What is asked of HolisticTraceAnalysis, in its own environment."""


def asked(python: str, paths: list[Path]) -> list[list[float] | None]:
    done = subprocess.run(
        [python, "-c", ASKED],
        input=json.dumps([str(path.resolve()) for path in paths]),
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [json.loads(line[3:]) for line in done.stdout.splitlines() if line.startswith("ROW")]
    assert len(rows) == len(paths), done.stderr[-2000:]
    return rows


def in_whole_steps(trace: Trace) -> Trace:
    """Return a trace as HTA counts it: without what no step or the last one launched."""
    starts = [mark.start_ns for mark in trace.ranges if mark.name.startswith("ProfilerStep#")]
    if len(starts) < 2:
        return trace
    launched = ((kernel, trace.launched_ns(kernel)) for kernel in trace.kernels)
    kept = (one for one, at in launched if at is not None and starts[0] <= at < starts[-1])
    return replace(trace, kernels=tuple(kept))


def shares(trace: Trace) -> list[float | None]:
    """Return the percentages idle, computing, and of communication hidden."""
    found = breakdown_of(recorded_in(trace, 0))
    whole = max(found.whole_ns, 1)
    overlap = None if found.overlap is None else 100 * found.overlap
    return [100 * found.idle_ns / whole, 100 * found.compute_ns / whole, overlap]


def outcome(trace: Trace, name: str) -> str:
    try:
        profile, warnings = profile_in(trace, name=name, source=name)
    except InvalidInputError as error:
        return f"refused: {error}"
    assert profile.graph is not None
    sizes = f"{len(profile.graph.ops)} ops, {len(profile.graph.parameters)} parameters"
    return f"imported: {sizes}, {len(warnings)} warnings"


def tuned(trace: Trace) -> list[str]:
    """Return the steps, how far off they are predicted, the gain, its interval, and the advice."""
    recorded = recorded_in(trace, 0)
    try:
        _, found = proposed([recorded], trace)
    except (InvalidInputError, NotApplicableError) as error:
        return [*["–"] * 4, f"refused: {error}"]
    gains = f"{found.gain:.2f}", f"{found.least_gain:.2f} – {found.most_gain:.2f}"
    advice = "no proposal" if found.doubtful else "keep" if found.keep else "set"
    return [str(found.steps), f"{100 * found.error:+.2f}", *gains, advice]


def cell(value: float | None) -> str:
    return "–" if value is None or isnan(value) else f"{value:.2f}"


def table(header: list[str], rows: list[list[str]]) -> None:
    print(f"\n| {' | '.join(header)} |\n|{' --- |' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(one.replace('|', '/') for one in row)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hta", metavar="PYTHON")
    options = parser.parse_args()
    paths = sorted(path for path in options.folder.iterdir() if path.is_file())
    tried: list[list[str]] = []
    ours: list[list[float | None] | None] = []
    plans: list[list[str]] = []
    for path in paths:
        whole: Any = None
        try:
            trace = read_trace(path.read_bytes())
        except InvalidInputError as error:
            said, shown = f"refused: {error}", ["–"] * 3
            ours.append(None)
        else:
            said, whole = outcome(trace, path.name), shares(trace)
            shown = list(map(cell, whole))
            plans.append([path.name, *tuned(trace)])
            ours.append(shares(in_whole_steps(trace)) if trace.device else None)
        tried.append([path.name, format_bytes(path.stat().st_size), said, *shown])
    print("# Traces\n")
    print(SOURCES)
    imported = sum(row[2].startswith("imported") for row in tried)
    print(f"{imported} of {len(tried)} are imported, the others refused.")
    table(["trace", "size", "outcome", "idle %", "computing %", "overlap %"], tried)
    print("\n# From a trace to settings\n")
    steps = [row for row in plans if row[1].isdecimal() and int(row[1]) > 1]
    off = sorted(abs(float(row[2])) for row in steps)
    if off:
        print(
            f"Of traces with two steps or more {len(off)} are predicted: {median(off):.2f} % off "
            f"in the median, {off[-1]:.2f} % at worst."
        )
    table(["trace", "steps", "off by %", "gain", "interval", "advice"], plans)
    if options.hta:
        print("\n# Beside HolisticTraceAnalysis\n")
        rows, most = [], 0.0
        for path, own, theirs in zip(paths, ours, asked(options.hta, paths), strict=True):
            if own is None or theirs is None:
                continue
            pairs = [
                (one, other)
                for one, other in zip(own, theirs, strict=False)
                if one is not None and not isnan(other)
            ]
            apart = max(abs(one - other) for one, other in pairs)
            most = max(most, apart)
            rows.append([path.name, *map(cell, own), *map(cell, [*theirs, None][:3]), cell(apart)])
        within = sum(float(row[-1]) <= 1 for row in rows)
        print(
            f"{len(rows)} traces with kernels that both can analyse, {within} of them within one "
            f"point; most apart: {most:.2f} points. It counts cuda_sync as busy and cuts times to "
            "whole microseconds; we do neither."
        )
        names = ["idle", "computing", "overlap"]
        header = ["trace", *(f"{name} %" for name in names), *(f"its {name} %" for name in names)]
        table([*header, "points apart"], rows)


if __name__ == "__main__":
    main()
