"""What other systems do, on cases worked out by hand and on the shipped ResNet-50."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from planner import AffineCost
from planner.families.caramel import Problem, evaluate, solve
from planner.families.caramel.baselines import horovod
from planner.families.caramel.windows import drawn_orders
from planner.jsonio import decode_profile
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph, Op, Parameter
from planner.solving.deadline import Deadline

RESNET50 = Path(__file__).parents[2] / "data" / "profiles" / "resnet50.json"


def chain(*layers: tuple[int, int, int]) -> Graph:
    """Return a chain of (forward, backward, bytes), layer 0 nearest the input."""
    ops = []
    count = len(layers)
    for i, (forward, _, _) in enumerate(layers):
        ops.append(Op(f"f{i}", forward, "forward", (f"f{i - 1}",) if i else ()))
    for i in range(count - 1, -1, -1):
        after = (f"b{i + 1}",) if i + 1 < count else ()
        ops.append(Op(f"b{i}", layers[i][1], "backward", (*after, f"f{i}")))
    parameters = [
        Parameter(f"w{i}", size, (f"b{i}",), (f"f{i}",)) for i, (_, _, size) in enumerate(layers)
    ]
    return Graph(tuple(ops), tuple(parameters))


def sent(problem: Problem, method: str) -> list[list[tuple[str, int]]]:
    plan = solve(problem, method=method).plan
    assert plan is not None
    names = [parameter.name for parameter in problem.graph.parameters]
    return [
        [(names[part.parameter], part.stop - part.start) for part in group.parts]
        for group in plan.groups
    ]


def test_ddp_sends_the_buckets_resnet50_has_under_pytorch() -> None:
    """Sizes in elements as measured with torchvision's ResNet-50 under DDP's default limits."""
    graph = decode_profile(RESNET50.read_bytes()).dataflow()
    # Eager execution has one order: autograd runs the forward pass in reverse.
    forward = [graph.ops[index].name for index in graph.pass_order("forward")]
    names = {op.name for op in graph.ops}
    backward = [name.replace("/forward", "/backward") for name in reversed(forward)]
    order = [*(name for name in backward if name in names), *forward]
    problem = Problem(graph, AffineCost(50_000, Fraction(4, 5)), op_order=order)
    plan = solve(problem, method="ddp").plan
    assert plan is not None
    elements = [group.size_bytes // 4 for group in plan.groups]
    assert elements == [2049000, 7875584, 6563840, 6637568, 2431040]


def test_layers_leave_as_they_become_ready() -> None:
    problem = Problem(chain((1, 1, 5), (1, 1, 6), (1, 1, 7)), AffineCost(0, Fraction(1)))
    assert sent(problem, "layer_by_layer") == [[("w2", 7)], [("w1", 6)], [("w0", 5)]]
    result = solve(problem, method="layer_by_layer")
    # 1 + 7 + 6 + 5 = 19, then the forward pass, which waits for everything.
    assert result.objective_ns == 22


def test_horovod_looks_once_a_cycle() -> None:
    problem = Problem(chain((1, 4, 5), (1, 4, 6), (1, 4, 7)), AffineCost(1, Fraction(1)))
    plan = horovod(problem, Deadline(None), cycle_ns=10, fusion_bytes=64).plan
    assert plan is not None
    times = evaluate(problem, plan).times
    # Ready at 4, 8 and 12; cycles at 10 (two gradients, until 24) and 24.
    assert [(time.start_ns, time.end_ns) for time in times] == [(10, 24), (24, 30)]
    small = horovod(problem, Deadline(None), cycle_ns=10, fusion_bytes=7).plan
    assert small is not None
    assert [group.size_bytes for group in small.groups] == [7, 6, 5]


def test_bytescheduler_lets_the_first_layer_overtake() -> None:
    big = 10 * 10**6
    problem = Problem(chain((1, 1000, 50), (1, 1000, big)), AffineCost(0, Fraction(1, 1000)))
    # The large gradient goes in 4 MB partitions; the small one overtakes behind the first.
    assert sent(problem, "bytescheduler") == [
        [("w1", 4 * 10**6)],
        [("w0", 50)],
        [("w1", 4 * 10**6)],
        [("w1", 2 * 10**6)],
    ]


def test_parameter_servers_move_more_than_an_all_reduce() -> None:
    graph = chain((0, 0, 700))
    costs = {
        servers: solve(
            Problem(graph, AffineCost(10, Fraction(1)), workers=8, servers=servers), method="ps"
        ).objective_ns
        for servers in (8, 4)
    }
    assert costs == {8: 10 + 700 * 8 // 7, 4: 10 + 700 * 16 // 7}
    assert solve(Problem(graph, AffineCost(10, Fraction(1))), method="ps").objective_ns == costs[8]
    with pytest.raises(NotApplicableError, match="at least 2"):
        solve(Problem(graph, AffineCost(10, Fraction(1)), workers=1), method="ps")


def test_mg_wfbp_merges_what_waits_less_than_a_start_up() -> None:
    problem = Problem(chain((0, 15, 3), (0, 9, 3), (0, 9, 3)), AffineCost(10, Fraction(1)))
    assert sent(problem, "mg_wfbp") == [[("w2", 3), ("w1", 3)], [("w0", 3)]]


def test_drawn_orders_differ_and_repeat() -> None:
    ops = [Op("f", 1, "forward"), *(Op(f"b{i}", 1, "backward", ("f",)) for i in range(6))]
    parameters = [Parameter(f"w{i}", 1, (f"b{i}",), ("f",)) for i in range(6)]
    graph = Graph(tuple(ops), tuple(parameters))
    orders = drawn_orders(graph, 8, 0, Deadline(None))
    assert len(set(orders)) > 1
    assert drawn_orders(graph, 8, 0, Deadline(None)) == orders
    assert drawn_orders(graph, 8, 1, Deadline(None)) != orders
    assert drawn_orders(graph, 4, 0, Deadline(None)) == orders[:4]
    one = Problem(graph, AffineCost(0, Fraction(1)), workers=1)
    many = replace(one, workers=8)
    result = [solve(p, method="layer_by_layer").objective_ns or 0 for p in (one, many)]
    assert result[0] < result[1]
