"""Measure the times and sizes of a model's layers over several repetitions.

Problem: What does each layer compute and send, and what depends on what?
Guarantee: Times are medians; the model's weights and gradients stay unchanged.
Complexity: Two passes of the model per repetition. Source: own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.model import machine
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.layers import Layer
from planner.model.profiles import Profile, Provenance
from planner.model.validation import integer, shown
from planner.profiling.shapes import Description, describe
from planner.profiling.structure import Structure, observe
from planner.profiling.timing import (
    Clock,
    Run,
    clock_for,
    copied_gradients,
    interquartile,
    kept_gradients,
    no_collection,
    notes_of,
    processor,
    time_bare,
    time_layers,
    warnings_of,
)


def measure(
    model: nn.Module,
    inputs: tuple[Any, ...],
    *,
    name: str,
    source: str,
    warmup: int = 3,
    repetitions: int = 10,
    batch_size: int | None = None,
    optimizer: Callable[[list[Tensor]], Optimizer] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Profile:
    """Return a model's profile: times and sizes of its layers, and its dataflow graph.

    A layer is a call of a module during which no other module is called. In the dataflow graph the
    loss is an op, and so is each computation between two layers. The model is measured in its
    current mode (training or evaluation). Its gradients are restored afterwards; its buffers, such
    as running statistics, keep the changes that forward passes make.

    Parameters
    ----------
    model : Module
        The model.
    inputs : tuple
        The positional arguments of its forward pass.
    name : str
        Name of the profile.
    source : str
        Command of the measurement, for the provenance.
    warmup, repetitions : int
        Untimed iterations, and timed repetitions after them. Each repetition runs one iteration
        with the hooks that time layers and one without, for comparison.
    batch_size : int, optional
        Samples in `inputs`. Without it the shapes of one sample stay unknown.
    optimizer : callable, optional
        Makes an optimiser of the given parameters (copies of the model's). Its updates become ops
        of the graph, each before the first op that reads the updated parameters. Backward ops then
        include the copies of their gradients into messages, which communication begins with.
    progress : callable, optional
        Called after each iteration with the number done and the total.

    Raises
    ------
    InvalidInputError
        If an argument is out of range or of the wrong type.
    MeasurementError
        If the model fails, has no backward pass, or computes something else in each run.
    """
    if not isinstance(model, nn.Module):
        raise InvalidInputError("model", f"expected a torch.nn.Module, got {shown(model)}")
    if not isinstance(inputs, tuple):
        raise InvalidInputError("inputs", f"expected a tuple, got {shown(inputs)}")
    integer(warmup, "warmup")
    integer(repetitions, "repetitions", minimum=1)
    if batch_size is not None:
        integer(batch_size, "batch_size", minimum=1)

    report = progress or (lambda _done, _total: None)
    clock = clock_for(model)
    bare: list[tuple[int, int]] = []
    runs: list[Run] = []
    faults: list[int] = []
    updates: list[int] = []
    before = machine.Load.now()
    with (
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        kept_gradients(model, inputs),
        no_collection(),
    ):
        for done in range(warmup):
            time_bare(model, inputs, clock)
            report(done + 1, warmup + repetitions)
        structure = observe(model, inputs)
        described = None if batch_size is None else describe(model, inputs, batch_size)

        update: Callable[[], int] | None = None
        with nullcontext() if optimizer is None else copied_gradients(model, {}):
            for done in range(repetitions):
                known = machine.page_faults()
                bare.append(time_bare(model, inputs, clock))
                faults.append(machine.page_faults() - known)
                runs.append(time_layers(model, inputs, structure, clock))
                if optimizer is not None:
                    update = update or _update_of(model, optimizer, clock)
                    updates.append(update())
                report(warmup + done + 1, warmup + repetitions)
        others = machine.Load.now().others(before)
        layers = _layers(model, structure, runs, described)
        graph = _graph(model, structure, runs)
        if graph is not None and optimizer is not None:
            graph = with_updates(graph, round(median(updates)))
        provenance = Provenance(
            kind="measured",
            source=source,
            date=datetime.now(UTC).date().isoformat(),
            processor=processor(model),
            threads=torch.get_num_threads(),
            warmup=warmup,
            repetitions=repetitions,
            statistic="median",
            versions=machine.versions(torch=str(torch.__version__)),
            notes=tuple(notes_of(model, structure)),
            warnings=warnings_of(model, bare, runs, others, layers, faults),
        )
    # Autograd runs backward ops by when their forward ops ran; nothing changes it.
    return Profile(name, layers, provenance, batch_size, graph, fixed_order=graph is not None)


def _layers(
    model: nn.Module,
    structure: Structure,
    runs: Sequence[Run],
    described: Sequence[Description] | None,
) -> tuple[Layer, ...]:
    if described is not None and len(described) != len(structure.names):
        described = None  # the model made other calls in the run that describes its layers
    parameter_bytes = [0] * len(structure.names)
    gradient_bytes = [0] * len(structure.names)
    parameters: list[list[str]] = [[] for _ in structure.names]
    for name, parameter in model.named_parameters():
        layer = structure.parameters[parameter]
        parameters[layer].append(name)
        parameter_bytes[layer] += parameter.nbytes
        gradient_bytes[layer] += parameter.nbytes if parameter.requires_grad else 0
    layers = []
    forward_ns = zip(*(structure.by_layer(run.forward_ns) for run in runs), strict=True)
    backward_ns = zip(*(structure.by_layer(run.backward_ns) for run in runs), strict=True)
    rows = zip(structure.names, forward_ns, backward_ns, strict=True)
    for layer, (name, forward, backward) in enumerate(rows):
        ready = [moment for run in runs if (moment := run.ready_ns[layer]) is not None]
        layers.append(
            Layer(
                name=name,
                forward_ns=round(median(forward)),
                backward_ns=round(median(backward)),
                parameter_bytes=parameter_bytes[layer],
                gradient_bytes=gradient_bytes[layer],
                activation_bytes=structure.activation_bytes[layer],
                kept_bytes=structure.kept_bytes[layer],
                gradient_ready_ns=round(median(ready)) if ready else None,
                forward_spread_ns=interquartile(forward),
                backward_spread_ns=interquartile(backward),
                block=structure.blocks[layer],
                parameters=tuple(parameters[layer]),
                **({} if described is None else described[layer]._asdict()),
            )
        )
    return tuple(layers)


def _graph(model: nn.Module, structure: Structure, runs: Sequence[Run]) -> Graph | None:
    """Return the dataflow graph; None if no parameter gets a gradient.

    A backward op follows its forward op and the backward ops that produce its gradient. Where
    autograd has no record (a recomputed layer), it follows the backward op of the next op that has
    one.
    """
    updated = {
        name: (parameter, structure.updaters[parameter])
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and parameter.numel()
    }
    if not updated:
        return None
    going_back = set(structure.node_ops)
    for parameter, using in updated.values():
        going_back |= {structure.accumulators[parameter], *using}
    forward = [f"{op.name}/forward" for op in structure.ops]
    backward = [f"{op.name}/backward" for op in structure.ops]
    ops = [
        Op(
            forward[index],
            round(median([run.forward_ns[index] for run in runs])),
            "forward",
            tuple(forward[producer] for producer in op.reads),
        )
        for index, op in enumerate(structure.ops)
    ]
    following: tuple[int, ...] = ()
    early: dict[str, str] = {}
    for index in sorted(going_back, reverse=True):
        giving = structure.ops[index].gradient_from or following
        lasts = round(median([run.backward_ns[index] for run in runs]))
        own = {
            name: each
            for name, (each, using) in updated.items()
            if using == (index,) == (structure.accumulators[each],)
        }
        after = (*(backward[reader] for reader in giving), forward[index])
        start = 0
        for number, (end, names) in enumerate(_parts(lasts, _reached(own, runs)), start=1):
            part = f"{structure.ops[index].name}:{number}/backward"
            ops.append(Op(part, end - start, "backward", after))
            early |= dict.fromkeys(names, part)
            start, after = end, (part,)
        ops.append(Op(backward[index], lasts - start, "backward", after))
        following = (index,)
    return Graph(
        tuple(ops),
        tuple(
            Parameter(
                name,
                parameter.numel() * parameter.element_size(),
                (early[name],) if name in early else tuple(backward[user] for user in using),
                tuple(forward[user] for user in using),
            )
            for name, (parameter, using) in updated.items()
        ),
    )


# ---
# Backward ops in parts.
#
# Problem: A module that computes much by itself, such as two layers of an LSTM in one call, is one
# op, but some of its gradients are complete, and may be sent, long before the others.
# Method: Its backward op is a chain of parts. A part ends where a gradient is complete and the next
# one, or the end of the op, is far. The last part has the name of the op.
# Guarantee: The parts together take as long as the op. Each gradient is complete when its part is.
# Complexity: O(parameters log parameters) per op. Source: own.

_PARTS = 4
"""Most parts of an op, each of which takes at least this fraction of its time."""

_PART_NS = 1_000_000
"""Least time of a part: a shorter one is not worth a transfer of its own."""


def _reached(parameters: Mapping[str, nn.Parameter], runs: Sequence[Run]) -> list[tuple[int, str]]:
    """Return the time of an op's backward pass until each gradient is complete, in order."""
    return sorted(
        (round(median([run.reached_ns[parameter] for run in runs])), name)
        for name, parameter in parameters.items()
        if all(parameter in run.reached_ns for run in runs)
    )


def _parts(lasts_ns: int, reached: Sequence[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """Yield the end of each part of an op but the last, and the gradients it completes."""
    least = max(lasts_ns / _PARTS, _PART_NS)
    begun, names = 0, list[str]()
    for (end, name), (following, _) in pairwise([*reached, (lasts_ns, "")]):
        names.append(name)
        if end - begun >= least and following - end >= least:
            yield end, names
            begun, names = end, []


# ---
# The optimiser's updates in the dataflow graph.
#
# Problem: A parameter is updated between the arrival of its gradient and its next read. On a
# processor an update costs about as much as several copies of the parameter.
# Method: Time the optimiser on copies of the parameters, with gradients of the same size, after
# each repetition: right after another update it finds them in a cache, and takes half as long. In
# the graph an update op precedes each op that is the first reader of some parameters; it takes
# their share of the step, by bytes, and waits for their transfers in place of the reader.
# Guarantee: The forward ops grow by the time of one optimiser step in total. Every order of ops
# stays possible, with the updates in between.


def _update_of(
    model: nn.Module, optimizer: Callable[[list[Tensor]], Optimizer], clock: Clock
) -> Callable[[], int]:
    """Return a function that times an optimiser step (ns), after a step that creates its state."""
    copies: list[Tensor] = []
    for parameter in model.parameters():
        if parameter.grad is not None:
            copies.append(nn.Parameter(parameter.detach().clone()))
            copies[-1].grad = torch.zeros_like(parameter)
    if not copies:
        return lambda: 0
    made = optimizer(copies)
    made.step()

    def update() -> int:
        start = clock()
        made.step()
        return clock() - start

    return update


def with_updates(graph: Graph, step_ns: int) -> Graph:
    """Return the graph with update ops; `step_ns` is the time of all updates together."""
    size_of: dict[int, int] = {}  # by first reader
    rank = {index: place for place, index in enumerate(graph.topological)}
    firsts = [min(readers, key=rank.__getitem__) for readers in graph.readers]
    for parameter, first in zip(graph.parameters, firsts, strict=True):
        size_of[first] = size_of.get(first, 0) + parameter.size_bytes
    name_of = {
        first: f"{graph.ops[first].name.removesuffix('/forward')}:update/forward"
        for first in size_of
    }
    total, done, ops = sum(size_of.values()), 0, list[Op]()
    for index, op in enumerate(graph.ops):
        if index in size_of:
            before, done = done, done + size_of[index]
            duration_ns = done * step_ns // total - before * step_ns // total
            ops.append(Op(name_of[index], duration_ns, "forward", op.after))
        after = (*op.after, name_of[index]) if index in size_of else op.after
        ops.append(replace(op, after=after))
    parameters = (
        replace(parameter, read_by=(name_of[first], *parameter.read_by))
        for parameter, first in zip(graph.parameters, firsts, strict=True)
    )
    return Graph(tuple(ops), tuple(parameters))
