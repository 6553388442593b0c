"""Assign an algorithm and a depth to each transfer of a plan.

Problem: the algorithms and depths that a plan may use cost differently by the size of a transfer.
Method: the cheapest option for each transfer. Transfers share one channel in a fixed order, so a
shorter transfer delays nothing.
Guarantee: no other choice for the same transfers makes a shorter iteration.
Complexity: O(transfers · options).
Source: own.
"""

from dataclasses import replace
from functools import cache, partial

from planner.iteration.plan import Plan
from planner.iteration.ways import Way, fastest

__all__ = ["settled"]


def settled(plan: Plan, way: Way) -> Plan:
    """Return the plan with the cheapest algorithm and depth for each transfer.

    The plan's own algorithm is the one that carries most bytes.
    """
    option_of = cache(partial(fastest, way))  # many transfers have the same size
    options = [option_of(transfer.kind, transfer.size_bytes) for transfer in plan.transfers]
    carried: dict[str, int] = {}
    for option, transfer in zip(options, plan.transfers, strict=True):
        carried[option.algorithm] = carried.get(option.algorithm, 0) + transfer.size_bytes
    main = max(carried, key=lambda name: carried[name])
    transfers = tuple(
        replace(
            transfer,
            algorithm=None if option.algorithm == main else option.algorithm,
            depth=option.depth,
        )
        for option, transfer in zip(options, plan.transfers, strict=True)
    )
    return replace(plan, algorithm=main, transfers=transfers)
