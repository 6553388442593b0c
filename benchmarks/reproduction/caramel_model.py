"""The model behind Caramel's figures, and the only two numbers that constants are fitted to.

Op times: the shipped profiles, measured on two CPU cores; tensors: those of the paper's networks
(`caramel_networks`). Network: 10 Gb/s and the
shuffle of W workers, 2(W - 1)/W bytes a byte. The paper prints of its network only that depth 8
takes 3 times as long as depth 1 for the smallest transfers and 60 % less for the largest (Fig. 13);
between the depths the two factors are taken as linear, and at depth 8 large transfers reach 10
Gb/s. Baselines run at depth 1.

Two constants are fitted, to the first two bars of Fig. 11 (Inception-v3, 8 workers), and these bars
are scored nowhere. The K80 computes faster than the CPU: one factor on all op times, so that
Horovod has the printed utilisation of 68 %. The start-up of a transfer is not printed: 350 µs at
depth 1, the multiple of 50 µs at which the adaptive all-reduce comes closest to 82 %.

Samples of an iteration: those of each profile, or as many in every network (`samples`), with op
times in proportion. The paper names one number, 256 for VGG-16 in the caption of Fig. 3, which is
32 a worker if there were 8. For other samples, or another start-up, the factor is fitted anew, to
the first bar.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path

from caramel_networks import as_printed

from planner import AffineCost, Profile
from planner.families.caramel import Evaluation, Plan, Problem, Stages, check, evaluate, solve
from planner.families.caramel.baselines import horovod
from planner.jsonio import decode_profile
from planner.model.costs import DepthCost
from planner.model.graphs import Graph
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome

PROFILES = Path(__file__).parents[2] / "data" / "profiles"
NETWORKS = {
    "alexnet_v2": "AlexNet-v2",
    "inception_v3": "Inception-v3",
    "resnet50": "ResNet-50",
    "resnet152": "ResNet-152",
    "vgg16": "VGG-16",
}
FITTED = ("inception_v3", 8, Fraction(68, 100))
"""Network, workers, and Horovod's printed utilisation."""
STARTUP_US = 350
"""Fitted to the second bar of Fig. 11: see above."""
HOROVOD_0_11 = {"cycle_ns": 5 * 10**6, "fusion_bytes": 64 * 2**20}
DEPTHS = range(1, 9)


@dataclass(frozen=True, slots=True)
class Setting:
    """What is priced.

    Attributes
    ----------
    workers : int
        Number of workers W.
    samples : int or None
        Samples of a worker's iteration; None for those of each profile.
    startup_us : int
        Start-up of a transfer at depth 1, in µs.
    """

    workers: int
    samples: int | None = None
    startup_us: int = STARTUP_US


@cache
def profile(name: str) -> Profile:
    """Return a shipped profile."""
    return decode_profile((PROFILES / f"{name}.json").read_bytes())


def network(workers: int, startup_us: int = STARTUP_US) -> DepthCost:
    """Return the cost of a shuffle by depth."""
    wire = Fraction(2 * (workers - 1), workers) * Fraction(8, 10)
    costs = []
    for depth in DEPTHS:
        step = Fraction(depth - 1, DEPTHS[-1] - 1)
        startup = startup_us * 1000 * (1 + 2 * step)
        rate = wire / Fraction(4, 10) * (1 - Fraction(6, 10) * step)
        costs.append((depth, AffineCost(int(startup), rate)))
    return DepthCost(tuple(costs))


def problem_of(name: str, setting: Setting, servers: int | None = None) -> Problem:
    """Return the problem of a network; `servers` counts parameter servers."""
    return problem_with(name, setting, fit(setting.samples, setting.startup_us), servers)


def problem_with(
    name: str, setting: Setting, factor: Fraction, servers: int | None = None
) -> Problem:
    """Return the problem of a network whose op times are multiplied by `factor`."""
    measured = profile(name)
    if setting.samples is not None:
        assert measured.batch_size is not None
        factor *= Fraction(setting.samples, measured.batch_size)
    graph = as_printed(name, measured.dataflow())
    ops = tuple(replace(op, duration_ns=int(op.duration_ns * factor)) for op in graph.ops)
    return Problem(
        Graph(ops, graph.parameters),
        network(setting.workers, setting.startup_us),
        workers=setting.workers,
        servers=servers,
        element_bytes=4,
    )


def evaluated(problem: Problem, plan: Plan | None) -> Evaluation:
    """Return what a plan costs, once it is checked."""
    assert plan is not None
    check(problem, plan)
    return evaluate(problem, plan)


def by_horovod(problem: Problem) -> Evaluation:
    """Return Horovod 0.11 over MPI: a cycle of 5 ms, 64 MiB fused, no chunks, backward pass only.

    Every worker has its own op order.
    """
    made: Outcome[Plan] = horovod(problem, Deadline(None), **HOROVOD_0_11)
    return evaluated(problem, made.plan)


def by_servers(problem: Problem) -> Evaluation:
    """Return parameter servers, as many as the problem says."""
    return evaluated(problem, solve(problem, method="ps").plan)


def by_caramel(problem: Problem) -> Evaluation:
    """Return the paper's method, all stages."""
    return evaluated(problem, solve(problem, method="caramel").plan)


def ladder(problem: Problem) -> Sequence[Evaluation]:
    """Return the paper's method with one stage more at a time: depth, batching, scheduling."""
    steps = (
        Stages(serialization=False, batching=False, scheduling=False),
        Stages(serialization=False, batching=True, scheduling=False),
        Stages(),
    )
    return [by_caramel(replace(problem, stages=stages)) for stages in steps]


@cache
def fit(samples: int | None = None, startup_us: int = STARTUP_US) -> Fraction:
    """Return the factor on op times at which Horovod has the printed utilisation."""
    name, workers, target = FITTED
    setting = Setting(workers, samples, startup_us)
    low, high = Fraction(1, 1000), Fraction(10)
    for _ in range(24):
        middle = (low + high) / 2
        reached = by_horovod(problem_with(name, setting, middle)).utilisation
        low, high = (middle, high) if reached < target else (low, middle)
    return high.limit_denominator(10**6)
