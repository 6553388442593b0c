"""How sure the numbers of a plan are."""

import json
from dataclasses import replace
from fractions import Fraction

from planner.clusters import Cluster, Nic
from planner.collectives.held_out import from_smaller, sizes_left_out, summary
from planner.iteration import Plan, Problem, solve
from planner.iteration.certainty import Certainty, certainties
from planner.jsonio import decode_profile
from planner.measured import Measured, MeasuredNetwork
from planner.topologies import Switch
from tests.cli.test_cli import PROFILE

CROOKED = ((1, 100), (1000, 300), (2000, 320), (4000, 900))


def table(ranks: int, by: int = 1) -> Measured:
    return Measured("all_reduce", ranks, 1, tuple((size, by * time) for size, time in CROOKED))


def planned(*tables: Measured, machines: int = 4) -> dict[str, Certainty]:
    cluster = Cluster(
        "some", "made up", machines, Switch(machines), Nic(Fraction(10**9), 5),
        network=MeasuredNetwork(tables) if tables else None,
    )  # fmt: skip
    profile = decode_profile(json.dumps(PROFILE))
    problem = Problem.from_profile(profile, cluster, modes=("replicated",))
    plan = solve(problem).plan
    assert isinstance(plan, Plan)
    graph = replace(
        problem.graph, ops=tuple(replace(op, spread_ns=op.duration_ns) for op in problem.graph.ops)
    )
    return {known.number: known for known in certainties(profile, graph, cluster, plan)}


def test_what_was_measured_among_these_ranks_is_as_sure_as_sizes_left_out() -> None:
    known = planned(table(4))["all_reduce"]
    _, mean, largest = summary(list(sizes_left_out(table(4))), 0) or (0, 0.0, 0.0)
    assert known == Certainty("all_reduce", "measured", mean, largest)
    assert mean > 0


def test_what_lies_beyond_is_as_sure_as_larger_ranks_left_out() -> None:
    tables = (table(2), table(4, 3))
    known = planned(*tables, machines=8)["all_reduce"]
    _, mean, largest = summary(list(from_smaller(MeasuredNetwork(tables))), 0) or (0, 0.0, 0.0)
    assert known == Certainty("all_reduce", "extrapolated", mean, largest)
    assert mean > 0
    alone = planned(table(2), machines=8)["all_reduce"]
    assert alone == Certainty("all_reduce", "extrapolated")


def test_what_lies_between_is_no_surer_than_is_known() -> None:
    assert planned(table(2), table(8, 3))["all_reduce"] == Certainty("all_reduce", "interpolated")
    known = planned(table(2), table(3, 2), table(8, 3))["all_reduce"]
    assert known.grounds == "interpolated"
    assert known.error is not None


def test_without_a_table_transfers_are_assumed() -> None:
    known = planned()
    assert known["all_reduce"] == Certainty("all_reduce", "assumed")
    assert known["computation"].error == 1.0
