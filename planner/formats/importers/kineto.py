"""Reads traces of PyTorch's profiler (Kineto, Chrome's trace format) as profiles.

Each step gives ops with times and the order of complete gradients
(`planner.formats.importers.kineto_steps`). Steps are the ranges ``ProfilerStep#N``, else they end
with ``Optimizer.step#…``, else the trace is one step. Steps with the same ops are merged, each op's
time being the median; the commonest kind of step is used. Op times are computation only, and sum to
at most the step. A trace has no dataflow, so the ops form a chain in their recorded order. A layer
is a forward op with its backward ops; a parameter is named after the op that reads it first and its
shape.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from statistics import median

from planner.formats.importers.kineto_steps import TrainingStep, busy_ns, step_ns, steps_of
from planner.formats.importers.kineto_trace import Trace, clock_remarks, read_trace
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.layers import Layer, unique_names
from planner.model.profiles import Profile, Provenance
from planner.model.validation import shown

_COMMUNICATION = ("c10d::", "nccl:", "gloo:", "mpi:", "ucc:")
_NOTABLE = 0.8  # if ops fill less than this share of a step, a warning names the rest


def read_kineto(
    data: bytes,
    *,
    name: str,
    source: str,
    batch_size: int | None = None,
) -> tuple[Profile, tuple[str, ...]]:
    """Return the profile in a trace of PyTorch's profiler, and warnings about its times.

    Parameters
    ----------
    data : bytes
        Contents of the file, ``.json`` or ``.json.gz``.
    name : str
        Name of the model.
    source : str
        Origin of the file; kept in the profile with the hash of `data`.
    batch_size : int, optional
        Samples of one iteration; the file does not say.

    Raises
    ------
    InvalidInputError
        If it is no such trace, or lacks what is needed; the path is the event or the step.
    """
    return profile_in(read_trace(data), name=name, source=source, batch_size=batch_size)


def profile_in(
    trace: Trace,
    *,
    name: str,
    source: str,
    batch_size: int | None = None,
    completed: bool = False,
) -> tuple[Profile, tuple[str, ...]]:
    """Return the profile in a trace and warnings, as `read_kineto` does.

    With `completed`, parameters of one op are listed by when their gradients were complete, the
    last first, as the order of readiness supposes; by default the first first.
    """
    try:
        steps = steps_of(trace)
    except InvalidInputError as error:
        raise InvalidInputError(
            error.path, "; ".join([error.message, *_missing(trace), *clock_remarks(trace)])
        ) from None
    kinds = [(step.forward, step.backward, step.gradients, step.device) for step in steps]
    kind = Counter(kinds).most_common(1)[0][0]
    places = [place for place, step_kind in enumerate(kinds) if step_kind == kind]
    used = [steps[place] for place in places]
    first = used[0]
    if not first.gradients:
        raise InvalidInputError(first.name, "expected at least one gradient with elements")
    lasts_ns = step_ns(used, places)
    rows = zip(*(step.ops_ns for step in used), strict=True)
    times, shortened = _within([round(median(row)) for row in rows], lasts_ns)
    ahead = len(first.forward)
    layers, graph = _model(first, times[:ahead], times[ahead:], -1 if completed else 1)
    warnings = [
        *_missing(trace),
        *clock_remarks(trace),
        *shortened,
        *_doubts(trace, steps, used, sum(times), lasts_ns),
    ]
    return Profile(
        name=name,
        layers=layers,
        provenance=Provenance(
            kind="imported",
            source=f"PyTorch profiler trace {source}",
            processor=trace.processor if first.device else "",
            repetitions=len(used),
            statistic="median",
            notes=(
                f"sha256 of the file: {trace.sha256}",
                "times of the device: how long kernels run, collectives and waiting aside"
                if first.device
                else "times of the CPU, from operator to operator",
                "ops follow each other in the order of execution; a trace has no dataflow",
                "parameters are called after the op that reads them first; outputs have no sizes",
                *warnings,
            ),
        ),
        batch_size=batch_size,
        graph=graph,
    ), tuple(warnings)


def number_bytes(trace: Trace) -> int:
    """Return the bytes of one number of a trace's gradients; of several types, of the smallest."""
    gradients = (each for step in steps_of(trace)[:1] for each in step.gradients)
    return min((each.size_bytes // max(prod(each.shape), 1) for each in gradients), default=1)


def _model(
    step: TrainingStep,
    forward_ns: Sequence[int],
    backward_ns: Sequence[int],
    sign: int,
) -> tuple[tuple[Layer, ...], Graph]:
    names = unique_names(step.forward)
    backward = unique_names(
        node.name if node.made_by is None else f"{names[node.made_by]}/{node.name}"
        for node in step.backward
    )
    # A forward op may have the name of a backward op.
    op_names = unique_names([*(f"{name}/forward" for name in names), *backward])
    ops = tuple(
        Op(
            name,
            duration,
            "forward" if place < len(names) else "backward",
            (op_names[place - 1],) if place else (),
        )
        for place, (name, duration) in enumerate(
            zip(op_names, [*forward_ns, *backward_ns], strict=True)
        )
    )
    # If the reading op is unknown, the first op is assumed to read the parameter: on the safe side.
    rows = sorted(
        (step.backward[gradient.node].made_by or 0, -gradient.node, sign * order, gradient)
        for order, gradient in enumerate(step.gradients)
    )
    parameter_names = unique_names(
        f"{names[reader]} {'x'.join(map(str, gradient.shape)) or 'scalar'}"
        for reader, _, _, gradient in rows
    )
    owned: list[list[Parameter]] = [[] for _ in names]
    for name, (reader, _, _, gradient) in zip(parameter_names, rows, strict=True):
        updated, read = op_names[len(names) + gradient.node], op_names[reader]
        owned[reader].append(Parameter(name, gradient.size_bytes, (updated,), (read,)))
    layer_backward = [0] * len(names)
    place = len(names) - 1
    for node, duration in zip(step.backward, backward_ns, strict=True):
        place = place if node.made_by is None else node.made_by
        layer_backward[place] += duration
    layers = tuple(
        Layer(
            name=name,
            forward_ns=forward,
            backward_ns=backward,
            parameter_bytes=sum(parameter.size_bytes for parameter in own),
            parameters=tuple(parameter.name for parameter in own),
        )
        for name, forward, backward, own in zip(
            names, forward_ns, layer_backward, owned, strict=True
        )
    )
    return layers, Graph(ops, tuple(parameter for own in owned for parameter in own))


def _within(times: list[int], lasts_ns: int) -> tuple[list[int], list[str]]:
    """Return times whose sum is at most the step's, and a warning if they were shortened.

    Medians of single ops may sum to more than any step took.
    """
    whole = sum(times)
    if whole <= lasts_ns:
        return times, []
    what = (
        f"the medians of the ops add up to {_ms(whole)}, {_ms(whole - lasts_ns)} more than "
        f"a step lasts: all are shortened in proportion, to {_ms(lasts_ns)}"
    )
    return [time * lasts_ns // whole for time in times], [what]


def _missing(trace: Trace) -> list[str]:
    """Return a warning with the number of recorded events that are not in the file."""
    what = (
        f"down-sampled or cut: the file holds {trace.held:,} of {trace.numbered:,} events of the "
        "host that the profiler numbered, and nothing stands in for the others"
    )
    return [] if trace.held == trace.numbered else [what]


def _ms(time_ns: int) -> str:
    return f"{time_ns / 1e6:g} ms"


def _doubts(
    trace: Trace,
    steps: Sequence[TrainingStep],
    used: Sequence[TrainingStep],
    busy: int,
    lasts_ns: int,
) -> Iterator[str]:
    """Yield warnings about possible errors in the numbers; ops are busy for `busy` of a step."""
    first = used[0]
    if first.device and busy < _NOTABLE * lasts_ns:
        collectives = round(median(step.collectives_ns for step in used))
        moved = f", collectives for {_ms(collectives)}" if collectives else ""
        yield (
            f"kernels of the ops run for {_ms(busy)} of a step of {_ms(lasts_ns)}{moved}: the rest "
            "is the optimiser's, or waiting for the host, data or other workers, and is left out"
        )
    if len(used) < len(steps):
        yield (
            f"{len(used)} of {len(steps)} steps have the same ops and gradients and are used; the "
            "others differ"
        )
    if len(used) == 1:
        yield "times are those of a single step; record several, after a warm-up"
    if any(event.name.startswith(_COMMUNICATION) for event in trace.operators):
        waits = "its waiting may count as computation"
        if first.device:
            waits = "what waits for it starts later, which the profile does not show"
        yield f"has communication: {waits}: record one worker"
    for category, others in trace.unknown.items():
        yield (
            f"{len(others):,} events of category {shown(category)}, which run for "
            f"{_ms(busy_ns(others))}, are left out: if they are those of an accelerator, "
            "these are not its times"
        )
    if trace.runtime and not trace.device:
        yield (
            f"calls of a device's runtime ({', '.join(sorted(trace.runtime))}) but no kernels: "
            "times are those of the CPU, which only starts them"
        )
    lost = sum(first.backward[gradient.node].made_by is None for gradient in first.gradients)
    if lost:
        yield (
            f"{lost} of {len(first.gradients)} parameters: no forward op made the node behind the "
            "gradient; taken to be read by the first op"
        )
    if first.skipped_ns:
        yield (
            f"{_ms(first.skipped_ns)} of operators before the first one that autograd "
            "numbers are left out (inputs, or parts without gradients)"
        )
