"""Public graphs of Llama and DeepSeek models: what the compiler hides, what a plan does, the bound.

    python benchmarks/overlap.py CHECKOUT [--seconds 60] [--only NAME …]

CHECKOUT is a copy of github.com/meta-pytorch/autoparallel (see `overlap_graphs`, which also says
where the times come from); the graphs of DeepSeek need triton too. For each graph: the
communication that is not hidden, in the graph's own order, as Inductor's overlap scheduling with
bucketing orders and merges it, as one list schedule does, and as the search does within the time
limit with at most the memory of Inductor's plan; and what no order and no merging can undercut. All
are priced by `planner.overlap.evaluate`. At last some of the times change, and the search goes on
from the plan.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from planner.overlap import Problem, check, own_order, solve, with_limit

NAMES = (
    *(
        f"llama3_8b_{way}_{size}"
        for size in ("64_1d", "64_2d", "256_1d", "256_2d")
        for way in ("fw", "bw")
    ),
    *(f"dsv3_{way}_{size}" for size in ("64", "128") for way in ("fw", "bw")),
)
TOOLS = Path("autoparallel") / "tools" / "overlap_simulator"
SETTINGS = {"collective_bucketing": True, "compute_estimator": "analytical"}


def timed(make: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    made = make()
    return made, time.perf_counter() - begin


def row_of(folder: Path, name: str, seconds: float) -> dict[str, Any]:
    """Return what is known of one graph."""
    from overlap_graphs import document_of
    from overlap_inductor import inductor_plan

    from planner.formats.fx import problem_of
    from planner.jsonio.fx import decode_fx

    document, graph_module, _ = document_of(folder, name)
    problem = problem_of(decode_fx(json.dumps(document).encode()))
    own = check(problem, own_order(problem))
    times = {node.name: node.duration_ns for node in problem.nodes}
    (plan, lost), inductor_s = timed(
        lambda: inductor_plan(graph_module, problem, times, settings=SETTINGS)
    )
    theirs = check(problem, plan)
    limited = with_limit(problem, theirs.peak_bytes)
    greedy = None
    if own.peak_bytes <= theirs.peak_bytes:
        greedy = solve(limited, method="greedy")
    start = own_order(problem) if greedy else plan
    first: list[float] = []
    begin = time.perf_counter()
    ours = solve(
        limited,
        start=start,
        time_limit=seconds,
        on_progress=lambda _: first.append(time.perf_counter() - begin),
    )
    assert ours.plan is not None
    assert ours.evaluation is not None
    assert ours.lower_bound_ns is not None
    again = changed(limited, ours.plan, seconds / 10)
    return {
        "nodes": len(problem.nodes),
        "collectives": len(problem.collectives),
        "computation_ms": problem.computation_ns / 1e6,
        "own_ms": own.exposed_ns / 1e6,
        "inductor_ms": theirs.exposed_ns / 1e6,
        "inductor_s": inductor_s,
        "lost": lost,
        "greedy_ms": greedy.evaluation.exposed_ns / 1e6 if greedy and greedy.evaluation else None,
        "ours_ms": ours.evaluation.exposed_ns / 1e6,
        "bound_ms": (ours.lower_bound_ns - problem.computation_ns) / 1e6,
        "above_bound": ours.gap,
        "own_bytes": own.peak_bytes,
        "inductor_bytes": theirs.peak_bytes,
        "ours_bytes": ours.evaluation.peak_bytes,
        "seconds": ours.runtime_s,
        "again": again,
        "transfers": [len(theirs.transfers), len(ours.evaluation.transfers)],
    }


def changed(problem: Problem, plan: Any, seconds: float) -> list[float]:
    """Change a twentieth of the times; return what is not hidden by the old plan, and by a new."""
    random = Random(5)
    nodes = [
        replace(node, duration_ns=round(node.duration_ns * random.uniform(0.5, 2.0)))
        if random.random() < 0.05
        else node
        for node in problem.nodes
    ]
    after = replace(problem, nodes=nodes)
    before = check(after, plan)
    new = solve(after, start=plan, time_limit=seconds)
    assert new.evaluation is not None
    return [before.exposed_ns / 1e6, new.evaluation.exposed_ns / 1e6]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", nargs="*", default=NAMES)
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(row_of(options.checkout / TOOLS, options.row, options.seconds)))
        return
    commit = subprocess.run(
        ["git", "-C", options.checkout, "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    print(f"graphs: github.com/meta-pytorch/autoparallel, {TOOLS}, commit {commit or 'unknown'}")
    print(f"time limit {options.seconds:g} s, one thread; ms that computation does not hide\n")
    header = (
        "graph", "nodes", "computation", "own order", "Inductor", "list", "ours", "bound",
        "ours / Inductor", "above bound", "GiB Inductor", "GiB ours", "s Inductor", "s ours",
        "changed", "re-planned",
    )  # fmt: skip
    print("| " + " | ".join(header) + " |")
    print("|" + " --- |" * len(header))
    for name in options.only:
        command = [sys.executable, __file__, str(options.checkout), "--row", name]
        done = subprocess.run(
            [*command, "--seconds", str(options.seconds)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            print(f"{name}: not planned: {last}", file=sys.stderr)
            continue
        row = json.loads(done.stdout.strip().splitlines()[-1])
        print("| " + " | ".join((name, *cells(row))) + " |", flush=True)


def cells(row: dict[str, Any]) -> list[str]:
    """Return what stands in the table of a graph."""
    theirs, ours = row["inductor_ms"], row["ours_ms"]
    return [
        str(row["nodes"]),
        f"{row['computation_ms']:.1f}",
        f"{row['own_ms']:.1f}",
        f"{theirs:.2f}",
        "–" if row["greedy_ms"] is None else f"{row['greedy_ms']:.2f}",
        f"{ours:.2f}",
        f"{row['bound_ms']:.2f}",
        f"{ours / theirs:.3f}" if theirs else "–",
        f"{row['above_bound']:.2%}",
        f"{row['inductor_bytes'] / 2**30:.2f}",
        f"{row['ours_bytes'] / 2**30:.2f}",
        f"{row['inductor_s']:.1f}",
        f"{row['seconds']:.1f}",
        *(f"{again:.2f}" for again in row["again"]),
    ]


if __name__ == "__main__":
    main()
