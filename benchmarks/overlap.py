"""Public graphs of Llama and DeepSeek models: what the compiler hides, what a plan does, the bound.

    python benchmarks/overlap.py CHECKOUT [--seconds 60] [--at-once 2] [--only NAME …] [--quick]

CHECKOUT is a copy of github.com/meta-pytorch/autoparallel (see `overlap_graphs`, which also says
where the times come from); the graphs of DeepSeek need triton too. For each graph: the
communication that is not hidden, in the graph's own order, as Inductor's overlap scheduling with
bucketing orders and merges it, and as the search does within the time limit with at most the memory
of Inductor's plan; and what no order and no merging can undercut. All are priced by
`planner.overlap.evaluate`, and once more by AutoParallel's own simulator. `overlap_scenarios`,
which knows nothing of the package, says what Inductor's plan exposes if times differ, what the best
plan for the times as given does, and what the one that `auto` takes, the best over scenarios. Then
a twentieth of the times change, and the search goes on from the plan for a tenth of the time, or
begins anew for all of it. At last made graphs with up to a million nodes. `--quick` takes one
graph, and small ones.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from overlap_scenarios import SCENARIOS, exposed_ns
from tables import rows_below

from planner import Incumbent
from planner.families.overlap import (
    OVERLAP,
    Collective,
    Kind,
    Node,
    Plan,
    Problem,
    Tensor,
    check,
    own_order,
    solve,
    with_limit,
)
from planner.families.overlap.robust import USUAL
from planner.solving.deadline import Deadline
from planner.solving.what_if import robust_plan

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
Row = dict[str, Any]


def timed(make: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    made = make()
    return made, time.perf_counter() - begin


def row_of(checkout: Path, name: str, seconds: float) -> Row:
    """Return what is known of one graph."""
    from overlap_graphs import document_of
    from overlap_inductor import inductor_plan
    from overlap_simulator import simulated_ms

    from planner.formats.importers.fx import problem_of
    from planner.jsonio.graphs import decode_fx
    from planner.jsonio.overlap import encode_request
    from planner.runtime.overlap_pass import impose_overlap

    document, module, times = document_of(checkout / TOOLS, name)
    problem = problem_of(decode_fx(json.dumps(document).encode()))
    own = check(problem, own_order(problem))
    known = {node.name: node.duration_ns for node in problem.nodes}
    planned = deepcopy(module)
    simulated = [simulated_ms(checkout, module, problem, times.node_ns)]
    (plan, after, lost), inductor_s = timed(
        lambda: inductor_plan(module, problem, known, settings=SETTINGS)
    )
    assert not lost
    theirs = check(problem, plan)
    limited = with_limit(problem, theirs.peak_bytes)
    # Where the own order needs more memory than Inductor's, the search begins with that one.
    start = own_order(problem) if own.peak_bytes <= theirs.peak_bytes else plan
    told: list[Incumbent[Plan]] = []
    ours, ours_s = timed(
        lambda: solve(limited, time_limit=seconds, start=start, on_progress=told.append)
    )
    first = next((it.runtime_s for it in told if it.plan != start), 0.0)
    assert ours.plan is not None
    assert ours.evaluation is not None
    assert ours.lower_bound_ns is not None
    (robust, _), robust_s = timed(
        lambda: robust_plan(OVERLAP, limited, USUAL, Deadline.of(seconds), ours)
    )
    assert robust.plan is not None
    request = json.loads(encode_request(problem))
    scenarios = {
        name: [
            exposed_ns(request, it.order, it.merged, times) / 1e6
            for it in (plan, ours.plan, robust.plan)
        ]
        for name, times in SCENARIOS.items()
    }
    impose_overlap(planned.graph, (limited, ours.plan))
    simulated += [simulated_ms(checkout, it, problem, times.node_ns) for it in (after, planned)]
    return {
        "nodes": len(problem.nodes),
        "collectives": len(problem.collectives),
        "computation_ms": problem.computation_ns / 1e6,
        "own_ms": own.exposed_ns / 1e6,
        "inductor_ms": theirs.exposed_ns / 1e6,
        "ours_ms": ours.evaluation.exposed_ns / 1e6,
        "bound_ms": (ours.lower_bound_ns - problem.computation_ns) / 1e6,
        "above_bound": ours.gap,
        "gib": [it.peak_bytes / 2**30 for it in (own, theirs, ours.evaluation)],
        "transfers": [len(it.transfers) for it in (own, theirs, ours.evaluation)],
        "first_s": first,
        "inductor_s": inductor_s,
        "ours_s": ours_s,
        "robust_s": robust_s,
        "scenarios": scenarios,
        "simulated_ms": simulated,
        "changed_ms": changed(limited, ours.plan, start, seconds),
    }


def changed(problem: Problem, plan: Plan, start: Plan, seconds: float) -> list[float]:
    """Change a twentieth of the times; return what the old plan and new ones do not hide."""
    random = Random(5)
    nodes = [
        replace(node, duration_ns=round(node.duration_ns * random.uniform(0.5, 2.0)))
        if random.random() < 0.05
        else node
        for node in problem.nodes
    ]
    after = replace(problem, nodes=nodes)
    plans = [
        solve(after, time_limit=seconds / 10, start=plan),
        solve(after, time_limit=seconds, start=start),
    ]
    costs = [check(after, plan), *(it.evaluation for it in plans)]
    return [cost.exposed_ns / 1e6 for cost in costs if cost is not None]


def made(layers: int) -> Problem:
    """Return gathers and sums of layers, with the memory of the order as listed and some more."""
    random = Random(3)
    nodes: list[Node] = []
    collectives, tensors = [], []
    for number in range(2 * layers):
        begin = len(nodes)
        nodes.append(Node(f"start {number}", (begin - 1,) if number % 2 else ()))
        nodes.append(Node(f"wait {number}", (begin,)))
        needs = (begin + 1, begin - 1) if begin else (begin + 1,)
        nodes.append(Node(f"use {number}", needs, random.randrange(10**5, 10**6)))
        size = random.randrange(10**6, 10**7)
        collectives.append(Collective(begin, begin + 1, number % 2, size))
        tensors.append(Tensor(size, begin, (begin + 2,)))
    kinds = [Kind(name, name, ((0, 20_000), (10**7, 900_000))) for name in ("gather", "sum")]
    return Problem(
        nodes=nodes,
        kinds=kinds,
        collectives=collectives,
        tensors=tensors,
        memory_limit_bytes=30 * 10**6,
    )


def growth(sizes: list[int]) -> Iterator[tuple[object, ...]]:
    """Yield rows of made graphs."""
    for size in sizes:
        problem, read_s = timed(partial(made, size // 6))
        result, plan_s = timed(partial(solve, problem, method="greedy"))
        own = check(problem, own_order(problem))
        hidden = 1 - result.evaluation.exposed_ns / own.exposed_ns
        yield (
            f"{len(problem.nodes):,}",
            f"{read_s:.1f} s",
            f"{plan_s:.1f} s",
            f"{hidden:.1%}",
            f"{result.gap:.1%}",
        )


def asked(options: argparse.Namespace, name: str) -> Row | None:
    """Return the row of a graph, worked out in a process of its own."""
    command = [sys.executable, __file__, str(options.checkout), "--row", name]
    done = subprocess.run(
        [*command, "--seconds", str(options.seconds)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        print(f"{name}: not planned: {last}", file=sys.stderr)
        return None
    print(f"{name}: planned", file=sys.stderr)
    row: Row = json.loads(done.stdout.strip().splitlines()[-1])
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--at-once", type=int, default=2, metavar="GRAPHS")
    parser.add_argument("--only", nargs="*", default=NAMES)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.checkout = options.checkout.resolve()
    if options.row:
        print(json.dumps(row_of(options.checkout, options.row, options.seconds)))
        return
    if options.quick:
        options.seconds, options.only = 2.0, NAMES[2:3]
    commit = subprocess.run(
        ["git", "-C", options.checkout, "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    with ThreadPoolExecutor(options.at_once) as pool:
        answers = list(pool.map(lambda name: asked(options, name), options.only))
    rows = {name: row for name, row in zip(options.only, answers, strict=True) if row}
    print(f"Graphs: github.com/meta-pytorch/autoparallel, commit {commit or 'unknown'}.")
    print(f"Time limit {options.seconds:g} s on one core.\n")
    print_tables(rows)
    print("## Made graphs, one list schedule\n")
    sizes = [10**4, 10**5] if options.quick else [10**4, 10**5, 10**6]
    columns = ("nodes", "to read", "to plan", "hidden of the own order's", "above bound")
    rows_below(columns, growth(sizes))


def print_tables(rows: dict[str, Row]) -> None:
    """Print what is known of the public graphs."""
    print("## Communication that is not hidden\n")
    rows_below(
        ("graph", "nodes", "collectives", "computation", "own order", "Inductor", "ours", "bound",
         "ours of Inductor", "above bound"),
        (
            (
                name,
                row["nodes"],
                row["collectives"],
                *(f"{row[f'{key}_ms']:.2f} ms" for key in
                  ("computation", "own", "inductor", "ours", "bound")),
                f"{row['ours_ms'] / row['inductor_ms']:.1%}",
                f"{row['above_bound']:.2%}",
            )
            for name, row in rows.items()
        ),
    )  # fmt: skip
    print("## Memory and transfers\n")
    three = ("own order", "Inductor", "ours")
    rows_below(
        ("graph", *(f"GiB {it}" for it in three), *(f"transfers {it}" for it in three)),
        (
            (name, *(f"{it:.2f}" for it in row["gib"]), *row["transfers"])
            for name, row in rows.items()
        ),
    )
    print("## What is exposed if times differ\n")
    rows_below(
        (
            "graph",
            "times",
            "Inductor",
            "planned for the times as given",
            "planned for all of these",
        ),
        (
            (name, scenario, *(f"{it:.2f} ms" for it in exposed))
            for name, row in rows.items()
            for scenario, exposed in row["scenarios"].items()
        ),
    )
    print("## The whole graph by AutoParallel's simulator\n")
    rows_below(
        ("graph", *three, "ours of Inductor"),
        (
            (
                name,
                *(f"{it:.2f} ms" for it in row["simulated_ms"]),
                f"{row['simulated_ms'][2] / row['simulated_ms'][1]:.1%}",
            )
            for name, row in rows.items()
        ),
    )
    print("## Time to plan\n")
    rows_below(
        ("graph", "Inductor", "first plan of ours", "all", "for all scenarios"),
        (
            (
                name,
                *(f"{row[key]:.1f} s" for key in ("inductor_s", "first_s", "ours_s", "robust_s")),
            )
            for name, row in rows.items()
        ),
    )
    print("## A twentieth of the times changed: what is not hidden\n")
    rows_below(
        ("graph", "old plan", "re-planned in a tenth of the time", "planned anew"),
        ((name, *(f"{it:.2f} ms" for it in row["changed_ms"])) for name, row in rows.items()),
    )


if __name__ == "__main__":
    main()
