"""FSDP2 gives commands to streams that only count time: it takes as long as the simulator says.

On a CPU streams are empty shells in torch. Here they are replaced by some that know when their work
ends, and collectives by the time that a problem says they take; the host is always ahead, as it is
of a GPU. What FSDP2 waits for where is FSDP2's own code.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard import (
    _fsdp_collectives,
    _fsdp_param_group,
    _fsdp_state,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from planner.families import fsdp
from planner.families.fsdp import Mesh, Plan, Problem
from planner.families.fsdp.baselines import BASELINES
from planner.families.fsdp.evaluation import Evaluation, Schedule, evaluate, follow
from planner.families.fsdp.prefetch import by_streams
from planner.families.fsdp.problem import Channels
from planner.formats.exporters.fsdp2 import BUFFERS, SEPARATE, needed
from planner.model.costs import AffineCost
from planner.programs import program_of
from planner.runtime import fsdp2
from planner.runtime.fsdp2 import _Queue, as_fsdp2
from tests.runtime.jobs import in_each_process
from tests.runtime.test_fsdp2_units import devices, mesh_of
from tests.thorough import THOROUGH

SHARDS = 4
INSTANCES = 12 if THOROUGH else 6
RULES_OF_FSDP2 = ("fsdp2", "fsdp2_ahead_2", "no_reshard", "one_unit")


class Span(NamedTuple):
    """When a collective was carried out."""

    kind: str
    start_ns: int
    end_ns: int


class Event:
    """A point in a stream."""

    def __init__(self, at: int = 0) -> None:
        self.at = at

    def record(self, *_: Any) -> None:
        self.at = CLOCK.current.at


class Stream:
    """Work that is done one after the other; knows when all of it so far ends."""

    def __init__(self, priority: int = 0) -> None:
        self.at = 0

    def wait_event(self, event: Event) -> None:
        self.at = max(self.at, event.at)

    def wait_stream(self, other: "Stream") -> None:
        self.at = max(self.at, other.at)

    def record_event(self) -> Event:
        return Event(self.at)


class Clock:
    """What FSDP2 takes for a kind of device."""

    Event: Any = Event
    Stream: Any = Stream

    def __init__(self) -> None:
        self.current: Any = Stream()
        self.spans: list[Span] = []
        self.channels: dict[Any, Any] = {}

    def current_stream(self) -> Any:
        return self.current

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def compute(self, duration: int) -> None:
        self.current.at += duration

    def communicate(self, kind: str, duration: int, group: Any, wait: bool) -> Any:
        channel = self.channels.setdefault(group, Stream())
        start = max(self.current.at, channel.at)
        channel.at = end = start + duration
        self.spans.append(Span(kind, start, end))
        if wait:
            self.current.at = end
            return None
        return Pending(end)


CLOCK = Clock()


class Pending(distributed.Work):
    def __init__(self, end: int) -> None:
        super().__init__()
        self.end = end

    def wait(self, timeout: Any = None) -> bool:
        CLOCK.current.at = max(CLOCK.current.at, self.end)
        return True


class Layer(nn.Linear):
    """A layer that takes a known time."""

    def __init__(self, inputs: int, outputs: int, forward_ns: int, backward_ns: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.forward_ns, self.backward_ns = forward_ns, backward_ns

    def forward(self, inputs: Tensor) -> Tensor:
        CLOCK.compute(self.forward_ns)
        outputs = super().forward(inputs)
        outputs.register_hook(lambda _: CLOCK.compute(self.backward_ns))
        return outputs.clone()  # whose gradient comes first: FSDP2's hooks are on it


def as_people_do(make: Callable[[], nn.Sequential], rule: str, over: Mesh) -> nn.Module:
    """Return a model that FSDP2 shards by a rule, called as people do."""
    model, mesh = make(), devices(over)
    options: dict[str, Any] = {"reshard_after_forward": False} if rule == "no_reshard" else {}
    own = [] if rule == "one_unit" else [layer for layer in model if list(layer.parameters())]
    layers = [fully_shard(layer, mesh=mesh, **options) for layer in own]
    fully_shard(model, mesh=mesh, **options)
    for place, layer in enumerate(layers):
        if rule == "fsdp2_ahead_2":
            layer.set_modules_to_forward_prefetch(layers[place + 1 : place + 3])
            layer.set_modules_to_backward_prefetch(layers[max(place - 2, 0) : place][::-1])
    return model


def instance(seed: int, **changes: Any) -> tuple[Problem, Callable[[], nn.Sequential]]:
    """Return a problem, and what makes the model it is about."""
    draw = random.Random(seed)
    widths = [4 * draw.randint(1, 6) for _ in range(draw.randint(2, 7))]
    times = [(draw.randint(1, 3000), draw.randint(1, 6000)) for _ in widths[1:]]
    cost, other, third = (
        AffineCost(draw.choice([0, 150]), Fraction(draw.randint(1, 12), 4)) for _ in range(3)
    )
    replicas = 1 + seed % 2
    problem = Problem(
        forward_ns=[forward for forward, _ in times],
        backward_ns=[backward for _, backward in times],
        parameter_bytes=[4 * before * after for before, after in pairwise(widths)],
        meshes=[mesh_of(SHARDS // replicas, replicas, cost, other, third)],
        names=[str(place) for place in range(len(times))],
        **changes,
    )

    def make() -> nn.Sequential:
        return nn.Sequential(
            *(Layer(*pair, *time) for pair, time in zip(pairwise(widths), times, strict=True))
        )

    return problem, make


def timed(problem: Problem, sharded: Callable[[], nn.Module]) -> tuple[list[Span], int]:
    """Return when a step of a sharded model does what, and how long it takes."""
    global CLOCK  # noqa: PLW0603 - there is one device
    CLOCK = Clock()
    mesh = problem.meshes[0]

    def gather(
        output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False
    ) -> Any:
        output_tensor.zero_()
        time = mesh.gather_ns(4 * output_tensor.numel())
        return CLOCK.communicate("gather", time, group, not async_op)

    def scatter(output: Tensor, input: Tensor, group: Any, **_: Any) -> Any:  # noqa: A002
        output.zero_()
        return CLOCK.communicate("scatter", mesh.reduce_ns(4 * input.numel()), group, True)

    def add(tensor: Tensor, group: Any, **_: Any) -> Any:
        return CLOCK.communicate("sum", mesh.sum_ns(4 * tensor.numel()), group, True)

    with pytest.MonkeyPatch.context() as patch:
        for module in (_fsdp_state, _fsdp_param_group, _fsdp_collectives):
            patch.setattr(module, "_get_device_handle", lambda _: CLOCK)
        patch.setattr(distributed, "all_gather_single", gather)
        patch.setattr(distributed, "reduce_scatter_single", scatter)
        patch.setattr(distributed, "all_reduce", add)
        patch.setattr(fsdp2, "_has_streams", lambda _: True)
        model = sharded()
        width: int = next(iter(model.children())).in_features  # type: ignore[assignment]
        model(torch.ones(1, width)).sum().backward()
    return in_order(CLOCK.spans), CLOCK.current.at


def foreseen(evaluation: Schedule | Evaluation) -> tuple[list[Span], int]:
    kinds = {"gather": evaluation.gathers, "scatter": evaluation.reduces, "sum": evaluation.sums}
    spans = [Span(kind, row.start_ns, row.end_ns) for kind, rows in kinds.items() for row in rows]
    return in_order(spans), evaluation.iteration_ns


def in_order(spans: list[Span]) -> list[Span]:
    """Return what takes time, in its order."""
    return sorted(span for span in spans if span.end_ns > span.start_ns)


def compare(problem: Problem, plan: Plan, make: Callable[[], nn.Sequential]) -> None:
    """Compare what a plan comes to with all of its settings, and without each."""
    program: Any = program_of((problem, plan))
    mesh = devices(problem.meshes[0])
    loads, settings = evaluate(problem, plan).loads, dict(needed(program))
    for missing in (None, *settings):
        left, channels = without(plan, problem.channels, missing)
        rest = [row for row in settings.items() if row[0] != missing]
        with mock.patch.object(fsdp2, "needed", return_value=rest):
            found = timed(problem, lambda: as_fsdp2(make(), program, mesh))
        assert found == foreseen(follow(left, loads, channels)), (problem, plan, missing)


def without(plan: Plan, channels: Channels, method: str | None) -> tuple[Plan, Channels]:
    """Return what remains of a plan without a method of FSDP2's, which the checker may refuse."""
    if method == SEPARATE:
        return plan, "one"
    if method == BUFFERS:
        return replace(plan, buffers=1), channels
    return (by_streams(plan, channels) if method else plan), channels


@pytest.mark.slow
@in_each_process(1)
def test_streams_of_fsdp2_take_as_long_as_planned() -> None:
    """What FSDP2 does is what the simulator says, of rules and of plans."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=SHARDS)
    for seed in range(INSTANCES):
        problem, make = instance(seed)
        for rule in RULES_OF_FSDP2:
            plan = BASELINES[rule](problem, 0)
            found = timed(problem, partial(as_people_do, make, rule, problem.meshes[0]))
            assert found == foreseen(evaluate(problem, plan)), (rule, seed)
            if "fsdp2" in rule:
                compare(problem, plan, make)
        for channels in ("one", "two"):
            free, make = instance(seed, channels=channels)
            peak = evaluate(free, BASELINES["fsdp2"](free, 0)).peak_bytes
            for limit in (None, peak):
                limited = free.within(limit)
                solved = fsdp.solve(limited).plan
                assert solved is not None
                compare(limited, solved, make)


@in_each_process()
def test_collectives_wait_for_a_late_rank_as_long_as_the_job_does() -> None:
    distributed.init_process_group("gloo", timeout=timedelta(seconds=1))
    group: Any = _Queue([0, 1])._group
    store: Any = distributed.distributed_c10d._get_default_store()
    if distributed.get_rank() == 0:
        with pytest.raises(RuntimeError, match="imed out"):
            distributed.all_reduce(torch.ones(1), group=group)
        store.set("timed out", "1")
    store.wait(["timed out"], timedelta(seconds=20))
