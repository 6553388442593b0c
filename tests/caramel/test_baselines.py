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
from planner.solving.deadline import NEVER
from tests.caramel.making import apart, solved
from tests.iteration.making import chain
from tests.present import present

RESNET50 = Path(__file__).parents[2] / "data" / "profiles" / "resnet50.json"


def test_ddp_sends_the_buckets_resnet50_has_under_pytorch() -> None:
    """Sizes in elements as measured with torchvision's ResNet-50 under DDP's default limits."""
    graph = decode_profile(RESNET50.read_bytes()).dataflow()
    # Eager execution has one order: autograd runs the forward pass in reverse.
    forward = [graph.ops[index].name for index in graph.pass_order("forward")]
    names = {op.name for op in graph.ops}
    backward = [name.replace("/forward", "/backward") for name in reversed(forward)]
    order = [*(name for name in backward if name in names), *forward]
    plan = solved(Problem(graph, AffineCost(50_000, Fraction(4, 5)), op_order=order), "ddp").plan
    elements = [group.size_bytes // 4 for group in plan.groups]
    assert elements == [2049000, 7875584, 6563840, 6637568, 2431040]


def sent(cost: AffineCost, method: str, *layers: tuple[int, int, int]) -> list[dict[str, int]]:
    """Return the bytes of each parameter in each transfer of a chain's gradients."""
    groups = solved(Problem(chain(*layers), cost), method).plan.groups
    return [{f"w{part.parameter}": part.stop - part.start for part in one.parts} for one in groups]


def test_what_is_sent_by_hand() -> None:
    small = (1, 1, 5), (1, 1, 6), (1, 1, 7)
    unit = AffineCost(0, Fraction(1))
    assert sent(unit, "layer_by_layer", *small) == [{"w2": 7}, {"w1": 6}, {"w0": 5}]
    # 1 + 7 + 6 + 5 = 19, then the forward pass, which waits for everything.
    assert solved(Problem(chain(*small), unit), "layer_by_layer").iteration_ns == 22
    # What waits less than a start-up is merged.
    cost = AffineCost(10, Fraction(1))
    merged = sent(cost, "mg_wfbp", (0, 15, 3), (0, 9, 3), (0, 9, 3))
    assert merged == [{"w2": 3, "w1": 3}, {"w0": 3}]
    # The large gradient goes in 4 MB partitions; the small one overtakes behind the first.
    slow = AffineCost(0, Fraction(1, 1000))
    partitions = sent(slow, "bytescheduler", (1, 1000, 50), (1, 1000, 10**7))
    assert partitions == [{"w1": 4 * 10**6}, {"w0": 50}, {"w1": 4 * 10**6}, {"w1": 2 * 10**6}]


def test_horovod_looks_once_a_cycle() -> None:
    problem = Problem(chain((1, 4, 5), (1, 4, 6), (1, 4, 7)), AffineCost(1, Fraction(1)))
    plan = present(horovod(problem, NEVER, cycle_ns=10, fusion_bytes=64).plan)
    times = evaluate(problem, plan).times
    # Ready at 4, 8 and 12; cycles at 10 (two gradients, until 24) and 24.
    assert [(time.start_ns, time.end_ns) for time in times] == [(10, 24), (24, 30)]
    small = present(horovod(problem, NEVER, cycle_ns=10, fusion_bytes=7).plan)
    assert [group.size_bytes for group in small.groups] == [7, 6, 5]


def test_parameter_servers_move_more_than_an_all_reduce() -> None:
    problem = Problem(chain((0, 0, 700)), AffineCost(10, Fraction(1)))
    costs = {
        servers: solved(replace(problem, workers=8, servers=servers), "ps").iteration_ns
        for servers in (8, 4)
    }
    assert costs == {8: 10 + 700 * 8 // 7, 4: 10 + 700 * 16 // 7}
    assert solved(problem, "ps").iteration_ns == costs[8]
    with pytest.raises(NotApplicableError, match="at least 2"):
        solve(replace(problem, workers=1), method="ps")


def test_drawn_orders_differ_and_repeat() -> None:
    graph = apart(*((1, 1, 1 + size) for size in range(6)))
    orders = drawn_orders(graph, 8, 0, NEVER)
    assert len(set(orders)) > 1
    assert drawn_orders(graph, 8, 0, NEVER) == orders
    assert drawn_orders(graph, 8, 1, NEVER) != orders
    assert drawn_orders(graph, 4, 0, NEVER) == orders[:4]
    problem = Problem(graph, AffineCost(0, Fraction(1)))
    one, many = (
        solved(replace(problem, workers=workers), "layer_by_layer").iteration_ns
        for workers in (1, 8)
    )
    assert one < many
