"""Measuring a compiled model operation by operation."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from planner import machine
from planner.deadline import Deadline
from planner.errors import InvalidInputError, MeasurementError
from planner.profiles import STATISTICS, Profile, Provenance
from planner.profiling.calls import forward
from planner.profiling.compiled.assembling import dataflow, joints
from planner.profiling.compiled.capture import Call, Recorder
from planner.profiling.compiled.naming import breaks
from planner.profiling.machine import processor, versions
from planner.profiling.remarks import others_in, warnings_of
from planner.profiling.repeating import repeated
from planner.profiling.surroundings import kept_gradients, no_collection, with_threads
from planner.profiling.tensors import loss_of
from planner.profiling.timing import Run, clock_for
from planner.validation import integer, shown

__all__ = ["measure_compiled"]


def measure_compiled(
    model: nn.Module,
    inputs: tuple[Any, ...],
    *,
    name: str,
    source: str,
    warmup: int = 3,
    repetitions: int = 10,
    batch_size: int | None = None,
    threads: int | None = None,
    repeat_s: float = 0.0,
    statistic: str = "median",
    progress: Callable[[int, int], None] | None = None,
) -> Profile:
    """Return the dataflow of a model as torch.compile captures it, each operation with its time.

    The profile has a graph and no layers. Its ops are the operations of the compiled graphs, with
    all they depend on, so that an order planned of it can be imposed
    (`planner.runtime.compiled.PlannedBackend`). Each is timed where it runs, one at a time, without
    what Inductor would merge.

    Parameters
    ----------
    model, inputs, name, source, warmup, repetitions
        As for `planner.profiling.measure`.
    batch_size, threads, repeat_s, statistic, progress
        As there.

    Raises
    ------
    InvalidInputError
        If an argument cannot mean anything.
    MeasurementError
        If the model fails, has no backward pass, or computes something else in each run.
    """
    if not isinstance(model, nn.Module):
        raise InvalidInputError("model", f"expected a torch.nn.Module, got {shown(model)}")
    integer(warmup, "warmup")
    integer(repetitions, "repetitions", minimum=1)
    one_of = STATISTICS[statistic]
    report = progress or (lambda _done, _total: None)
    clock = clock_for(model)
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    names: dict[Tensor, str] = {tensor: called for called, tensor in trained.items()}
    recorder = Recorder(names, clock)
    compiled = torch.compile(model, backend=recorder, dynamic=False)
    bare: list[tuple[int, int]] = []
    runs: list[Run] = []
    timed: list[tuple[list[Call], list[int]]] = []
    loads = [machine.Load.now()]
    with (
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        kept_gradients(model, inputs),
        with_threads(threads),
        no_collection(),
    ):
        for done in range(max(warmup, 1)):  # the first one compiles
            _iteration(recorder, compiled, inputs, timing=False)
            report(done + 1, max(warmup, 1) + repetitions)

        def one_more() -> Run:
            loads.append(machine.Load.now())
            _, _, whole = _iteration(recorder, compiled, inputs, timing=False)
            bare.append(whole)
            calls, between, whole = _iteration(recorder, compiled, inputs, timing=True)
            if timed and [id(call.stage) for call in calls] != [id(c.stage) for c in timed[0][0]]:
                raise MeasurementError("the model runs other graphs from run to run")
            timed.append((calls, between))
            spans: dict[str, list[int]] = {"forward": [], "backward": []}
            for call in calls:
                spans[call.stage.phase] += call.times_ns
            runs.append(Run(whole, spans["forward"], spans["backward"], [], [], []))
            report(warmup + len(runs), warmup + max(len(runs), repetitions))
            return runs[-1]

        limit = cache(lambda: Deadline(repeat_s))  # begins when it is asked for
        first, spread = repeated(one_more, repetitions, lambda: not limit().passed)
        loads.append(machine.Load.now())
        counting = slice(first, first + repetitions)
        others = others_in(loads, first + 1, first + 1 + repetitions)
        tried, bare, runs, timed = len(runs), bare[counting], runs[counting], timed[counting]
        graph = dataflow(
            [calls for calls, _ in timed],
            [between for _, between in timed],
            one_of,
            trained,
        )
        sums = [
            sum(op.duration_ns for op in graph.ops if op.phase == phase)
            for phase in ("forward", "backward")
        ]
        provenance = Provenance(
            kind="measured",
            source=source,
            date=datetime.now(UTC).date().isoformat(),
            processor=processor(model),
            threads=torch.get_num_threads(),
            warmup=warmup,
            repetitions=repetitions,
            statistic=statistic,
            versions=versions(),
            notes=tuple(_notes(timed[0][0], bare, runs, tried)),
            warnings=warnings_of(model, bare, runs, spread, others, (sums[0], sums[1]), one_of),
        )
    return Profile(name, (), provenance, batch_size, graph)


def _iteration(
    recorder: Recorder, compiled: Any, inputs: tuple[Any, ...], *, timing: bool
) -> tuple[list[Call], list[int], tuple[int, int]]:
    """Run once; return the calls of graphs, the times between them, and those of the passes."""
    recorder.timing, recorder.calls = timing, []
    compiled.zero_grad(set_to_none=True)
    start = recorder.clock()
    loss = loss_of(forward(compiled, inputs))
    middle = recorder.clock()
    try:
        loss.backward()
    except Exception as error:
        raise MeasurementError(
            f"the model's backward pass failed: {type(error).__name__}: {error}"
        ) from error
    end = recorder.clock()
    calls = recorder.calls
    stages = [call.stage for call in calls]
    phases = [stage.phase for stage in stages]
    if "backward" not in phases or phases != sorted(phases, reverse=True):
        raise MeasurementError("the compiled model has no backward pass of its own")
    between = []
    for before, after in pairwise(calls):
        if before.stage.phase != after.stage.phase:
            between += [middle - before.end_ns, after.start_ns - middle]
        else:
            between.append(after.start_ns - before.end_ns)
    assert len(between) == len(joints(stages))
    return calls, between, (middle - start, end - middle)


def _notes(
    calls: Sequence[Call], bare: Sequence[tuple[int, int]], runs: Sequence[Run], tried: int
) -> list[str]:
    graphs = len({call.stage.graph for call in calls})
    alone = sum(sum(times) for times in bare) / len(bare)
    whole = sum(sum(run.whole_ns) for run in runs) / len(runs)
    nodes = sum(len(call.times_ns) for call in calls)
    several = "s" if graphs > 1 else ""
    what = f"{nodes} operations, in {graphs} graph{several} of torch.compile, timed one by one: "
    notes = [f"{what}{whole / 1e6:.3f} ms in the mean ({alone / 1e6:.3f} ms without a clock)"]
    if graphs > 1:
        reasons = breaks()
        notes.append(f"cut into graphs by: {'; '.join(reasons) if reasons else 'unknown'}")
    if tried > len(runs):
        notes.append(f"the steadiest {len(runs)} in a row of {tried} repetitions")
    return notes
