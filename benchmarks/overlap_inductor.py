"""What Inductor's overlap scheduling makes of a graph, as a plan of ours: the peer of `overlap`.

`schedule_overlap_bucketing` of the installed torch runs on the same graph with the same times: a
custom estimator gives every node the time that our problem gives it, and every transfer that it
merges the time of that many bytes. Where the pass merges collectives it replaces them by new nodes;
what became what is recorded, and the final order is read back: what is left of the graph keeps its
place, merged starts and waits have that of the new ones, and what the pass absorbed comes as late
as what needs it.
"""

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import torch
from overlap_graphs import without_gpu
from torch import fx

from planner.families.overlap import Plan, Problem
from planner.families.overlap.list_schedule import topological
from planner.families.overlap.merging import contract
from planner.profiling.fx import collective_key, collective_name


def inductor_plan(
    graph_module: fx.GraphModule,
    problem: Problem,
    node_ns: Mapping[str, int],
    *,
    settings: Mapping[str, Any],
) -> tuple[Plan, fx.GraphModule, int]:
    """Return the plan that the pass makes of a graph, its graph, and how many groups were lost.

    Parameters
    ----------
    graph_module : torch.fx.GraphModule
        The graph; it is changed.
    problem : Problem
        The same graph as a problem.
    node_ns : mapping
        The time of each computation, by name.
    settings : mapping
        Of `schedule_overlap_bucketing`.
    """
    from torch._inductor.fx_passes import bucketing
    from torch._inductor.fx_passes.overlap_scheduling import schedule_overlap_bucketing

    kinds = {f"{kind.name}@{kind.channel}": kind for kind in problem.kinds}

    def estimated_ms(node: fx.Node, override_size: int | None = None) -> float:
        if collective_name(node) not in {"", "wait_tensor"}:
            key, size = collective_key(node)
            key = key.replace("_out ", " ")  # as the pass calls what it merges
            return kinds[key].time_ns(size if override_size is None else override_size) / 1e6
        return node_ns.get(node.name, 0) / 1e6

    became: dict[str, list[str]] = {}
    original = bucketing.process_collective_bucket

    def recorded(g: fx.Graph, nodes: list[fx.Node], *args: Any, **named: Any) -> Any:
        starts = [name for node in nodes for name in became.get(node.name, [node.name])]
        waits = [next(iter(node.users)) for node in nodes]
        ends = [name for node in waits for name in became.get(node.name, [node.name])]
        new, replacements = original(g, nodes, *args, **named)
        for node in new:
            kind = collective_name(node)
            if kind:
                became[node.name] = ends if kind == "wait_tensor" else starts
        return new, replacements

    # The pass asks the graphics card for its bandwidth, though every time is given.
    with (
        patch("torch._inductor.fx_passes.bucketing.process_collective_bucket", recorded),
        patch("torch.utils._runtime_estimation.get_gpu_dram_gbps", lambda: 3350),
        patch("torch.utils._runtime_estimation.get_device_tflops", lambda _: 989.0),
        torch._inductor.config.patch(deterministic=True),
        without_gpu(),
    ):
        after = schedule_overlap_bucketing(
            graph_module, custom_runtime_estimation=estimated_ms, **settings
        )
    plan, lost = _read_back(problem, [node.name for node in after.graph.nodes], became)
    return plan, after, lost


def _read_back(
    problem: Problem, names: list[str], became: Mapping[str, list[str]]
) -> tuple[Plan, int]:
    number = {node.name: place for place, node in enumerate(problem.nodes)}
    of_start = {it.start: place for place, it in enumerate(problem.collectives)}
    key: dict[int, float] = {}
    merged, lost = [], 0
    for place, name in enumerate(names):
        originals = [number[n] for n in became.get(name, [name]) if n in number]
        key.update(dict.fromkeys(originals, float(place)))
        starts = [of_start[node] for node in originals if node in of_start]
        by_kind: dict[int, list[int]] = {}
        for start in starts:
            by_kind.setdefault(problem.collectives[start].kind, []).append(start)
        lost += len(by_kind) > 1
        merged += [tuple(group) for group in by_kind.values() if len(group) > 1]
    units = contract(problem, merged)
    if units is None:
        raise RuntimeError("what the pass merged cannot be merged in the graph")
    count = len(units.members)
    keys = [0.0] * count
    for unit in topological(units, [0.0] * count)[::-1]:
        known = [key[node] for node in units.members[unit] if node in key]
        soonest = min((keys[other] for other in units.later[unit]), default=float(len(names)))
        keys[unit] = max(known) if known else soonest - 0.5
    return units.plan(topological(units, keys)), lost
