"""A problem by hand of every family, and what of scenarios means nothing there."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from planner.families import bigdl, bml, caramel, drizzle, fsdp, ibatch, iteration, overlap, yan
from planner.families.yan.layers import NeuronLayer
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost
from planner.model.graphs import Graph, Op, Parameter
from planner.model.network import Network
from planner.model.topologies import BCube, Failures, Switch
from planner.solving.family import Family


@dataclass(frozen=True)
class Case:
    """A family, and a problem of it."""

    family: Family[Any, Any, Any]
    example: Any
    refused: tuple[str, ...] = ()
    robust: bool = True


GRAPH = Graph(
    (
        Op("f1", 100, "forward"),
        Op("f2", 300, "forward", ("f1",)),
        Op("b2", 500, "backward", ("f2",)),
        Op("b1", 200, "backward", ("b2",)),
    ),
    (
        Parameter("w1", 100, ("b1",), ("f1",)),
        Parameter("w2", 400, ("b2",), ("f2",)),
        Parameter("w3", 200, ("b2",), ("f2",)),
    ),
)

CHEAP = AffineCost(20, Fraction(1, 2))

CASES = {
    "ibatch": Case(
        ibatch.IBATCH,
        ibatch.Problem(
            compute_ns=[200, 600, 100, 300],
            startup_ns=150,
            transfer_ns=[300, 100, 500, 200],
            direction="push",
        ),
    ),
    "caramel": Case(caramel.CARAMEL, caramel.Problem(graph=GRAPH, cost=CHEAP)),
    "iteration": Case(
        iteration.ITERATION,
        iteration.Problem(
            GRAPH, Cluster("four", "", 4, Switch(4), Nic(Fraction(10**9), 100), memory_bytes=10**6)
        ),
    ),
    "fsdp": Case(
        fsdp.FSDP,
        fsdp.Problem(
            forward_ns=[100, 200, 100, 100],
            backward_ns=[200, 400, 200, 200],
            parameter_bytes=[200, 600, 100, 300],
            activation_bytes=[50, 50, 50, 50],
            meshes=[fsdp.Mesh(shards=2, all_gather=CHEAP, reduce_scatter=CHEAP)],
            memory_bytes=3000,
        ),
        ("spread", "part"),
    ),
    "overlap": Case(
        overlap.OVERLAP,
        overlap.Problem(
            nodes=[
                overlap.Node("gather a"),
                overlap.Node("compute", (), 40),
                overlap.Node("wait a", (0,)),
                overlap.Node("use a", (2,), 30),
                overlap.Node("gather b"),
                overlap.Node("wait b", (4,)),
                overlap.Node("use b", (5, 3), 30),
            ],
            kinds=[overlap.Kind("gather", "group", ((0, 20), (100, 60)))],
            collectives=[overlap.Collective(0, 2, 0, 50, 5, 5), overlap.Collective(4, 5, 0, 50, 5)],
        ),
        ("late", "spread", "part"),
    ),
    "bml": Case(
        bml.BML,
        bml.Problem(
            BCube(2, 2),
            Network(Fraction(10**9), 100),
            4000,
            failed=Failures(nics=frozenset({(0, 1)})),
        ),
        ("late", "spread", "part"),
    ),
    "yan": Case(
        yan.YAN,
        yan.Problem(
            machines=4,
            cores=2,
            layers=[
                NeuronLayer("conv", "conv", 48, 432, 18, shape=(2, 6, 4), kernel=3, pool=2),
                NeuronLayer("full", "full", 3, 36, 39),
            ],
            constants=yan.Constants(
                muladd_ns=Fraction(1, 2),
                activation_ns=Fraction(2),
                error_ns=Fraction(2),
                latency_ns=[Fraction(10), Fraction(12)],
                nic_bits_per_s=Fraction(10**10),
                interference=[Fraction(1), Fraction("1.1")],
            ),
            samples=100,
            read_every=10,
        ),
        ("late", "spread", "part"),
    ),
    "bigdl": Case(
        bigdl.BIGDL,
        bigdl.Problem(
            elements=1000,
            element_bytes=4,
            nodes=4,
            partitions_per_node=2,
            network=Network(Fraction(10**9), 100, Fraction(1)),
        ),
        ("late", "spread", "part"),
    ),
    "drizzle": Case(
        drizzle.DRIZZLE,
        drizzle.Problem(compute_ns=1000, tasks=4, task_ns=50, max_overhead=Fraction(1, 20)),
        ("bandwidth", "late", "spread", "part"),
        robust=False,
    ),
}
