"""What the benchmark of joint plans is made of: clusters from times, plans without a decision."""

from dataclasses import replace
from fractions import Fraction

import pytest
from runtime_ablations import ABLATIONS, bucketed, ddp_plan
from runtime_cluster import fitted, unmeasured

from planner.families import iteration
from planner.families.iteration.plan import Mode
from planner.families.iteration.synchronisation import synchronisations
from planner.model.clusters import Cluster, Nic
from planner.model.graphs import Graph, Op, Parameter
from planner.model.topologies import BCube, Switch, Topology
from planner.solving.bucketing import ddp_buckets
from planner.solving.transfers import Part

SIZES = (2**13, 2**17, 2**21)
LIMITS = 2_000, 5_000


def cluster_of(topology: Topology) -> Cluster:
    levels = topology.k if isinstance(topology, BCube) else 1
    nic = Nic(Fraction(12_345_678), 700_000, levels, 90_000)
    return Cluster("tried", "a test", topology.servers, topology, nic)


@pytest.mark.parametrize("topology", [Switch(4), Switch(9), BCube(3, 2)])
def test_times_of_the_model_give_its_numbers(topology: Topology) -> None:
    cluster = cluster_of(topology)
    times = {
        option.algorithm: [(size, option.all_reduce.cost_ns(size)) for size in SIZES]
        for option in synchronisations(cluster)[0]
    }
    fit = fitted(unmeasured(topology, cluster.machines, 1), times)
    nic = fit.cluster.nic
    assert float(nic.bytes_per_s) == pytest.approx(12_345_678, rel=1e-4)
    assert nic.startup_ns == pytest.approx(700_000, rel=1e-4)
    assert nic.message_ns == pytest.approx(90_000, rel=1e-3)
    assert max(fit.errors.values()) < 1e-3


def test_what_no_time_depends_on_is_none() -> None:
    """A ring sends one message a step."""
    cluster = cluster_of(Switch(4))
    (ring,) = synchronisations(cluster, ("ring",))[0]
    times = {"ring": [(size, ring.all_reduce.cost_ns(size)) for size in SIZES]}
    assert fitted(cluster, times).cluster.nic.message_ns == 0


def problem_of(mode: Mode) -> iteration.Problem:
    """A chain of ten layers, the later ones larger."""
    names = [f"layer{number}" for number in range(10)]
    ops = [
        Op(f"{name}/forward", 10**6, "forward", (f"{names[number - 1]}/forward",) if number else ())
        for number, name in enumerate(names)
    ]
    ops += [
        Op(
            f"{name}/backward",
            2 * 10**6,
            "backward",
            (f"{names[number + 1]}/backward",) if number < 9 else (f"{name}/forward",),
        )
        for number, name in enumerate(names)
    ]
    parameters = [
        Parameter(name, 400 * (number + 1), (f"{name}/backward",), (f"{name}/forward",))
        for number, name in enumerate(names)
    ]
    nic = Nic(Fraction(10**6), 300_000)
    cluster = Cluster("tried", "a test", 4, Switch(4), nic)
    graph = Graph(tuple(ops), tuple(parameters))
    return iteration.Problem(graph, cluster, modes=[mode], element_bytes=4)


@pytest.mark.parametrize("mode", iteration.MODES)
@pytest.mark.parametrize("name", ABLATIONS)
def test_a_plan_without_a_decision_is_one_and_no_better(name: str, mode: Mode) -> None:
    problem = problem_of(mode)
    result = iteration.solve(problem)
    assert result.plan is not None
    changed = ABLATIONS[name](problem, result.plan, LIMITS)
    anywhere = replace(problem, modes=iteration.MODES)
    iteration.check(anywhere, changed)
    assert changed != result.plan
    assert changed.algorithm == result.plan.algorithm
    assert iteration.evaluate(anywhere, changed).iteration_ns >= (result.lower_bound_ns or 0)


def test_buckets_are_ddps_from_the_last_gradient_on() -> None:
    problem = problem_of("replicated")
    plan = bucketed(problem, "ring", LIMITS)
    sizes = [400 * (number + 1) for number in range(10)]
    counts = ddp_buckets(sizes[::-1], *LIMITS)
    assert [len(transfer.parts) for transfer in plan.transfers] == counts
    assert [part.parameter for transfer in plan.transfers for part in transfer.parts] == [
        *reversed(range(10))
    ]
    assert plan.barrier
    assert ddp_plan(problem.gradients["ring"], LIMITS).barrier


def test_ddps_buckets_leave_where_the_plan_has_their_first_bytes() -> None:
    problem = problem_of("replicated")
    plan = iteration.Plan(
        "ring",
        tuple(
            iteration.Transfer((Part(j, 0, 400 * (j + 1)),))
            for j in range(10)  # the reverse of what is ready first
        ),
        (problem.base.order.backward,),
        problem.base.order.forward,
    )
    changed = ABLATIONS["`joint`, in DDP's buckets"](problem, plan, LIMITS)
    firsts = [min(part.parameter for part in transfer.parts) for transfer in changed.transfers]
    assert firsts == sorted(firsts)
    assert len(firsts) > 1
    assert not changed.barrier
