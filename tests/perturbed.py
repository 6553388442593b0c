"""A problem by hand of every family, and what of scenarios means nothing there."""

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from planner.families import bigdl, bml, caramel, drizzle, fsdp, ibatch, iteration, overlap, yan
from planner.families.yan.layers import NeuronLayer
from planner.jsonio import decode_request
from planner.model.network import Network
from planner.model.topologies import BCube, Failures
from planner.solving.family import Family
from tests.jsonio.requests import BASES


@dataclass(frozen=True)
class Case:
    """A family, and a problem of it."""

    family: Family[Any, Any, Any]
    example: Any
    refused: tuple[str, ...] = ()
    robust: bool = True


def asked(name: str) -> Any:
    """Return the problem of a request that other tests begin with."""
    return decode_request(json.dumps(BASES[name]).encode()).to_problem()


CASES = {
    "ibatch": Case(
        ibatch.IBATCH,
        ibatch.Problem(
            compute_ns=[200, 600, 100, 300],
            startup_ns=150,
            transfer_ns=[300, 100, 500, 200],
            direction="push",
        ),
    ),
    "caramel": Case(caramel.CARAMEL, asked("untargeted")),
    "iteration": Case(iteration.ITERATION, asked("iteration")),
    "fsdp": Case(fsdp.FSDP, asked("fsdp"), ("spread", "part")),
    "overlap": Case(overlap.OVERLAP, asked("overlap"), ("late", "spread", "part")),
    "bml": Case(
        bml.BML,
        bml.Problem(
            BCube(2, 2),
            Network(Fraction(10**9), 100),
            4000,
            failed=Failures(nics=frozenset({(0, 1)})),
        ),
        ("late", "spread", "part"),
    ),
    "yan": Case(
        yan.YAN,
        yan.Problem(
            machines=4,
            cores=2,
            layers=[
                NeuronLayer("conv", "conv", 48, 432, 18, shape=(2, 6, 4), kernel=3, pool=2),
                NeuronLayer("full", "full", 3, 36, 39),
            ],
            constants=yan.Constants(
                muladd_ns=Fraction(1, 2),
                activation_ns=Fraction(2),
                error_ns=Fraction(2),
                latency_ns=[Fraction(10), Fraction(12)],
                nic_bits_per_s=Fraction(10**10),
                interference=[Fraction(1), Fraction("1.1")],
            ),
            samples=100,
            read_every=10,
        ),
        ("late", "spread", "part"),
    ),
    "bigdl": Case(
        bigdl.BIGDL,
        bigdl.Problem(
            elements=1000,
            element_bytes=4,
            nodes=4,
            partitions_per_node=2,
            network=Network(Fraction(10**9), 100, Fraction(1)),
        ),
        ("late", "spread", "part"),
    ),
    "drizzle": Case(
        drizzle.DRIZZLE,
        drizzle.Problem(compute_ns=1000, tasks=4, task_ns=50, max_overhead=Fraction(1, 20)),
        ("bandwidth", "late", "spread", "part"),
        robust=False,
    ),
}
