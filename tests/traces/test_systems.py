"""Jobs of DDP, ZeRO and Megatron: told apart, and their steps predicted."""

from bisect import bisect_left
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.model.errors import NotApplicableError
from planner.solving.targets import TARGETS
from planner.traces.buckets import all_of
from planner.traces.proposals import RESIDUAL
from planner.traces.recorded import Recorded, Transfer, gradient_sends
from planner.traces.tuning import propose
from tests.traces.made import Job, moved
from tests.traces.test_tuning import HIDDEN, Drawn, both, check_is_predicted, counts_of, jobs


@example((Job(((0, 10**6, 40_000),) * 4, 0, 25.0), (2, 2)), "deepspeed", False, True, 0)
@given(
    jobs(),
    st.sampled_from(["deepspeed", "megatron"]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_steps_of_jobs_that_shard_the_optimiser_are_predicted(
    drawn: Drawn, system: str, turns: bool, device: bool, gather_ns: int
) -> None:
    """Whether transfers overlap computation or not, and for the system that was recorded."""
    job, counts = drawn
    job = replace(job, system=system, turns=turns or not device, gather_ns=gather_ns)
    for network, most in ((None, 0.06), (job.cost, 0.02)):
        found = propose(both(job, counts, device=device), job.graph, network=network)
        assert found.target is TARGETS[system]
        check_is_predicted(job, counts, found, most)


@given(jobs(), st.sampled_from(["deepspeed", "megatron"]), st.booleans())
def test_of_what_takes_turns_only_start_ups_can_be_saved(
    drawn: Drawn, system: str, free: bool
) -> None:
    """On a device the settings have it overlap; without one it goes on taking turns."""
    job, counts = drawn
    job = replace(job, system=system, turns=True, gather_ns=10**5)
    job = replace(job, startup_ns=0) if free else job
    host = propose(both(job, counts, device=False), job.graph, network=job.cost)
    saved = job.startup_ns * (len(counts) - len(host.proposed))
    assert host.plan_ns == pytest.approx(job.step_ns(counts) - saved, rel=1e-3)
    assert len(host.proposed) == 1 or not job.startup_ns
    assert host.least_gain == pytest.approx(host.gain * (1 - RESIDUAL), rel=1e-3)  # it is certain
    device = propose(both(job, counts), job.graph, network=job.cost)
    after = replace(job, turns=False).step_ns(counts_of(job, device.proposed))
    assert device.plan_ns == pytest.approx(after, rel=1e-3)


def by_turns_late(recorded: Recorded, late_ns: int) -> Recorded:
    """Return the recording of a rank that comes late to every other transfer of gradients."""
    starts = [each.start_ns for each in gradient_sends(recorded)]
    late = moved(recorded, lambda moment: moment + late_ns * bisect_left(starts, moment))
    sent = []
    for each, was in zip(late.transfers, recorded.transfers, strict=True):
        came_last = was.start_ns in starts and starts.index(was.start_ns) % 2 == recorded.rank
        sent.append(replace(each, start_ns=each.start_ns + late_ns * came_last))
    return replace(late, transfers=tuple(sent))


def test_waiting_for_the_rank_that_comes_last_is_no_start_up() -> None:
    """Where computation waits for each transfer, every rank waits for others now and then."""
    layers = tuple((10**6, 2 * 10**6, 20_000 * size) for size in (1, 4, 2, 1, 3, 2))
    job, late_ns = Job(layers, 2 * 10**5, 25.0, system="deepspeed", turns=True), 8 * 10**5
    counts = (1,) * len(layers)
    ranks = [
        by_turns_late(job.recorded(counts, rank=rank, device=False), late_ns) for rank in (0, 1)
    ]
    found = propose(ranks, job.graph)
    lateness = late_ns * len(counts)
    assert found.step_ns == job.step_ns(counts) + lateness
    assert abs(found.error) < 1e-3
    after = job.step_ns(counts_of(job, found.proposed)) + lateness
    assert len(found.proposed) == 1
    assert found.plan_ns == pytest.approx(after, rel=1e-3)


SHARDED, EITHER = "gathered between gradients", "--for megatron or --for deepspeed"


@pytest.mark.parametrize(
    ("scattered", "gathers", "size", "is_for"),
    [
        (False, [1], 40, "ddp"),
        (False, [1], 240_000, "deepspeed"),
        (False, [-1], 240_000, "deepspeed"),
        (False, [2, 2], 120_000, SHARDED),
        (True, [1], 40, "megatron"),
        (True, [1], 240_000, EITHER),
        (True, [-1], 240_000, "megatron"),
        (True, [2], 240_000, "megatron"),
        (True, [2, 2], 120_000, SHARDED),
    ],
)
def test_who_sent_it_is_told_by_what_was_gathered_and_when(
    scattered: bool, gathers: list[int], size: int, is_for: str
) -> None:
    """Ahead of the gradients (1), between them (2) or behind them (-1)."""
    job = replace(HIDDEN, system="megatron" if scattered else "ddp")
    rank = job.recorded((2, 2, 2))
    sent = tuple(each for each in rank.transfers if each.collective != "all_gather")
    gathered = []
    for step, (begin, end) in enumerate(rank.periods):
        moments = {1: begin, 2: end - (end - begin) // 3, -1: end}
        times = (moments[kind] for kind in gathers)
        gathered += [Transfer("all_gather", at, at, step, size) for at in times]
    rank = replace(rank, transfers=(*sent, *gathered))
    if is_for in TARGETS:
        assert propose([rank], job.graph).target is TARGETS[is_for]
        return
    with pytest.raises(NotApplicableError, match=is_for):
        propose([rank], job.graph)
    if is_for == EITHER:
        target = TARGETS["deepspeed"]
        assert propose([rank], job.graph, target=target).target is target


@given(jobs(), st.randoms(use_true_random=False), st.booleans())
def test_buckets_in_an_order_of_their_own_are_priced_by_when_they_were_called_for(
    drawn: Drawn, random: Random, device: bool
) -> None:
    """DDP fills them in the model's order if it looks for unused parameters."""
    job, counts = drawn
    sizes = random.sample(job.sizes, len(job.sizes))
    passes = zip(job.layers, sizes, strict=True)
    model = replace(job, layers=tuple((fp, bp, size) for (fp, bp, _), size in passes))
    ranks = both(job, counts, device=device)
    found = propose(ranks, model.graph, network=job.cost, any_order=True)
    assert abs(found.error) < 0.001  # sent when they were called for, whoever sent them
    assert len(found.buckets) == len(counts)
    after = model.step_ns(counts_of(model, found.proposed))
    if device:
        assert found.plan_ns == pytest.approx(after, rel=1e-3, abs=2)


def test_all_transfers_of_gradients_are_those_that_sum_up_to_them() -> None:
    assert all_of([400, 4, 8, 100], 404) == (400, 4)  # not 400, though it is near
    assert all_of([400], 500) is all_of([], 4) is None
