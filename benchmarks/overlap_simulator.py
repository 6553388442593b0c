"""How long AutoParallel's own simulator says that a graph takes: a judge that is not ours.

Its `create_execution_trace` runs as it is in the checkout, a microsecond to launch each node; what
else its module imports is not needed, and left out. Nodes have the times that they were planned
with, and those that a pass adds what Inductor's roofline says.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

from torch import fx

from planner.families.overlap import Problem
from planner.profiling.fx import collective_key, collective_name

LEFT_OUT = ("collective_runtime_estimation", "compute_estimation")


def simulated_ms(
    checkout: Path, module: fx.GraphModule, problem: Problem, node_ns: Callable[[Any], float]
) -> float:
    """Return how long a graph takes.

    Parameters
    ----------
    checkout : Path
        A copy of the project.
    module : torch.fx.GraphModule
        The graph, as it is or as a pass left it.
    problem : Problem
        What was planned of it.
    node_ns : callable
        How long a node computes that a pass added.
    """
    known = {node.name: node.duration_ns for node in problem.nodes}
    kinds = {f"{kind.name}@{kind.channel}": kind for kind in problem.kinds}

    def estimated_us(node: fx.Node) -> float:
        if collective_name(node) not in {"", "wait_tensor"}:
            key, size = _key(node)
            return kinds[key].time_ns(size) / 1e3
        if node.op != "call_function":
            return 0.0
        return (known[node.name] if node.name in known else node_ns(node)) / 1e3

    trace = _simulator(checkout)(module, estimated_us)
    ends = [event["ts"] + event["dur"] for event in trace["traceEvents"]]
    return float(max(ends)) / 1e3


def _key(node: fx.Node) -> tuple[str, int]:
    """Return the kind of a collective, also of a coalesced one, with its group, and its bytes."""
    key, _ = collective_key(node)
    first: Any = node.args[0]
    tensors = [
        other.meta["val"] for other in (first if isinstance(first, list | tuple) else [first])
    ]
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return key.replace("_coalesced ", " ").replace("_out ", " "), size


def _simulator(checkout: Path) -> Any:
    path = checkout / "autoparallel" / "graph_passes" / "debug_helpers.py"
    spec = importlib.util.spec_from_file_location("debug_helpers", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    names = ["autoparallel", "autoparallel.cost_models"]
    names += [f"autoparallel.cost_models.{name}" for name in LEFT_OUT]
    with patch.dict(sys.modules, {name: MagicMock() for name in names}):
        spec.loader.exec_module(module)
    # It also describes every tensor, for which it has no name of some types.
    module.get_repr = lambda *_, **__: ""
    return module.create_execution_trace
