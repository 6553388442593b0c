"""Training steps whose freed memory goes back to the system, against steps that keep it.

    python benchmarks/page_faults.py [--quick] [--models NAME …]

glibc gives memory back where much is free at the end of its heap, and large tensors have pages of
their own; both is paid for with page faults when the next tensor takes memory. Each model of
`real_models` trains in processes of its own, on one core, with and without the variables that keep
memory, in turn. Printed are the median page faults and times of a step in the processes with the
fewest and with the most, and medians of the rounds' ratios: of step times, and of the most memory
that a process had.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from statistics import median
from typing import NamedTuple

import torch
from real_models import MODELS
from tables import head, row
from torch.optim import SGD

from planner.model.machine import page_faults
from planner.profiling.samples import loss_of
from planner.solving.diagnostics import KEEP_MEMORY

WARMUP = 3
KEPT = dict(each.split("=") for each in KEEP_MEMORY.split())


class Trained(NamedTuple):
    """What one process measured."""

    faults: float  # of a step
    step_ns: float
    peak: int  # memory


def trained(name: str, steps: int) -> Trained:
    """Train a model in this process."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    model, inputs = MODELS[name]()
    optimizer = SGD(model.parameters(), lr=1e-3)
    times, faults = [], []
    for _ in range(WARMUP + steps):
        known, start = page_faults(), time.perf_counter_ns()
        optimizer.zero_grad()
        loss_of(model(*inputs)).backward()
        optimizer.step()
        times.append(time.perf_counter_ns() - start)
        faults.append(page_faults() - known)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Trained(median(faults[WARMUP:]), median(times[WARMUP:]), peak)


def elsewhere(name: str, steps: int, *, kept: bool) -> Trained:
    """Train a model in a process of its own."""
    command = [sys.executable, __file__, "--one", name, "--steps", str(steps)]
    environment = {**os.environ, **(KEPT if kept else {})}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return Trained(*json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one model, few steps")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--one", choices=list(MODELS), help="train it in this process")
    parser.add_argument("--steps", type=int, default=12, help="of a process; default: 12")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(trained(options.one, options.steps)))
        return
    names = ["deep"] if options.quick else options.models
    rounds, steps = (1, 3) if options.quick else (4, options.steps)
    print(f"{rounds} processes each, {steps} steps\n")
    head(("model", "faults", "faults, kept", "step", "step, kept", "step / kept", "memory, kept"))
    for name in names:
        pairs = [
            (elsewhere(name, steps, kept=False), elsewhere(name, steps, kept=True))
            for _ in range(rounds)
        ]
        sides = tuple(zip(*pairs, strict=True))
        row(
            (
                name,
                *(shown([each.faults for each in side], ",.0f") for side in sides),
                *(shown([each.step_ns / 1e6 for each in side], ".0f", " ms") for side in sides),
                f"{median(a.step_ns / b.step_ns for a, b in pairs):.2f}×",
                f"{median(b.peak / a.peak for a, b in pairs):.2f}×",
            )
        )


def shown(values: list[float], form: str, unit: str = "") -> str:
    """Return the least and the largest of some numbers."""
    return " – ".join(f"{each:{form}}{unit}" for each in (min(values), max(values)))


if __name__ == "__main__":
    main()
