"""Many requests on all cores: one model on a network of several speeds.

python examples/many_requests.py
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import planner
from planner.model.units import format_ns


def request(bytes_per_s: float) -> dict[str, Any]:
    """Return the request for the batches of a small model at a bandwidth."""
    layer_bytes = [38_000_000, 7_000_000, 151_000_000, 411_000_000]
    return {
        "problem": "ibatch",
        "direction": "push",
        "startup_ns": 500_000,
        "transfer_ns": [round(1e9 * size / bytes_per_s) for size in layer_bytes],
        "compute_ns": [90_000_000, 120_000_000, 40_000_000, 20_000_000],
    }


def main() -> None:
    """Print the time of the backward pass at each bandwidth."""
    rates = [1.25e8 * 2**power for power in range(8)]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        answers = planner.solve_many(map(request, rates), pool)
        for rate, answer in zip(rates, answers, strict=True):
            makespan = format_ns(answer["makespan_ns"])
            print(f"{8 * rate / 1e9:g} Gb/s: {makespan}, {len(answer['batches'])} batches")


if __name__ == "__main__":
    main()
