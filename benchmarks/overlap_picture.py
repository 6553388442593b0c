"""Draws one public graph as Inductor schedules it, as planned, and the bound.

    python benchmarks/overlap_picture.py CHECKOUT [NAME] [--seconds 20] -o FILE

CHECKOUT is as for `overlap.py`, which prices the same plans.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from overlap import SETTINGS, TOOLS
from overlap_graphs import document_of
from overlap_inductor import inductor_plan

from planner.families.overlap import check, solve, with_limit
from planner.formats.importers.fx import problem_of
from planner.jsonio.graphs import decode_fx
from planner.jsonio.overlap import timeline_of
from planner.solving.timeline import Timeline
from planner.view.chart import Chart
from planner.view.gantt import save_gantt


def named(timeline: Timeline, name: str) -> Timeline:
    """Return a timeline whose resources begin with a name."""
    return Timeline(
        tuple(f"{name}: {resource}" for resource in timeline.resources),
        tuple(replace(it, resource=f"{name}: {it.resource}") for it in timeline.intervals),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("name", nargs="?", default="llama3_8b_bw_64_2d")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    document, graph_module, _ = document_of(options.checkout / TOOLS, options.name)
    problem = problem_of(decode_fx(json.dumps(document).encode()))
    times = {node.name: node.duration_ns for node in problem.nodes}
    plan, _, _ = inductor_plan(graph_module, problem, times, settings=SETTINGS)
    theirs = check(problem, plan)
    ours = solve(with_limit(problem, theirs.peak_bytes), start=plan, time_limit=options.seconds)
    assert ours.plan is not None
    assert ours.evaluation is not None
    first = named(timeline_of(problem, plan, theirs), "Inductor")
    second = named(timeline_of(problem, ours.plan, ours.evaluation), "planned")
    both = Timeline((*first.resources, *second.resources), (*first.intervals, *second.intervals))
    title = (
        f"{options.name}: of {theirs.makespan_ns / 1e6:.0f} ms with Inductor's schedule, "
        f"{theirs.exposed_ns / 1e6:.1f} ms are not hidden; of "
        f"{ours.evaluation.makespan_ns / 1e6:.0f} ms as planned, "
        f"{ours.evaluation.exposed_ns / 1e6:.1f} ms"
    )
    save_gantt(Chart(title, both, ours.lower_bound_ns), options.output)


if __name__ == "__main__":
    main()
