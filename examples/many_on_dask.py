"""The same requests on Dask: here on a cluster of this machine, with an address on yours.

python examples/many_on_dask.py [tcp://scheduler:8786]
"""

import sys
from typing import Any

from distributed import Client
from many_requests import request

import planner
from planner.model.units import format_ns


def main() -> None:
    """Print the time of the backward pass at each bandwidth."""
    rates = [1.25e8 * 2**power for power in range(8)]
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    make: Any = Client  # whose types say nothing
    with make(*sys.argv[1:], **({} if sys.argv[1:] else options)) as client:
        answers = planner.solve_many(map(request, rates), client.get_executor())
        for rate, answer in zip(rates, answers, strict=True):
            print(f"{8 * rate / 1e9:g} Gb/s: {format_ns(answer['makespan_ns'])}")


if __name__ == "__main__":
    main()
