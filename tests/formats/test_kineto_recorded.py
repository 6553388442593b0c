"""What a device's trace says was sent: kernels by their names, steps by what they launched."""

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.formats.importers.communication_kernels import called, computes, library_of, might_send
from planner.formats.importers.kineto_recorded import recorded_in
from planner.formats.importers.kineto_trace import read_trace
from planner.traces.recorded import Recorded, breakdown_of, gradient_sends, parts_of
from tests.formats.test_kineto import Event, a_step, event, op, written

Kernel = tuple[str, float, float, float | None, int]
"""Name, start, duration, when it was launched, stream."""

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "ampere_sgemm_128x64_nn"
NAMES = f"""
NCCL: {NCCL}
NCCL: mscclKernel_Sum_float_Simple_LL_true
MSCCL++: void mscclpp::executionKernel<int>(int)
HCCL: hcom_allReduce__612_0_1
HCCL: MoeDistributeDispatchV2
oneCCL: typeinfo name for oneccl_allreduce_pcie
DeepEP: void deep_ep::intranode::combine<__nv_bfloat16, 8>(int4*)
DeepEP: void dpsk::ep::internode::cached_notify<false>(int)
DeepEP: _ZN7deep_ep9internode8dispatchILb0EEEvv
DeepEP: mori::moe::EpDispatchIntraNodeKernel
NVSHMEM: nvshmemi_transfer_kernel
symmetric: void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<half, 16>()
symmetric: void c10d::symmetric_memory::(anonymous namespace)::barrier_kernel(int)
user buffers: userbuffers_fp16_sum_inplace_gpu_rw_ag
custom all-reduce: void vllm::cross_device_reduce_2stage<half, 8>(RankData*)
custom all-reduce: quickreduce::allreduce_prototype_twoshot<A>
FlashInfer: void flashinfer::trtllm_allreduce_fusion::kernel_oneshot_lamport<(f::Pattern)1>()
copies between devices: Memcpy PtoP (Device -> Device)
called after a collective: cp_engine_all_gather
in doubt: gemm_one_shot_all_reduce_kernel
in doubt: void cutlass::device_kernel<flux::GemmReduceScatter>(int)
in doubt: acme::moe::combine
in doubt: dispatch_tokens
in doubt: peer_push_kernel
computes: void at::native::reduce_kernel<512, 1>(int)
computes: triton_red_fused__to_copy_add_all_reduce_0
computes: void cutlass::device_kernel<flash::Bwd<flash::CollectiveMainloopBwd<2> > >(int)
computes: flash_fwd_splitkv_combine_kernel
computes: groupnorm_kernel_dispatch_down
computes: Memcpy DtoD (Device -> Device)
computes: void cub::DispatchScan<int>(int)
computes: {GEMM}
""".strip()
"""Of each kernel, its library, or that it is in doubt, or that it computes."""


@pytest.mark.parametrize("row", NAMES.split("\n"))
def test_kernels_are_of_a_library_or_in_doubt_or_compute(row: str) -> None:
    library, name = row.split(": ", 1)
    assert might_send(name) == (library == "in doubt")
    if library in ("in doubt", "computes"):
        assert not library_of(name)
    else:
        assert library_of(name).startswith(library)


def test_a_kernel_is_called_by_its_function() -> None:
    assert called("void a::(anonymous namespace)::f<(b)1, c<d> >(int*)") == "a::f"
    assert called("std::enable_if<(1>0), int>::type a::f<3>(int)") == "a::f"
    assert called("_ZN12_GLOBAL__N_13foo3barIiEEvv") == "foo::bar"
    assert called("void broken<") == "broken"
    assert called("<>") == "<>"
    assert computes("void at::native::x(int)")


def on_streams(*kernels: Kernel, marks: Any = ((0, 100),)) -> list[Event]:
    """Return the events of steps and kernels."""
    events = [
        event(f"ProfilerStep#{number}", at, end - at, "user_annotation")
        for number, (at, end) in enumerate(marks, 1)
    ]
    events.append(op("aten::mm", 1, 1))
    for number, (name, start, lasts, launch, stream) in enumerate(kernels, 1):
        if launch is not None:
            events.append(event("launch", launch, 0.1, "cuda_runtime", correlation=number))
        category = "gpu_memcpy" if name.startswith("Mem") else "kernel"
        events.append(event(name, start, lasts, category, correlation=number, thread=stream))
    return events


def recorded(events: list[Event], transfers: str | None = None, **more: Any) -> Recorded:
    trace = read_trace(written(events, **more))
    return recorded_in(trace, 0, transfers=None if transfers is None else re.compile(transfers))


SEVERAL: dict[str, Any] = {"distributedInfo": {"rank": 0, "world_size": 64}}
EXPERTS = on_streams(
    (GEMM, 10, 20, 5, 7),
    ("void ep::internode::dispatch<8>(int)", 20, 30, 6, 8),
    ("void ep::internode::combine<8>(int)", 60, 10, 7, 8),
    (GEMM, 65, 20, 8, 7),
)


def test_transfers_of_other_libraries_count_and_are_named() -> None:
    found = recorded(EXPERTS, **SEVERAL)
    parts = breakdown_of(found)
    assert (parts.whole_ns, parts.communication_ns) == (75_000, 40_000)
    assert (parts.compute_ns, parts.overlapped_ns, parts.exposed_ns) == (40_000, 15_000, 25_000)
    assert [(row.name, row.times, row.total_ns) for row in found.counted] == [
        ("ep::internode::dispatch", 1, 30_000),
        ("ep::internode::combine", 1, 10_000),
    ]
    assert [transfer.collective for transfer in found.transfers] == ["dispatch", "combine"]
    assert not found.doubtful
    assert not found.unexplained


def unnamed(events: list[Event], name: str) -> list[Event]:
    return [one | {"name": one["name"].replace("ep::internode::", name)} for one in events]


@pytest.mark.parametrize("name", ["acme::moe::", "acme::k_"])
def test_kernels_that_may_send_are_named_and_a_pattern_settles_it(name: str) -> None:
    """By words of communication, or by a stream of their own."""
    events = unnamed(EXPERTS, name)
    if name == "acme::k_":
        events = [one | {"name": re.sub("dispatch|combine", "x", one["name"])} for one in events]
    found = recorded(events, **SEVERAL)
    assert not found.transfers
    assert found.unexplained
    assert sum(row.total_ns for row in found.doubtful) == 40_000
    assert found.certain == ((10_000, 30_000), (65_000, 85_000))
    settled = recorded(events, "acme", **SEVERAL)
    assert breakdown_of(settled) == breakdown_of(recorded(EXPERTS, **SEVERAL))
    assert not settled.unexplained
    alone = recorded(events)  # nothing says that there are other ranks
    assert not alone.unexplained


def test_without_a_transfer_all_that_nobody_knows_is_in_doubt() -> None:
    events = on_streams((GEMM, 10, 20, 5, 7), ("acme::x", 30, 20, 6, 7))
    found = recorded(events, **SEVERAL)
    assert [row.name for row in found.doubtful] == ["acme::x"]
    more = recorded([*events, *on_streams((NCCL, 60, 5, 7, 9))[2:]], **SEVERAL)
    assert not more.doubtful
    nothing = recorded([op("aten::mm", 1, 1)], **SEVERAL)
    assert nothing.unexplained


def test_what_an_operator_that_sends_launched_is_a_transfer_or_in_doubt() -> None:
    events = on_streams((GEMM, 10, 20, 5, 7), ("acme::x", 30, 20, 20, 7))
    for name, counted in (("record_param_comms", 1), ("acme::all_reduce", 0)):
        found = recorded([*events, event(name, 19, 3)], **SEVERAL)
        assert len(found.transfers) == counted
        assert len(found.doubtful) == 1 - counted


def test_kernels_launched_before_the_steps_are_no_part_of_them() -> None:
    """The device is behind the host: what ran first was launched before the trace began."""
    kernels = [
        (NCCL, 100, 300, None, 8),
        (GEMM, 380, 40, None, 7),
        (GEMM, 421, 30, 10, 7),
        (NCCL, 440, 60, 20, 8),
        (GEMM, 502, 30, 110, 7),
        (NCCL, 520, 70, 120, 8),
        (GEMM, 600, 10, 230, 7),  # behind the steps
    ]
    found = recorded(on_streams(*kernels, marks=((0, 100), (105, 200))), **SEVERAL)
    assert found.periods == ((420_000, 500_000), (500_000, 590_000))
    first, second = (
        (one.lasts_ns, one.compute_ns, one.waited_ns, one.idle_ns) for one in parts_of(found)
    )
    assert first == (80_000, 30_000, 49_000, 1_000)
    assert second == (90_000, 30_000, 58_000, 2_000)


def test_a_step_that_nothing_runs_before_begins_with_the_host() -> None:
    found = recorded(on_streams((GEMM, 60, 10, 50, 7)))
    assert found.periods == ((0, 70_000),)
    unknown = recorded(on_streams((GEMM, 60, 10, None, 7)))
    assert unknown.periods == ()
    assert [part.lasts_ns for part in parts_of(unknown)] == [10_000]


KERNELS = st.lists(
    st.tuples(
        st.sampled_from([NCCL, GEMM, "acme::combine", "Memcpy PtoP (a)", "Memset (Device)"]),
        st.integers(0, 300),
        st.integers(0, 90),
        st.one_of(st.none(), st.integers(0, 120)),
        st.integers(7, 9),
    ),
    min_size=1,
    max_size=8,
)


@given(KERNELS, st.lists(st.integers(1, 60), min_size=1, max_size=3), st.integers(0, 20))
def test_steps_hold_what_they_launch(kernels: list[Kernel], lasts: list[int], apart: int) -> None:
    marks, at = [], 0
    for length in lasts:
        marks.append((at, at + length))
        at += length + apart
    found = recorded(on_streams(*kernels, marks=marks), **SEVERAL)
    launched = [
        start + length
        for _, start, length, at, _ in kernels
        if at is not None and at < marks[-1][1]
    ]
    assert bool(found.periods) == bool(launched)
    if not launched:
        return
    assert len(found.periods) == len(marks)
    assert all(one[1] == other[0] for one, other in pairwise(found.periods))
    assert all(begin <= end for begin, end in found.periods)
    assert found.periods[-1][1] >= max(launched) * 1000


@given(st.permutations(range(4)), st.booleans())
def test_all_reduces_over_gloo_are_in_the_order_of_their_calls(
    order: list[int], of_one: bool
) -> None:
    """gloo's threads may start them in another one; without calls it is that of their starts."""
    sizes = [7, 7 if of_one else 5, 3, 9]
    events = [event("ProfilerStep#1", 0, 100, "user_annotation"), op("aten::mm", 1, 1)]
    for at, size in enumerate(sizes):
        events.append(event("c10d::allreduce_", 10 + at, 0.5, Input_Dims=[[[size]], [], []]))
    for thread, at in enumerate(order):
        events.append(event("c10d::reduce_", 20, 0.1, Input_Dims=[[[3]]]))  # of another kind
        shape: Any = {"Input_Dims": [[sizes[at]]], "Input_type": ["float"]}
        events.append(event("gloo:all_reduce", 30 + thread, 20, thread=2 + thread, **shape))
    called_for = gradient_sends(recorded(events))
    assert [each.size_bytes for each in called_for] == [4 * size for size in sizes]
    assert [each.asked_ns for each in called_for] == [10_000, 11_000, 12_000, 13_000]
    unknown = gradient_sends(recorded([each for each in events if "c10d" not in each["name"]]))
    assert [each.size_bytes for each in unknown] == [4 * sizes[at] for at in order]


def test_what_a_hook_waits_for_is_no_computation() -> None:
    """A hook that sends and waits, as ZeRO's; one that sends only; and one that computes on."""

    def sending(at: float, *inside: Event) -> list[Event]:
        shape: Any = {"Input_Dims": [[7]], "Input_type": ["float"]}
        return [
            op("outer", at, 20),
            event("c10d::allreduce_", at + 2, 1, Input_Dims=[[[7]]]),
            *inside,
            event("gloo:all_reduce", at + 2.5, 7.5, thread=2, **shape),
        ]

    def parts(events: list[Event]) -> tuple[int, int]:
        steps = [event("ProfilerStep#1", 0, 200, "user_annotation")]
        found = breakdown_of(recorded([*steps, *events]))
        return found.compute_ns, found.exposed_ns

    assert parts(sending(10)) == (12_000, 7_500)
    assert parts(sending(10, op("aten::copy_", 12.2, 0.5))) == (12_000, 7_500)  # within the call
    assert parts(sending(10, op("aten::mm", 9 + 5, 1))) == (20_000, 0)
    late = sending(10)
    late[-1]["dur"] = 30  # it ends after the operator that asked for it
    assert parts(late) == (20_000, 12_500)


def test_over_gloo_a_reduce_scatter_is_what_was_called_for() -> None:
    """Its range is that of an all-reduce; that of a gather says a rank's share."""
    shape: Any = {"Input_type": ["float"]}
    found = recorded(
        [
            *(event("ProfilerStep#1", 0, 200, "user_annotation"), op("aten::mm", 1, 1)),
            event("c10d::reduce_scatter_tensor_coalesced_", 10, 1, Input_Dims=[[[2]], [[8]], []]),
            event("c10d::_allgather_base_", 12, 1, Input_Dims=[[8], [2], []]),
            event("c10d::allreduce_", 14, 1, Input_Dims=[[[8]], []]),
            event("gloo:all_reduce", 20, 9, thread=2, Input_Dims=[[8]], **shape),
            event("gloo:all_gather", 30, 9, thread=3, Input_Dims=[[2]], **shape),
            event("gloo:all_reduce", 40, 9, thread=2, Input_Dims=[[8]], **shape),
        ],
        distributedInfo={"rank": 0, "world_size": 4},
    )
    assert [each.size_bytes for each in found.transfers] == [32, 32, 32]
    kinds = ["reduce_scatter", "all_gather", "all_reduce"]
    assert [each.collective for each in found.transfers] == kinds
    assert [each.asked_ns for each in found.transfers] == [10_000, 12_000, 14_000]


def test_of_each_transfer_it_is_known_how_many_gradients_were_complete() -> None:
    shape: Any = {"Input_type": ["float"], "Input_Dims": [[2]]}
    events = [*a_step(), *a_step(2, at=100)]
    for at in (10, 64, 75, 175):  # before all gradients, after one, after both
        events += [event("c10d::allreduce_", at, 0.1, Input_Dims=[[[2]]])]
        events += [event("gloo:all_reduce", at + 0.2, 0.1, thread=2, **shape)]
    assert [each.behind for each in recorded(events).transfers] == [0, 1, 2, 2]
    alone = [event("gloo:all_reduce", 300, 1, thread=2, **shape)]
    assert recorded([*a_step(), *alone]).transfers[0].behind is None
