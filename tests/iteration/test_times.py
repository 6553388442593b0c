"""When transfers are ready and due, what start-ups cost, by hand; shards beside copies."""

from fractions import Fraction

from hypothesis import given, settings

from planner.clusters import Cluster, Nic
from planner.deadline import Deadline
from planner.graphs import Graph, Op, Parameter
from planner.iteration import Problem, Transfer, alternatives, evaluate
from planner.iteration.problem import Part
from planner.iteration.rules import enforced
from planner.topologies import Switch
from tests.iteration.iteration_strategies import problems


def test_times_by_hand() -> None:
    """Half a nanosecond a byte and 10 ns to start each way, between two machines."""
    graph = Graph(
        (
            Op("f1", 40, "forward"),
            Op("f2", 60, "forward", ("f1",)),
            Op("b2", 30, "backward", ("f2",)),
            Op("b1", 20, "backward", ("b2",)),
        ),
        (Parameter("w1", 100, ("b1",), ("f1",)), Parameter("w2", 200, ("b2",), ("f2",))),
    )
    cluster = Cluster("c", "a test", 2, Switch(2), Nic(Fraction(10**9), 10))
    problem = Problem(graph, cluster)
    w1, w2 = Part(0, 0, 100), Part(1, 0, 200)
    sent = [
        Transfer("push", (w2,)),  # 30 to 140
        Transfer("push", (w1,)),  # to 200
        Transfer("pull", (w1,)),  # to 260, when f1 starts
        Transfer("pull", (w2,)),  # to 370, when f2 starts
    ]
    found = evaluate(problem, enforced(problem, "ring", sent))
    assert [tuple(times) for times in found.times] == [
        (30, 30, 140, 90),
        (50, 140, 200, 50),
        (200, 200, 260, 50),
        (140, 260, 370, 90),
    ]
    assert found.iteration_ns == 370 + 60
    assert found.startup_ns == 4 * 10
    assert found.communication_ns == 110 + 60 + 60 + 110
    assert found.stall_ns == 430 - 150


@settings(max_examples=30)
@given(problems(capped=False))
def test_shards_are_no_worse_than_copies_but_for_rounding(problem: Problem) -> None:
    """An all-reduce is a push and the pull of the same, each rounded up by itself."""
    if problem.pulled != problem.pushed:
        return
    found = {
        (one.synchronisation.algorithm, one.mode): one
        for one in alternatives(problem, Deadline(None))
    }
    for (algorithm, mode), whole in found.items():
        if mode == "replicated":
            assert whole.plan is not None
            assert whole.objective_ns is not None
            shards = found[algorithm, "sharded"].objective_ns
            assert shards is not None
            assert shards <= whole.objective_ns + len(whole.plan.transfers)
