"""Hypothesis strategies of clusters, and of whole iterations on them."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import strategies as st

from planner.families.iteration import Problem
from planner.model.clusters import Cluster, Nic
from planner.model.graphs import Graph
from planner.model.topologies import BCube, Failures, FatTree, Rails, Switch, Topology
from planner.testing import strategies as testing
from tests.bml.networks import connected, failures, links_left
from tests.caramel.graph_strategies import graphs, training_graphs


@st.composite
def clusters(draw: st.DrawFn, *, single: bool = True) -> Cluster:
    """Clusters of which something may be shared, or have failed."""
    cluster = draw(testing.clusters().filter(lambda one: single or one.workers > 1))
    topology = cluster.topology
    if isinstance(topology, Rails) or draw(st.booleans()):
        return cluster
    if not isinstance(topology, BCube):
        return replace(cluster, shared_bytes_per_s=draw(testing.rates))
    failed = draw(failures(topology, most=1))
    left = links_left(topology, failed)
    works = connected(left) and len(left) >= (1 if single else 2)
    return replace(cluster, failed=failed if works else Failures())


@st.composite
def whole_rates(draw: st.DrawFn) -> Cluster:
    """Clusters on which a byte takes whole nanoseconds by every algorithm: nothing is rounded."""
    known: list[tuple[int, Topology, Fraction | int]] = [
        (2, Switch(2), 500),
        (4, Switch(4), 750),
        (4, FatTree(4), 750),
        (4, BCube(2, 2), 125),
        (2, Rails(2, 2, Fraction(5 * 10**8, 8), 4), Fraction(125, 8)),
    ]
    machines, topology, speed = draw(st.sampled_from(known))
    per_machine = 2 if isinstance(topology, BCube | Rails) else 1
    nic = Nic(
        Fraction(speed * 10**6), draw(testing.times), per_machine, draw(st.sampled_from([0, 3]))
    )
    return Cluster("whole", "a test", machines, topology, nic)


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    cluster: st.SearchStrategy[Cluster] | None = None,
    max_parameters: int = 4,
    capped: bool | None = None,
    one_order: bool = False,
) -> Problem:
    """Any small graph on any cluster, with every option."""
    small = graphs(max_ops=8, max_parameters=max_parameters)
    branching = training_graphs(max_blocks=2, max_branches=2, max_depth=1)
    graph = draw(small | branching.filter(lambda one: len(one.parameters) <= max_parameters))
    count = len(graph.parameters)
    pulled = None
    if draw(st.booleans()):
        pulled = draw(st.lists(st.integers(1, 60), min_size=count, max_size=count))
    cap = None
    if draw(st.booleans()) if capped is None else capped:
        cap = draw(st.integers(1, 80))
    order = _topological(draw, graph) if one_order or draw(st.booleans()) else None
    return Problem(
        graph,
        draw(clusters() if cluster is None else cluster),
        pull_bytes=pulled,
        max_transfer_bytes=cap,
        op_order=order,
        element_bytes=draw(st.sampled_from([1, 1, 4])),
        seed=draw(st.integers(0, 3)),
    )


def _topological(draw: st.DrawFn, graph: Graph) -> tuple[str, ...]:
    """Draw an order of all ops in which each comes after what it needs."""
    done: list[str] = []
    left = list(graph.ops)
    while left:
        able = [op for op in left if all(name in done for name in op.after)]
        op = draw(st.sampled_from(able))
        done.append(op.name)
        left.remove(op)
    return tuple(done)
