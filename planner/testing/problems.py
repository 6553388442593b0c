"""Strategies of problems and plans of each family."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from planner.families import bigdl, bml, caramel, drizzle, fsdp, ibatch, iteration, overlap, yan
from planner.model.contention import NO_CONTENTION
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.graphs import Graph
from planner.model.topologies import BCube, Failures
from planner.model.validation import did_you_mean
from planner.solving.family import Family
from planner.testing.strategies import (
    affine_costs,
    clusters,
    costs,
    depth_costs,
    graphs,
    interferences,
    networks,
    sizes,
    times,
)


@st.composite
def _ibatch(draw: st.DrawFn, size: int) -> ibatch.Problem:
    count = draw(st.integers(1, size))
    each = st.lists(times, min_size=count, max_size=count)
    fields: dict[str, Any] = {
        "compute_ns": draw(each),
        "layer_bytes": draw(each),
        "direction": draw(st.sampled_from(["pull", "push"])),
        "objective": draw(st.sampled_from(["makespan", "eq4"])),
    }
    if draw(st.booleans()):
        fields |= {"startup_ns": draw(times), "transfer_ns": draw(each)}
    else:
        fields |= {"cost": draw(costs())}
        if fields["objective"] == "makespan":
            fields |= {"interference": draw(st.just(NO_CONTENTION) | interferences())}
    if draw(st.booleans()):
        fields |= {"max_batch_bytes": draw(st.integers(1, 120))}
    return ibatch.Problem(**fields)


@st.composite
def _caramel(draw: st.DrawFn, size: int) -> caramel.Problem:
    workers = draw(st.integers(1, 4))
    problem = caramel.Problem(
        draw(graphs(parameters=size)),
        draw(costs() | depth_costs()),
        workers=workers,
        servers=draw(st.none() | st.integers(1, workers)),
        seed=draw(st.integers(0, 3)),
        threshold_bytes=draw(st.none() | st.integers(0, 80)),
        stages=draw(st.builds(caramel.Stages, *[st.booleans()] * 3)),
        element_bytes=draw(st.sampled_from([1, 1, 2, 4])),
        interference=draw(st.just(NO_CONTENTION) | interferences()),
    )
    if draw(st.booleans()):
        drawn = draw(st.permutations(range(len(problem.graph.ops))))
        return replace(problem, op_order=problem.graph.names_of(_sorted(problem.graph, drawn)))
    return problem


def _sorted(graph: Graph, wish: Sequence[int]) -> list[int]:
    """Return a topological order of ops that keeps close to `wish`."""
    done: list[int] = []
    while len(done) < len(wish):
        left = (op for op in wish if op not in done)
        done.append(next(op for op in left if {*graph.predecessors[op]} <= {*done}))
    return done


@st.composite
def _iteration(draw: st.DrawFn, size: int) -> iteration.Problem:
    graph = draw(graphs(parameters=size))
    count = len(graph.parameters)
    return iteration.Problem(
        graph,
        draw(clusters()),
        pull_bytes=draw(st.none() | st.lists(sizes, min_size=count, max_size=count)),
        max_transfer_bytes=draw(st.none() | st.integers(1, 80)),
        element_bytes=draw(st.sampled_from([1, 1, 4])),
    )


@st.composite
def _fsdp(draw: st.DrawFn, size: int) -> fsdp.Problem:
    count = draw(st.integers(1, size))

    def values(least: int = 0) -> list[int]:
        return draw(st.lists(st.integers(least, 9), min_size=count, max_size=count))

    ranks = draw(st.sampled_from([2, 4]))
    shards = draw(st.sampled_from([ranks, ranks // 2]))
    mesh = fsdp.Mesh(
        shards=shards,
        replicas=ranks // shards,
        all_gather=draw(costs()),
        reduce_scatter=draw(costs()),
        all_reduce=draw(affine_costs()) if shards < ranks else None,
        own_links=draw(st.booleans()),
    )
    kept = values()
    return fsdp.Problem(
        forward_ns=values(),
        backward_ns=values(),
        parameter_bytes=values(1),
        gradient_bytes=values(),
        activation_bytes=kept,
        checkpoint_bytes=draw(st.none() | st.just([least // 2 for least in kept])),
        meshes=[mesh],
        channels=draw(st.sampled_from(["one", "two", "shared"])),
        optimiser=Fraction(draw(st.integers(0, 9)), 2),
    )


@st.composite
def _overlap(draw: st.DrawFn, size: int) -> overlap.Problem:
    """Return a graph of computation and collectives, which are waited for in the order of issue."""
    kinds = []
    for name in "kl"[: draw(st.integers(1, 2))]:
        least, more = draw(st.integers(0, 5)), draw(st.integers(0, 9))
        channel, merges = draw(st.sampled_from("ab")), draw(st.booleans())
        kinds.append(overlap.Kind(name, channel, ((0, least), (4, least + more)), merges))
    nodes: list[overlap.Node] = []
    made: list[overlap.Collective] = []
    pending: list[int] = []

    def needs() -> tuple[int, ...]:
        return tuple(place for place in range(len(nodes)) if draw(st.integers(0, 3)) == 0)

    def wait() -> None:
        start = pending.pop(0)
        nodes.append(overlap.Node(f"wait {len(nodes)}", tuple(sorted({start, *needs()}))))
        amounts = [draw(st.integers(0, 3)) for _ in range(5)]
        which = draw(st.integers(0, len(kinds) - 1))
        made.append(overlap.Collective(start, len(nodes) - 1, which, *amounts))

    whats = "c" * draw(st.integers(0, size)) + "t" * draw(st.integers(1, size))
    for what in draw(st.permutations(whats)):
        if what == "c":
            nodes.append(overlap.Node(f"compute {len(nodes)}", needs(), draw(st.integers(0, 6))))
        else:
            nodes.append(overlap.Node(f"start {len(nodes)}", needs()))
            pending.append(len(nodes) - 1)
        if draw(st.booleans()) and pending:
            wait()
    while pending:
        wait()
    tensors = []
    for _ in range(draw(st.integers(0, 4))):
        producer = draw(st.none() | st.integers(0, len(nodes) - 1))
        after = 0 if producer is None else producer + 1
        readers = tuple(place for place in range(after, len(nodes)) if draw(st.integers(0, 2)) == 0)
        tensors.append(
            overlap.Tensor(draw(st.integers(0, 5)), producer, readers, draw(st.booleans()))
        )
    for number, it in enumerate(made):
        read = [n for n, tensor in enumerate(tensors) if it.start in tensor.readers]
        made[number] = replace(it, input_tensor=draw(st.sampled_from([None, *read])))
    problem = overlap.Problem(nodes=nodes, kinds=kinds, collectives=made, tensors=tensors)
    if draw(st.booleans()):
        return problem
    needed = overlap.evaluate(problem, overlap.own_order(problem)).peak_bytes
    return overlap.with_limit(problem, max(0, needed - draw(st.integers(0, 4))))


@st.composite
def _yan(draw: st.DrawFn, size: int) -> yan.Problem:
    inputs, layers = draw(st.integers(1, 6)), []
    for place in range(draw(st.integers(1, size))):
        neurons = draw(st.integers(1, 7))
        weights = neurons * inputs
        layers.append(yan.NeuronLayer(f"layer{place}", "full", neurons, weights, weights + neurons))
        inputs = neurons
    rate = st.sampled_from(["0.1", "0.5", "1", "3.7", "10"]).map(Fraction)
    threads = draw(st.integers(1, 2))
    each = st.lists(rate, min_size=threads, max_size=threads)
    constants = yan.Constants(
        muladd_ns=draw(rate),
        activation_ns=draw(rate),
        error_ns=draw(rate),
        latency_ns=draw(each),
        nic_bits_per_s=draw(rate) * 10**10,
        interference=draw(each),
    )
    machines = draw(st.integers(2, 4))
    return yan.Problem(
        machines=machines,
        cores=threads,
        layers=layers,
        constants=constants,
        samples=draw(st.integers(1, 60)),
        read_every=draw(st.integers(1, 20)),
        memory_bytes=draw(st.none() | st.integers(100, 10**4)),
        machine_speeds=draw(st.none() | st.lists(rate, min_size=machines, max_size=machines)),
    )


@st.composite
def _bml(draw: st.DrawFn, size: int) -> bml.Problem:
    """Return a gradient on a BCube, of which a NIC or a switch may have failed."""
    n, k = draw(st.sampled_from([(2, 1), (3, 1), (2, 2), (3, 2), (2, 3)]))
    network = BCube(n, k)
    nics = st.tuples(st.integers(0, network.servers - 1), st.integers(0, k - 1))
    failed = Failures(nics=draw(st.frozensets(nics, max_size=1)))
    assume(k > 1 or not failed.nics)  # a server with one NIC needs it
    element = draw(st.integers(1, 4))
    layers = draw(st.lists(st.integers(0, 40), max_size=size))
    whole = None if layers else element * draw(st.integers(0, 40))
    return bml.Problem(
        network,
        draw(networks()),
        whole,
        tuple(element * count for count in layers),
        element,
        failed,
    )


@st.composite
def _bigdl(draw: st.DrawFn, size: int) -> bigdl.Problem:
    return bigdl.Problem(
        elements=draw(st.integers(1, 60)),
        element_bytes=draw(st.integers(1, 8)),
        nodes=draw(st.integers(1, 2 * size)),
        partitions_per_node=draw(st.integers(1, 6)),
        network=draw(networks()),
    )


@st.composite
def _drizzle(draw: st.DrawFn, size: int) -> drizzle.Problem:
    rate = st.builds(Fraction, st.integers(0, 60), st.integers(1, 7))
    return drizzle.Problem(
        compute_ns=draw(times),
        tasks=draw(st.integers(1, size)),
        group_ns=draw(rate),
        task_ns=draw(rate),
        constant_task_ns=draw(st.just(Fraction(0)) | rate.map(lambda large: large / 9)),
        max_overhead=Fraction(draw(st.integers(1, 30)), 60),
        max_group_ns=draw(st.none() | st.integers(1, 800)),
    )


_KNOWN: Mapping[str, tuple[Callable[[int], st.SearchStrategy[Any]], int]] = {
    "ibatch": (_ibatch, 6),
    "caramel": (_caramel, 3),
    "iteration": (_iteration, 3),
    "fsdp": (_fsdp, 3),
    "overlap": (_overlap, 3),
    "yan": (_yan, 2),
    "bml": (_bml, 3),
    "bigdl": (_bigdl, 4),
    "drizzle": (_drizzle, 6),
}
"""For each family a strategy of its problems of a size, and a default size for brute force."""


def problems(family: str, size: int | None = None) -> st.SearchStrategy[Any]:
    """Return a strategy of problems of a family.

    Parameters
    ----------
    family : str
        Its name, as requests have it.
    size : int, optional
        The most layers, parameters, collectives or tasks of a problem.

    Raises
    ------
    InvalidInputError
        If no such family is known here.
    """
    if family not in _KNOWN:
        hint = did_you_mean(family, _KNOWN)
        raise InvalidInputError("family", f"unknown: {family}{hint and f' ({hint})'}")
    make, usual = _KNOWN[family]
    return make(usual if size is None else size)


@st.composite
def plans(draw: st.DrawFn, family: Family[Any, Any, Any], problem: Any) -> Any:
    """Return a plan of a problem: a method's plan, or one with some of its transfers merged."""
    made = []
    for name in family.methods_for(problem):
        try:
            plan = family.solve(problem, method=name, tie_break=None).plan
        except NotApplicableError:
            continue
        if plan is not None and plan not in made:
            made.append(plan)
    assume(made)
    plan = draw(st.sampled_from(made))
    for place in draw(st.lists(st.integers(0, max(family.transfers(plan) - 2, 0)), max_size=2)):
        if family.transfers(plan) > place + 1:
            plan = family.merged(problem, plan, place) or plan
    return plan
