"""Plans as settings of DDP, FSDP2, Horovod and DeepSpeed, by what these tools make of them."""

import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import planner
from planner.formats.exporters.frameworks import (
    ddp_settings,
    deepspeed_settings,
    gradients_of,
    horovod_settings,
    pulls_of,
)
from planner.formats.exporters.fsdp2 import fsdp2_settings, module_groups
from planner.model.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.programs import Batch, Piece
from planner.solving.bucketing import fitting_buckets
from tests.formats.refused import refused
from tests.jsonio.test_plan_files import BIGDL

SIZES = {"a.weight": 400, "a.bias": 40, "b.weight": 1200, "b.bias": 80, "c.weight": 4, "c.bias": 8}
LAYERS = (("a.weight", "a.bias"), (), ("b.weight", "b.bias"), ("c.weight", "c.bias"))
IBATCH: dict[str, Any] = {
    "problem": "ibatch",
    "layer_bytes": [440, 0, 1280, 12],
    "cost_table": [[1, 10], [4000, 4010]],
    "compute_ns": [500, 5, 20, 900],
    "layer_parameters": [list(pair) for pair in LAYERS],
}
EVEN = dict.fromkeys(["x.y.w", "z.w", "w", "z.y.w"], 1)
MADE: tuple[dict[str, int], dict[int, tuple[int, ...]]] = (
    {"3.bias": 7, "3.weight": 112, "2.bias": 16, "2.weight": 384}
    | {"1.weight": 24, "1.bias": 24, "0.bias": 24, "0.weight": 288},
    {119: (1, 2, 3, 6, 7), 384: (2, 3, 7), 400: (2, 3, 7), 511: (2, 6, 7)},
)
"""What stage 2 of DeepSpeed 0.19.8 reduced on two ranks.

The elements of gradients in the order they were ready; by reduce_bucket_size, the positions of the
last gradient of each bucket.
"""

PULL = planner.solve({**IBATCH, "method": "layer_by_layer"})
PUSH = planner.solve({**IBATCH, "direction": "push", "method": "one_batch"})
STEPS = [f"{layer}/forward" for layer in "abc"] + [f"{layer}/backward" for layer in "cba"]
GRAPH: dict[str, list[dict[str, Any]]] = {
    "ops": [
        {"name": step, "ns": 100, "pass": step[2:], "after": STEPS[max(place - 1, 0) : place]}
        for place, step in enumerate(STEPS)
    ],
    "parameters": [
        {"name": name, "bytes": size}
        | {"updated_by": f"{name[0]}/backward", "read_by": f"{name[0]}/forward"}
        for name, size in SIZES.items()
    ],
}
"""Three layers, one after the other."""


def caramel() -> dict[str, Any]:
    network = {"startup_ns": 50, "ns_per_byte": 0.25}
    return planner.solve({"problem": "caramel", **GRAPH, "network": network, "method": "ddp"})


def batches(*groups: Sequence[str], sizes: dict[str, int] | None = None) -> tuple[Batch, ...]:
    known = SIZES if sizes is None else sizes
    return tuple(
        Batch(tuple(map(Piece, group)), sum(known[name] for name in group)) for group in groups
    )


def buckets_of(names: Sequence[str], sizes: Sequence[int], limit: int) -> list[list[str]]:
    """Return the buckets of DeepSpeed by their names."""
    ends = itertools.accumulate(fitting_buckets(sizes, limit), initial=0)
    return [list(names[start:stop]) for start, stop in itertools.pairwise(ends)]


def filled(order: Sequence[str], sizes: Sequence[int], caps: Sequence[float]) -> list[set[str]]:
    """Return the buckets DDP makes: each is closed as soon as its size reaches its limit."""
    limits = [int(cap * 2**20) for cap in caps]
    buckets: list[set[str]] = [set()]
    size = 0
    for name, more in zip(order, sizes, strict=True):
        buckets[-1].add(name)
        size += more
        if size >= limits[min(len(buckets), len(limits)) - 1]:
            buckets.append(set())
            size = 0
    return [bucket for bucket in buckets if bucket]


@given(st.lists(st.lists(st.integers(1, 2**40), min_size=1, max_size=4), min_size=1, max_size=8))
def test_limits_give_ddp_the_batches_whatever_their_sizes(groups: list[list[int]]) -> None:
    sizes = {f"{i}.{j}": size for i, group in enumerate(groups) for j, size in enumerate(group)}
    names = [[f"{i}.{j}" for j in range(len(group))] for i, group in enumerate(groups)]
    settings = ddp_settings(batches(*names, sizes=sizes))
    assert settings["buckets"] == names
    made = filled(list(sizes), list(sizes.values()), settings["bucket_cap_mb_list"])
    assert made == [set(group) for group in names]


def test_plans_of_another_direction_or_family_are_refused() -> None:
    for export, plan, said, kind in (
        (gradients_of, PULL, "expected a plan of ibatch to push", InvalidInputError),
        (pulls_of, PUSH, "expected a plan of ibatch to pull", InvalidInputError),
        (pulls_of, caramel(), "no other pulls", NotApplicableError),
        (gradients_of, planner.solve(BIGDL), "got one of bigdl", NotApplicableError),
    ):
        with refused(None, said, kind):
            export(plan)


def test_parts_are_refused_with_their_group() -> None:
    at_once = [Batch((Piece("a"),)), Batch((Piece("b"),), depth=4)]
    cut = (*batches(["a.weight"]), Batch((Piece("b.weight", 0, 600),), 600))
    for export in (ddp_settings, fsdp2_settings, horovod_settings):
        place = "groups[1]" if export is not fsdp2_settings else "batches[1]"
        with refused(place, r"'b\.weight' is cut", NotApplicableError):
            export(cut)
        with refused(place, r"in 4 parts at once.*--depths 1", NotApplicableError):
            export(at_once)
    with refused(None, r"'b\.weight' is cut", NotApplicableError):
        deepspeed_settings(cut, SIZES)


def test_modules_are_grouped_as_their_parameters() -> None:
    nested = batches(["x.w"], ["x.y.w", "z.w"], ["w"], sizes=dict.fromkeys(["x.w"], 1) | EVEN)
    found = module_groups(nested)
    assert found.groups == (("x",), ("x.y", "z"), ("",))
    assert found.shard_order.index(1) < found.shard_order.index(0) < found.shard_order.index(2)


def test_groups_no_modules_can_have() -> None:
    with refused("batches[1]", "other parameters of a are in", NotApplicableError):
        fsdp2_settings(batches(["a.weight"], ["b.weight", "a.bias"]))
    crossed = batches(["x.w", "z.y.w"], ["z.w", "x.y.w"], sizes={"x.w": 1} | EVEN)
    with refused(None, "inside one of", NotApplicableError):
        fsdp2_settings(crossed)


def test_horovod_has_groups_and_room_for_each() -> None:
    large = {"a.weight": 2**21 - 30, "a.bias": 4, "b.weight": 40}
    settings = horovod_settings(batches(["b.weight"], ["a.bias", "a.weight"], sizes=large))
    # 2 MiB less 26 bytes, and 16 bytes for each of two tensors.
    assert settings["params"] == {"fusion_threshold_mb": 3, "cycle_time_ms": 1.0}
    assert settings["planner"]["groups"] == [["b.weight"], ["a.bias", "a.weight"]]
    assert settings["planner"]["environment"] == {"HOROVOD_DISABLE_GROUP_FUSION": "1"}
    with refused(None, "with sizes", NotApplicableError):
        horovod_settings((Batch((Piece("a.weight"),)),))


@given(st.data())
def test_deepspeed_s_size_is_the_best_of_the_planned_ones(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))
    table = {str(number): 4 * size for number, size in enumerate(sizes)}
    cuts = [number for number in range(1, len(sizes)) if data.draw(st.booleans())]
    names = list(table)
    groups = [names[i:j] for i, j in zip([0, *cuts], [*cuts, len(names)], strict=True)]
    settings = deepspeed_settings(batches(*groups, sizes=table), table)
    zero, found = settings["zero_optimization"], settings["planner"]
    assert found["buckets"] == buckets_of(names, sizes, zero["reduce_bucket_size"])
    assert found["exact"] == [i for i, group in enumerate(groups) if group in found["buckets"]]
    assert found["batches"] == len(groups)
    for group in groups:
        other = buckets_of(names, sizes, sum(table[name] // 4 for name in group))
        assert len([one for one in groups if one in other]) <= len(found["exact"])


def test_deepspeed_s_buckets_as_it_made_them() -> None:
    elements, made = MADE
    for limit, lasts in made.items():
        starts = [0, *(last + 1 for last in lasts)]
        buckets = [list(elements)[i:j] for i, j in itertools.pairwise(starts)]
        assert buckets_of(list(elements), list(elements.values()), limit) == buckets


def test_deepspeed_needs_sizes_in_whole_elements() -> None:
    planned = batches(["a.weight"], ["a.bias"])
    with refused("groups[1]", r"expected the size of 'a\.bias'", InvalidPlanError):
        deepspeed_settings(planned, {"a.weight": 400})
    with refused(None, "multiple of 16 bytes"):
        deepspeed_settings(planned, SIZES, element_bytes=16)
    with refused(None, "each parameter of the plan once"):
        deepspeed_settings(planned, SIZES, order=["a.weight"])
