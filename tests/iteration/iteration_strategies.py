"""Hypothesis strategies of clusters, and of whole iterations on them."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import strategies as st

from planner.families.iteration import Problem
from planner.model.clusters import Cluster, Nic, scaled_cluster
from planner.model.contention import Interference
from planner.model.graphs import Graph
from planner.model.measured import COLLECTIVES, Measured, MeasuredNetwork
from planner.model.topologies import BCube, Failures, FatTree, Rails, Switch, Topology
from planner.testing import strategies as testing
from tests.bml.networks import connected, failures, links_left
from tests.caramel.graph_strategies import graphs
from tests.iteration.making import on_switch


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
    graph = draw(graphs(max_ops=8, max_parameters=max_parameters))
    count = len(graph.parameters)
    pulls = st.lists(st.integers(1, 60), min_size=count, max_size=count)
    caps = {None: st.none() | st.integers(1, 80), True: st.integers(1, 80), False: st.none()}
    order = _topological(draw, graph) if one_order or draw(st.booleans()) else None
    return Problem(
        graph,
        draw(clusters() if cluster is None else cluster),
        pull_bytes=draw(st.none() | pulls),
        max_transfer_bytes=draw(caps[capped]),
        op_order=order,
        element_bytes=draw(st.sampled_from([1, 1, 4])),
        seed=draw(st.integers(0, 3)),
    )


def _topological(draw: st.DrawFn, graph: Graph) -> tuple[str, ...]:
    """Draw an order of all ops in which each comes after what it needs."""
    left, done = {op.name: op.after for op in graph.ops}, list[str]()
    while left:
        able = [name for name, after in left.items() if {*after} <= {*done}]
        done.append(draw(st.sampled_from(able)))
        del left[done[-1]]
    return tuple(done)


def beside(problem: Problem, interference: Interference) -> Problem:
    return replace(problem, cluster=replace(problem.cluster, interference=interference))


def slower(problem: Problem, factor: int) -> Problem:
    """All times by one factor, and all speeds by its inverse: any plan is as much longer."""
    cluster = scaled_cluster(
        problem.cluster, startup=Fraction(factor), bandwidth=Fraction(1, factor)
    )
    taken = problem.interference
    longer = replace(
        taken,
        startup_ns=taken.startup_ns * factor,
        ns_per_byte=taken.ns_per_byte * factor,
        delay_ns=taken.delay_ns * factor,
    )
    graph = problem.graph.scaled(Fraction(factor))
    return beside(replace(problem, graph=graph, cluster=cluster), longer)


def disturbed(problem: st.SearchStrategy[Problem]) -> st.SearchStrategy[Problem]:
    """Small times show ties, large ones what rounding hides."""
    return st.builds(
        slower, st.builds(beside, problem, testing.interferences()), st.sampled_from([1, 1000])
    )


def rounding(problem: Problem, transfers: int) -> int:
    """Whole nanoseconds: where a transfer ends, and where computation begins to wait."""
    return 0 if problem.interference.is_none else 3 * transfers + 3


@st.composite
def measured(draw: st.DrawFn, most: int = 2) -> Problem:
    """A problem on a switch of three machines, with any table for each collective."""
    rows = st.dictionaries(st.integers(1, 400), st.integers(1, 300), min_size=2, max_size=6)
    tables = (Measured(name, 3, 1, tuple(sorted(draw(rows).items()))) for name in COLLECTIVES)
    problem = draw(problems(max_parameters=most, capped=False, one_order=True))
    cluster = on_switch(3, 5, network=MeasuredNetwork(tuple(tables)))
    return replace(problem, cluster=cluster, algorithms=("measured",))
