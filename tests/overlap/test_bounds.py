"""Bounds of graphs whose shortest step is known."""

from planner.families.overlap import Collective, Kind, Node, Problem, lower_bound_ns, solve
from planner.solving.deadline import NEVER


def test_all_ancestors_come_before_a_transfer() -> None:
    # Two computations that do not need each other, one after the other, and then what they send.
    nodes = [Node("a", (), 10), Node("b", (), 20), Node("start", (0, 1)), Node("wait", (2,))]
    problem = Problem(
        nodes=nodes, kinds=[Kind("k", "0", ((0, 5),))], collectives=[Collective(2, 3, 0, 1)]
    )
    assert lower_bound_ns(problem, NEVER) == (35, False)
    assert solve(problem, method="greedy").status == "optimal"


def test_all_ancestors_come_before_a_transfer_and_all_descendants_after() -> None:
    nodes = [
        *(Node(name, (), 10) for name in "ab"),
        Node("start", (0, 1)),
        Node("wait", (2,)),
        *(Node(name, (3,), 10) for name in "cd"),
    ]
    problem = Problem(
        nodes=nodes, kinds=[Kind("k", "0", ((0, 5),))], collectives=[Collective(2, 3, 0, 1)]
    )
    assert lower_bound_ns(problem, NEVER)[0] == 45


def test_a_channel_waits_for_the_first_and_is_followed_by_the_last() -> None:
    nodes = [Node("first", (), 7)]
    collectives = []
    for number in range(3):
        nodes += [Node(f"start {number}", (0,)), Node(f"wait {number}", (1 + 2 * number,))]
        collectives.append(Collective(1 + 2 * number, 2 + 2 * number, 0, 1))
    nodes.append(Node("last", (2, 4, 6), 9))
    kind = Kind("k", "0", ((0, 5),), mergeable=False)
    problem = Problem(nodes=nodes, kinds=[kind], collectives=collectives)
    assert lower_bound_ns(problem, NEVER)[0] == 7 + 15 + 9
    # Merged, one start-up is enough: only the chain is left.
    merged = Problem(nodes=nodes, kinds=[Kind("k", "0", ((0, 5),))], collectives=collectives)
    assert lower_bound_ns(merged, NEVER)[0] == 7 + 5 + 9
    assert solve(merged, method="exact").objective_ns == 7 + 5 + 9


def test_what_cannot_be_merged_in_time_saves_nothing() -> None:
    # Each of two transfers stands between computations; merged, both wait for the second half.
    nodes = [
        Node("a", (), 100),
        Node("start a", (0,)),
        Node("wait a", (1,)),
        Node("b", (2,), 100),
        Node("start b", (3,)),
        Node("wait b", (4,)),
        Node("c", (5,), 100),
    ]
    problem = Problem(
        nodes=nodes,
        kinds=[Kind("k", "0", ((0, 50), (100, 51)))],
        collectives=[Collective(1, 2, 0, 1), Collective(4, 5, 0, 1)],
    )
    assert lower_bound_ns(problem, NEVER)[0] == 402
    assert solve(problem, method="own_order").status == "optimal"


def test_what_some_can_be_merged_with_is_looked_at_again() -> None:
    # The first two in 20, as soon as may be, and the third, which has to be computed first, in 19.
    # All three in 21 would have to wait for it, and leave two computations of 14 and 4.
    nodes = [
        Node("start a"),
        Node("wait a", (0,)),
        Node("use a", (1,), 4),
        Node("start b"),
        Node("wait b", (3,)),
        Node("use b", (4,), 14),
        Node("make c", (), 17),
        Node("start c", (6,)),
        Node("wait c", (7,)),
    ]
    collectives = [Collective(0, 1, 0, 1), Collective(3, 4, 0, 1), Collective(7, 8, 0, 1)]
    kind = Kind("k", "0", ((1, 19), (3, 21)))
    problem = Problem(nodes=nodes, kinds=[kind], collectives=collectives)
    assert lower_bound_ns(problem, NEVER)[0] == 39
    assert solve(problem, method="exact").objective_ns == 39
