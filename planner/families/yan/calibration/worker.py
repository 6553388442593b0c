"""A measuring process; `planner.families.yan.calibration.compute` starts several.

Run as a script with the number of the processor to pin to. It first writes a JSON line with library
versions. For each input line ``KERNEL START STOP`` it calls the kernel from START to STOP
(system-wide monotonic clock, ns), so that several processes run at the same time however late each
got its line, and writes the median time of an operation. It ends with its input, also if its parent
was killed.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

SIDE = 512
"""Neurons of the dense layer, and inputs of each.

Its weights (1 MiB in single precision) fit into any processor's caches: a larger matrix would
measure memory bandwidth, a much smaller one the overhead of calling numpy.
"""

NEURONS = 16384
"""Neurons whose activation and error functions are computed at once, for the same reasons."""


def kernels() -> dict[str, tuple[Callable[[], object], int]]:
    """Return each kernel: a function, and the number of operations of a call."""
    import numpy as np

    random = np.random.default_rng(0)

    def numbers(*shape: int) -> Any:
        return random.standard_normal(shape, dtype=np.float32)

    weights, inputs, sums = numbers(SIDE, SIDE), numbers(SIDE), numbers(SIDE)
    many, outputs, terms = numbers(NEURONS), numbers(NEURONS), numbers(NEURONS)
    weights /= SIDE**0.5

    # In place, so that no time is spent on allocation.
    def activate(sums: Any, outputs: Any) -> None:
        np.negative(sums, out=outputs)
        np.exp(outputs, out=outputs)
        np.add(outputs, 1, out=outputs)
        np.reciprocal(outputs, out=outputs)

    def error(outputs: Any, sums: Any, terms: Any) -> None:
        np.subtract(1, outputs, out=terms)
        np.multiply(terms, outputs, out=terms)
        np.multiply(terms, sums, out=terms)

    activate(many, outputs)
    few, products = numbers(SIDE), numbers(SIDE)

    def layer() -> None:
        np.dot(weights, inputs, out=sums)
        activate(sums, few)
        error(few, sums, products)

    return {
        "muladd": (lambda: np.dot(weights, inputs, out=sums), SIDE * SIDE),
        "activation": (lambda: activate(many, outputs), NEURONS),
        "error": (lambda: error(outputs, many, terms), NEURONS),
        "layer": (layer, 1),
    }


def timed(call: Callable[[], object], start: int, stop: int) -> float:
    """Return the median time of a call (ns) between `start` and `stop`."""
    clock = time.monotonic_ns
    while clock() < start:
        pass
    times: list[int] = []
    before = clock()
    while before < stop or not times:
        call()
        after = clock()
        times.append(after - before)
        before = after
    return median(times)


def main() -> None:
    """Answer commands until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(sys.argv[1])})
    import numpy as np

    known = kernels()
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    library = f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
    versions = {"numpy": np.__version__, "blas": library}
    print(json.dumps(versions), flush=True)
    for line in sys.stdin:
        kernel, start, stop = line.split()
        call, operations = known[kernel]
        print(timed(call, int(start), int(stop)) / operations, flush=True)


if __name__ == "__main__":
    main()
