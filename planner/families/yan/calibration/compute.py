"""Measurement of the constants of computation on this machine.

Problem: measure C_muladd, C_act and C_err (nanoseconds of a multiply-add, an activation, an error
term), and C_interf(H): the time of H processes on H cores, relative to one process alone.

Method: medians over rounds that measure all quantities one after the other; docs/yan.md, "How
constants are measured and fitted".

Guarantee: none beyond the spread in the provenance. The weights stay in the caches here; larger
layers take longer, which only fits (`planner.families.yan.calibration.fit`) show.
Complexity: O(repetitions · cores) windows of `WINDOW_NS`. Source: Yan et al. (KDD'15), slides
"Feedforward - Local computation time" and "Chip-level Multiprocessing".
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from operator import truediv
from pathlib import Path
from statistics import median, quantiles

from planner.families.yan.calibration import worker
from planner.model import machine
from planner.model.errors import InvalidInputError, MeasurementError
from planner.model.profiles import Provenance
from planner.model.validation import integer

WINDOW_NS = 20_000_000
"""Duration of each measurement of a round."""

LEAD_NS = 2_000_000
"""Time between the commands to the processes and the common start of the window."""

MAX_REPETITIONS = 10_000

_ONE_THREAD = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_CONSTANTS = ("muladd", "activation", "error")


@dataclass(frozen=True, slots=True)
class Computation:
    """Measured constants of computation, as `planner.families.yan.problem.Constants` takes them."""

    muladd_ns: Fraction
    activation_ns: Fraction
    error_ns: Fraction
    interference: tuple[Fraction, ...]  # time factor with 1, 2, … busy cores; the first is 1
    provenance: Provenance


def available_processors() -> list[int]:
    """Return the processors that this process may use, those on different cores first."""
    if not hasattr(os, "sched_getaffinity"):
        return list(range(os.cpu_count() or 1))
    allowed = sorted(os.sched_getaffinity(0))
    on_core: dict[str, int] = {}
    ranked = []
    for processor in allowed:
        place = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
        try:
            core = place.read_text(encoding="ascii")
        except OSError:
            core = str(processor)
        on_core[core] = on_core.get(core, -1) + 1
        ranked.append((on_core[core], processor))
    return [processor for _, processor in sorted(ranked)]


def measure_computation(
    cores: int | None = None,
    *,
    repetitions: int = 15,
    source: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Computation:
    """Measure the constants of computation on this machine.

    `cores` is the largest number of busy cores (default: all available), `repetitions` the number
    of rounds, `source` the command for the provenance; `progress` gets the rounds done and their
    number. InvalidInputError if there are fewer cores; MeasurementError if a measuring process
    fails.
    """
    processors = available_processors()
    if cores is None:
        cores = len(processors)
    integer(cores, "cores", minimum=1)
    if cores > len(processors):
        raise InvalidInputError(
            "cores", f"expected at most the {len(processors)} this process may use, got {cores}"
        )
    integer(repetitions, "repetitions", minimum=1, maximum=MAX_REPETITIONS)
    report = progress or (lambda _done, _total: None)
    rounds: dict[str, list[float]] = {kernel: [] for kernel in _CONSTANTS}
    ratios: list[list[float]] = [[] for _ in range(cores)]
    with ExitStack() as started:
        workers = [
            started.enter_context(closing(_Worker(processor))) for processor in processors[:cores]
        ]
        versions: dict[str, str] = [json.loads(process.answer()) for process in workers][-1]
        for kernel in (*_CONSTANTS, "layer"):  # warm-up: fills caches, raises clock rates
            _window(workers, kernel)
        for done in range(repetitions):
            for kernel in _CONSTANTS:
                rounds[kernel] += _window([workers[done % cores]], kernel)
            for place, ratio in enumerate(_interference(workers)):
                ratios[place].append(ratio)
            report(done + 1, repetitions)
    slower = [median(ratios_of_count) for ratios_of_count in ratios]
    notes = _notes(rounds, ratios, slower)
    return Computation(
        muladd_ns=_rounded(median(rounds["muladd"])),
        activation_ns=_rounded(median(rounds["activation"])),
        error_ns=_rounded(median(rounds["error"])),
        interference=(Fraction(1), *(max(Fraction(1), _rounded(factor)) for factor in slower[1:])),
        provenance=Provenance(
            kind="measured",
            source=source,
            date=datetime.now(UTC).date().isoformat(),
            processor=machine.processor(),
            threads=1,
            warmup=1,
            repetitions=repetitions,
            statistic="median",
            versions=machine.versions(**versions),
            notes=notes,
        ),
    )


def _interference(workers: Sequence["_Worker"]) -> list[float]:
    """Return the time factor of a layer in 1, 2, … concurrent processes."""
    alone = [_window([process], "layer")[0] for process in workers]
    slower = [1.0]
    for count in range(2, len(workers) + 1):
        together = _window(workers[:count], "layer")
        slower.append(median(map(truediv, together, alone[:count])))
    return slower


def _window(workers: Sequence["_Worker"], kernel: str) -> list[float]:
    """Return the time of a kernel in each of `workers` while all of them run it."""
    start = time.monotonic_ns() + LEAD_NS
    for process in workers:
        process.tell(f"{kernel} {start} {start + WINDOW_NS}")
    return [float(process.answer()) for process in workers]


class _Worker:
    """A measuring process (see `planner.families.yan.calibration.worker`)."""

    def __init__(self, processor: int) -> None:
        # Run by path, so as not to import this package; -P keeps its folder off the path.
        command = [sys.executable, "-P", str(Path(worker.__file__)), str(processor)]
        self.process = subprocess.Popen(  # arguments are a file of this package and a number
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1")},
            process_group=0,  # a terminal's interrupt reaches the parent only
        )

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self._fail()

    def answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            self._fail()
        return line

    def _fail(self) -> None:
        assert self.process.stderr is not None
        output = self.process.stderr.read().strip().splitlines()
        reason = output[-1] if output else f"exit status {self.process.wait()}"
        raise MeasurementError(f"a process that measures ended: {reason}")

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        with suppress(BrokenPipeError), self.process:
            pass  # closes the pipes; commands do not matter now


def _rounded(value: float) -> Fraction:
    return Fraction(f"{value:.4g}")


def _notes(
    rounds: dict[str, list[float]], ratios: Sequence[list[float]], slower: Sequence[float]
) -> tuple[str, ...]:
    size = f"{worker.SIDE} neurons with {worker.SIDE} inputs"
    notes = [
        f"a dense layer of {size}, single precision, one sample at a time",
        "its weights (1 MiB) stay in the caches; layers that do not fit take longer",
        f"activation 1/(1+exp(-y)) and error a(1-a)s of {worker.NEURONS} neurons at once",
    ]
    for kernel, times in rounds.items():
        notes.append(f"{kernel}_ns: {_spread(times)}")
    for place, times in enumerate(ratios):
        if place:
            notes.append(f"interference[{place}]: {_spread(times)}")
            if slower[place] < 1:
                notes.append(f"interference[{place}]: measured {slower[place]:.4g}, taken as 1")
    notes.append("latency and bandwidth are the network's: not measured here")
    return tuple(notes)


def _spread(times: Sequence[float]) -> str:
    if len(times) < 2:
        return f"measured once: {times[0]:.4g}"
    low, _, high = quantiles(times, n=4, method="inclusive")
    return f"half of the measurements from {low:.4g} to {high:.4g}"
