"""A case of every family whose problems can be perturbed: problems drawn, and one by hand."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import strategies as st

from planner.families import bigdl, bml, caramel, drizzle, fsdp, ibatch, iteration, overlap, yan
from planner.families.yan.layers import NeuronLayer
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost
from planner.model.graphs import Graph, Op, Parameter
from planner.model.network import Network
from planner.model.topologies import BCube, Failures, Switch
from planner.solving.family import Family
from planner.solving.scenarios import Scenario, ScenarioSet
from planner.testing import graphs, problems
from tests.bml.networks import damaged_networks
from tests.bml.plans import problems as bml_problems
from tests.fsdp.making import problems as fsdp_problems
from tests.strategies import affine_costs
from tests.strategies import problems as ibatch_problems
from tests.yan.yan_strategies import problems as yan_problems


@dataclass(frozen=True)
class Case:
    """A family, problems of it, and one of them by hand."""

    family: Family[Any, Any, Any]
    drawn: st.SearchStrategy[Any]
    example: Any
    refused: tuple[str, ...] = ()
    robust: bool = True


@st.composite
def damaged(draw: st.DrawFn) -> bml.Problem:
    return draw(bml_problems(*draw(damaged_networks(most=1)), most=40))


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
        ibatch_problems(max_layers=4, objective="makespan"),
        ibatch.Problem(
            compute_ns=[200, 600, 100, 300],
            startup_ns=150,
            transfer_ns=[300, 100, 500, 200],
            direction="push",
        ),
    ),
    "caramel": Case(
        caramel.CARAMEL,
        st.builds(caramel.Problem, graph=graphs(), cost=affine_costs()),
        caramel.Problem(graph=GRAPH, cost=CHEAP),
    ),
    "iteration": Case(
        iteration.ITERATION,
        st.nothing(),
        iteration.Problem(
            GRAPH, Cluster("four", "", 4, Switch(4), Nic(Fraction(10**9), 100), memory_bytes=10**6)
        ),
    ),
    "fsdp": Case(
        fsdp.FSDP,
        fsdp_problems(),
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
        problems("overlap", 2),
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
        damaged(),
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
        yan_problems(max_machines=4, max_layers=2, max_threads=2),
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
        problems("bigdl"),
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
        problems("drizzle"),
        drizzle.Problem(compute_ns=1000, tasks=4, task_ns=50, max_overhead=Fraction(1, 20)),
        ("bandwidth", "late", "spread", "part"),
        robust=False,
    ),
}

every_family = pytest.mark.parametrize("name", CASES)
robust_families = pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case.robust]
)

factors = st.sampled_from([Fraction(1, 2), Fraction(4, 5), Fraction(1), Fraction(2)])
scenarios = st.builds(Scenario, computation=factors, startup=factors, bandwidth=factors)
outlooks = st.builds(
    ScenarioSet,
    st.lists(st.tuples(scenarios, st.integers(1, 3)), min_size=1, max_size=3).map(tuple),
    st.none() | st.sampled_from([Fraction(50), Fraction(90), Fraction(100)]),
)
