"""Time iterations, with hooks that separate the layers or without."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles
from typing import Any

import torch
from torch import Tensor, nn

from planner.model import machine
from planner.model.errors import MeasurementError
from planner.model.layers import Layer
from planner.profiling.calls import errors_of, nodes_behind, observed_modules
from planner.profiling.samples import loss_of, tensors_in
from planner.profiling.structure import Structure
from planner.solving.diagnostics import MeasurementConditions, Spread, disturbances

Clock = Callable[[], int]
"""Returns the time (ns) once all work submitted so far is complete."""


@dataclass(frozen=True, slots=True)
class Run:
    """Times of one iteration (ns).

    The times of ops sum to the whole forward pass, and to the time from the start of the backward
    pass to the last gradient.
    """

    whole_ns: tuple[int, int]  # forward pass, backward call
    forward_ns: list[int]  # by op
    backward_ns: list[int]
    ready_ns: list[int | None]  # by layer: gradients complete, from the backward pass's start
    reached_ns: Mapping[nn.Parameter, int]  # backward time of its op until its gradient is complete


def clock_for(model: nn.Module) -> Clock:
    """Return the clock for the device that `model` is on."""
    if not any(parameter.is_cuda for parameter in model.parameters()):
        return time.perf_counter_ns

    def synchronised() -> int:
        torch.cuda.synchronize()
        return time.perf_counter_ns()

    return synchronised


def time_bare(model: nn.Module, inputs: tuple[Any, ...], clock: Clock) -> tuple[int, int]:
    """Return the times of one forward and one backward pass (ns), without hooks."""
    model.zero_grad(set_to_none=True)
    start = clock()
    with errors_of("forward"):
        output = model(*inputs)
    forward_ns = clock() - start
    start, end = _backward(loss_of(output), clock)
    return forward_ns, end - start


def time_layers(
    model: nn.Module, inputs: tuple[Any, ...], structure: Structure, clock: Clock
) -> Run:
    """Return the times of layers and ops in one forward and one backward pass.

    A layer's forward time lasts to the start of the next layer; an op between the two gets the part
    after the layer's end. In the backward pass the clock is read after each autograd node and each
    complete gradient, and the time since the previous reading is charged to the op of the node or
    parameter. A `MeasurementError` is raised if the model no longer computes the observed
    structure.
    """
    model.zero_grad(set_to_none=True)
    marks: list[tuple[str, int]] = []
    timed = {name for name, _ in structure.marks}
    with ExitStack() as hooks:
        for name, module in observed_modules(model):
            if name in timed:

                def mark(*_: Any, name: str = name) -> None:
                    marks.append((name, clock()))

                hooks.callback(module.register_forward_pre_hook(mark, prepend=True).remove)
                hooks.callback(module.register_forward_hook(mark, always_call=True).remove)
        start = clock()
        with errors_of("forward"):
            output = model(*inputs)
        end = clock()
    if [name for name, _ in marks] != [name for name, _ in structure.marks]:
        raise _changed("its modules are called in another order")
    forward_ns = [0] * len(structure.ops)
    owners = [0, *(op for _, op in structure.marks)]  # the first op starts with the model
    moments = [start, *(moment for _, moment in marks), end]
    for op, (before, after) in zip(owners, pairwise(moments), strict=True):
        forward_ns[op] += after - before

    loss = loss_of(output)
    nodes = nodes_behind([loss])
    if tuple(node.name() for node in nodes) != structure.node_names:
        raise _changed("its backward pass has other operations")
    passed: list[tuple[int, int, nn.Parameter | None]] = []
    ready_ns: list[int | None] = [None] * len(structure.names)

    def gradient_ready(parameter: nn.Parameter) -> None:
        passed.append((structure.accumulators[parameter], clock(), parameter))
        ready_ns[structure.parameters[parameter]] = passed[-1][1]

    with ExitStack() as hooks:
        for node, op in zip(nodes, structure.node_ops, strict=True):
            handle = node.register_hook(lambda *_grads, op=op: passed.append((op, clock(), None)))
            hooks.callback(handle.remove)
        for parameter in structure.parameters:
            if parameter.requires_grad:
                handle = parameter.register_post_accumulate_grad_hook(gradient_ready)
                hooks.callback(handle.remove)
        start, end = _backward(loss, clock)
    backward_ns = [0] * len(structure.ops)
    reached_ns: dict[nn.Parameter, int] = {}
    before = start
    for op, moment, complete in passed:
        backward_ns[op] += moment - before
        before = moment
        if complete is not None:
            reached_ns[complete] = backward_ns[op]
    return Run(
        whole_ns=(sum(forward_ns), end - start),
        forward_ns=forward_ns,
        backward_ns=backward_ns,
        ready_ns=[None if moment is None else moment - start for moment in ready_ns],
        reached_ns=reached_ns,
    )


def _backward(loss: Tensor, clock: Clock) -> tuple[int, int]:
    start = clock()
    with errors_of("backward"):
        loss.backward()
    return start, clock()


def _changed(how: str) -> MeasurementError:
    return MeasurementError(
        f"the model's computation changes from run to run: {how}. Turn off what is drawn at "
        "random (such as the dropping of whole layers), or measure it in evaluation mode"
    )


# ---
# Contexts of a measurement, which restore the previous state.


@contextmanager
def kept_gradients(model: nn.Module, inputs: tuple[Any, ...]) -> Iterator[None]:
    """Restore the gradients of the model and its inputs at the end."""
    leaves = [tensor for tensor in (*model.parameters(), *tensors_in(inputs)) if tensor.is_leaf]
    gradients = [leaf.grad for leaf in leaves]
    try:
        yield
    finally:
        model.zero_grad(set_to_none=True)  # includes parameters created lazily meanwhile
        for leaf, gradient in zip(leaves, gradients, strict=True):
            leaf.grad = gradient


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable the garbage collector."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def copied_gradients(model: nn.Module, messages: dict[Tensor, Tensor]) -> Iterator[None]:
    """Copy each complete dense gradient, as executors do into messages, and DDP into buckets.

    `messages`, at first empty, holds the memory of each parameter's message.
    """

    def copied(parameter: nn.Parameter) -> None:
        gradient = parameter.grad
        if gradient is None or gradient.is_sparse:
            return
        if parameter not in messages:
            messages[parameter] = torch.empty_like(gradient)
        torch.mul(gradient, 0.5, out=messages[parameter])

    with ExitStack() as hooks:
        for parameter in model.parameters():
            if parameter.requires_grad:
                hooks.callback(parameter.register_post_accumulate_grad_hook(copied).remove)
        yield


# ---
# Notes and warnings.


def interquartile(times: Sequence[int]) -> int | None:
    """Return the interquartile range (ns), or None for a single time."""
    if len(times) == 1:
        return None
    low, _, high = quantiles(times, n=4, method="inclusive")
    return round(high - low)


def spread_of(runs: Sequence[Run], layers: Sequence[Layer]) -> Spread | None:
    """Return the relative spread of runs and of the layers' times, or None for a single run."""
    if len(runs) < 2:
        return None
    wholes = [sum(run.whole_ns) for run in runs]
    spreads = [(each.forward_spread_ns or 0) + (each.backward_spread_ns or 0) for each in layers]
    times = sum(each.forward_ns + each.backward_ns for each in layers)
    return Spread(
        (interquartile(wholes) or 0) / max(median(wholes), 1), sum(spreads) / max(times, 1)
    )


def warnings_of(
    model: nn.Module,
    bare: Sequence[tuple[int, int]],
    runs: Sequence[Run],
    others: float | None,
    layers: Sequence[Layer],
    faults: Sequence[int],
) -> tuple[str, ...]:
    """Return the reasons why the times may be off.

    `bare` and `runs` are the repetitions without and with hooks, and `faults` the page faults of
    the former; for `others` see `MeasurementConditions`.
    """
    without = [median(times[which] for times in bare) for which in (0, 1)]
    return disturbances(
        MeasurementConditions(
            threads=1 if _on_device(model) else torch.get_num_threads(),
            processors=machine.processors(),
            others=others,
            spread=spread_of(runs, layers),
            forward_layers=(sum(each.forward_ns for each in layers), without[0]),
            backward_layers=(sum(each.backward_ns for each in layers), without[1]),
            faults=(median(faults), sum(without)),
        )
    )


def notes_of(model: nn.Module, structure: Structure) -> list[str]:
    """Return the measurement's notes: mode, device, unused parameters."""
    notes = []
    if not model.training:
        notes.append("the model is in evaluation mode")
    if _on_device(model):
        notes.append("the hooks wait for the device at each layer, which serialises it")
    idle = [p for p in structure.parameters if p.requires_grad and p.grad is None]
    if idle:
        size = sum(p.numel() * p.element_size() for p in idle)
        notes.append(f"{len(idle)} trainable parameters ({size} bytes) get no gradient")
    return notes


def _on_device(model: nn.Module) -> bool:
    """Return whether an accelerator computes; a single thread then drives it."""
    return any(parameter.is_cuda for parameter in model.parameters())


# ---
# The processor behind a measurement.


def processor(model: nn.Module) -> str:
    """Return the name of the processor, and of the accelerators that `model` is on."""
    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    accelerators = sorted({torch.cuda.get_device_name(device) for device in devices})
    return "; ".join([machine.processor(), *accelerators])
