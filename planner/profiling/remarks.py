"""Repeat a measurement until it is steady; notes and warnings about it, for the provenance.

Problem: Other load comes and goes during a measurement, and disturbs some of the repetitions.
Method: Repeat until the last `count` repetitions vary within the bounds of
`planner.solving.diagnostics`, or the time is up. The consecutive `count` repetitions with the least
variation count. Guarantee: With enough time the result keeps the bounds. Constant load stays
undetected. Complexity: O(n·l log n) per repetition, for n repetitions of l layers.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

import torch
from torch import nn

from planner.model import machine
from planner.profiling.structure import Structure
from planner.profiling.timing import Run
from planner.solving.diagnostics import Circumstances, Spread, disturbances


def interquartile(times: Sequence[int]) -> int | None:
    """Return the interquartile range (ns), or None for a single time."""
    if len(times) == 1:
        return None
    low, _, high = quantiles(times, n=4, method="inclusive")
    return round(high - low)


def spread_of(runs: Sequence[Run]) -> Spread | None:
    """Return the relative spread of runs, or None for a single run."""
    if len(runs) < 2:
        return None
    layers = [
        times
        for each in ([run.forward_ns for run in runs], [run.backward_ns for run in runs])
        for times in zip(*each, strict=True)
    ]
    wholes = [sum(run.whole_ns) for run in runs]
    return Spread(
        (interquartile(wholes) or 0) / max(median(wholes), 1),
        sum(interquartile(times) or 0 for times in layers) / max(sum(map(median, layers)), 1),
    )


def repeated(
    one_more: Callable[[], Run], count: int, go_on: Callable[[], bool]
) -> tuple[int, Spread | None]:
    """Repeat until the times are steady; return the index of the first counted run, and the spread.

    `go_on` tells whether there is time for another run; it is asked only while times are unsteady.
    """
    runs = [one_more() for _ in range(count)]
    first, least = 0, spread_of(runs)
    last = least
    while last is not None and last.excess > 1 and go_on():
        runs.append(one_more())
        last = spread_of(runs[-count:])
        if last is not None and least is not None and last.excess < least.excess:
            first, least = len(runs) - count, last
    return first, least


# ---
# Notes and warnings.


def others_in(loads: Sequence[machine.Load], first: int, end: int) -> float | None:
    """Return how many processors other programs used in rounds first to end, or from earlier on."""
    known = (loads[end].others(loads[since]) for since in range(first, -1, -1))
    return next((others for others in known if others is not None), None)


def _hooked(
    which: int, bare: Sequence[tuple[int, int]], runs: Sequence[Run]
) -> tuple[float, float]:
    """Return the median forward (0) or backward (1) times (ns) with and without hooks."""
    return median(run.whole_ns[which] for run in runs), median(times[which] for times in bare)


def warnings_of(
    model: nn.Module,
    bare: Sequence[tuple[int, int]],
    runs: Sequence[Run],
    spread: Spread | None,
    others: float | None,
    sums: tuple[int, int],
    one_of: Callable[[Sequence[int]], float],
) -> tuple[str, ...]:
    """Return the reasons why the times may be off.

    `bare` and `runs` are the repetitions without and with hooks; `sums` are the summed layer times
    of the forward and backward pass (ns); for `spread` and `others` see `Circumstances`.
    """
    hooked = [
        with_hooks / without if without else None
        for with_hooks, without in (_hooked(which, bare, runs) for which in (0, 1))
    ]
    return disturbances(
        Circumstances(
            threads=1 if _on_device(model) else torch.get_num_threads(),
            processors=machine.processors(),
            others=others,
            spread=spread,
            forward_hooked=hooked[0],
            backward_hooked=hooked[1],
            forward_layers=(sums[0], one_of([times[0] for times in bare])),
            backward_layers=(sums[1], one_of([times[1] for times in bare])),
        )
    )


def notes_of(
    model: nn.Module,
    structure: Structure,
    sums: tuple[int, int],
    bare: Sequence[tuple[int, int]],
    runs: Sequence[Run],
    spread: Spread | None,
    tried: int,
    statistic: str,
) -> list[str]:
    """Return the measurement's notes: cost of the hooks, spread, mode, unused parameters."""
    notes = []
    for which, direction in enumerate(("forward", "backward")):
        hooked, without = _hooked(which, bare, runs)
        notes.append(
            f"hooked {direction} within {abs(hooked - without) / max(without, 1):.1%} of bare "
            f"({hooked / 1e6:.3f} ms, {without / 1e6:.3f} ms); "
            f"the layers' {statistic}s sum to {sums[which] / 1e6:.3f} ms"
        )
    if spread is not None:
        notes.append(
            f"the middle half of the times spreads over {spread.total:.1%} of the median (whole "
            f"iterations), {spread.layers:.1%} (layers)"
        )
    if tried > len(runs):
        notes.append(f"the steadiest {len(runs)} in a row of {tried} repetitions")
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
# The processor and the software versions behind a measurement.


def processor(model: nn.Module, described: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the processor, and of the accelerators that `model` is on."""
    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    accelerators = sorted({torch.cuda.get_device_name(device) for device in devices})
    return "; ".join([machine.processor(described), *accelerators])


def versions() -> dict[str, str]:
    """Return the versions of planner, Python and torch."""
    return machine.versions(torch=str(torch.__version__))
