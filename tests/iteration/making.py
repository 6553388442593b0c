"""Problems made by hand, and answers that have a plan."""

from fractions import Fraction
from pathlib import Path
from typing import Any

from planner import read_profile
from planner.families.iteration import Plan, Problem, Transfer, evaluate, solve
from planner.model.clusters import Cluster, Nic
from planner.model.graphs import Graph
from planner.model.layers import Layer
from planner.model.profiles import Profile, Provenance
from planner.model.topologies import Switch
from planner.solving.transfers import Kind, Part
from tests.solved import Solved

DATA = Path(__file__).parents[2] / "data"


def profile_of(name: str) -> Profile:
    return read_profile(DATA / "profiles" / f"{name}.json")


def layered(*layers: tuple[int, int, int], batch_size: int | None = 4) -> Profile:
    """Return a chain of layers of (forward, backward, bytes), layer 0 nearest the input."""
    known = tuple(Layer(str(number), *layer) for number, layer in enumerate(layers))
    return Profile("chain", known, Provenance("synthetic", "a test"), batch_size=batch_size)


def chain(*layers: tuple[int, int, int]) -> Graph:
    return layered(*layers).dataflow()


def on_switch(
    machines: int, startup_ns: int, *, per_machine: int = 1, message_ns: int = 0, **fields: Any
) -> Cluster:
    """Return machines on a switch, with NICs of a byte a nanosecond."""
    nic = Nic(Fraction(10**9), startup_ns, per_machine, message_ns)
    return Cluster("c", "a test", machines, Switch(machines), nic, **fields)


def one(kind: Kind, *parts: tuple[int, int, int], not_before_ns: int = 0) -> Transfer:
    """Return a transfer of (parameter, start, stop)."""
    return Transfer(tuple(Part(*part) for part in parts), 1, not_before_ns, kind)


def price(problem: Problem, plan: Plan) -> int:
    return evaluate(problem, plan).iteration_ns


def solved(problem: Problem, method: str = "auto") -> Solved[Plan]:
    """Return the answer to a problem that has a plan."""
    return Solved.of(solve(problem, method=method))


def binding(problem: Problem, method: str = "auto") -> tuple[tuple[str, ...], str]:
    """Return the binding constraints of a problem without a plan, and the reason."""
    result = solve(problem, method=method)
    assert result.plan is None
    assert result.infeasibility is not None
    return result.infeasibility.binding, result.infeasibility.reason
