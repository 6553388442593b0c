"""Emulated clusters as plans of whole iterations see them: their layout, and what they cost.

Problem. A cluster file has three numbers: the start-up of a step, the gap before each further
message, and the speed of a NIC. What are they here, with these ranks and programs?

Method. Every algorithm that the cluster allows is timed at some sizes, as it is executed. The cost
model says how often each number counts in each time, so the numbers are those of least squares, of
relative errors, none below 0. Each algorithm gets numbers of its own: where one rank receives from
several at once, a link carries less than in a ring, which one number for all would not tell.

Guarantee. Times that follow the model give its numbers, but for rounding. Complexity: O(times).

Source. The cost model is that of `planner.families.iteration.synchronisation`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from emulated_hosts import Layout, Nic
from scipy.optimize import nnls

from planner.families.collectives.recipes import Recipe, made
from planner.families.iteration.plan import Synchronisation
from planner.families.iteration.synchronisation import recipe_on, synchronisations
from planner.model import clusters
from planner.model.clusters import Cluster
from planner.model.fitting import Sweep
from planner.model.topologies import BCube, Topology
from planner.runtime import Ring, World
from planner.runtime.collectives.interpreter import Interpreter
from planner.runtime.measuring.sweep import measure_network


def bcube_and_switch(n: int, k: int) -> Layout:
    """Return BCube(n, k) with one more NIC on each host, all of them on one switch."""
    shared = f"eth{k}"
    return Layout(
        tuple(
            (*nics, Nic(shared, f"10.{k}.0.{host + 1}", "shared"))
            for host, nics in enumerate(Layout.bcube(n, k).hosts)
        ),
        shared,
    )


def ring_bytes(hosts: int, rate: int, seconds: float) -> float:
    """Return how many bytes a ring all-reduces in a time, over links of so many bits a second."""
    return seconds * rate / 8 / (2 * (hosts - 1) / hosts)


def unmeasured(topology: Topology, hosts: int, rate: int) -> Cluster:
    """Return a cluster by what its links are said to carry; its start-ups are made up."""
    nics = topology.k if isinstance(topology, BCube) else 1
    nic = clusters.Nic(Fraction(rate, 8), 1, nics)
    return Cluster("emulated", "benchmarks", hosts, topology, nic)


@dataclass(frozen=True, slots=True)
class Fit:
    """A cluster with its numbers as measured.

    Attributes
    ----------
    cluster : Cluster
        The cluster.
    errors : mapping from str to float
        For each algorithm, by how much the model misses its times, in the median, as a share.
    """

    cluster: Cluster
    errors: Mapping[str, float]


def calibrated(
    world: World,
    cluster: Cluster,
    sizes: Sequence[int],
    repetitions: int,
    algorithms: Sequence[str],
) -> dict[str, Fit]:
    """Time the algorithms that a cluster allows; every rank has to call it.

    The answer has the cluster as each of them sees it, once for those that are one program.

    Parameters
    ----------
    world : World
        The job.
    cluster : Cluster
        What it runs on; its NICs' numbers do not count.
    sizes, repetitions
        See `planner.runtime.measuring.sweep.measure_network`.
    algorithms : sequence of str
        Those to try, of `planner.iteration.ALGORITHMS`.
    """
    sweeps: dict[Recipe, Sweep] = {}
    fits = {}
    for option in synchronisations(cluster, algorithms)[0]:
        recipe = recipe_on(cluster, option.algorithm)
        if recipe in sweeps:
            continue
        if recipe.generator == "ring":  # what executors run then
            sweeps[recipe] = measure_network(world, Ring(world.group), sizes, repetitions, warmup=1)
        else:
            interpreter = Interpreter(world, made(recipe))
            sweeps[recipe] = measure_network(world, interpreter, sizes, repetitions, warmup=1)
            interpreter.close()
        times = [(timing.size_bytes, timing.median_ns) for timing in sweeps[recipe].at(1)]
        fits[option.algorithm] = fitted(cluster, {option.algorithm: times})
    return fits


def fitted(cluster: Cluster, times: Mapping[str, Sequence[tuple[int, int]]]) -> Fit:
    """Return the cluster whose all-reduces take these times, as nearly as can be.

    Parameters
    ----------
    cluster : Cluster
        Its machines and topology.
    times : mapping from str to sequence of (int, int)
        Bytes and ns of some all-reduces, by algorithm.
    """
    counts = {name: _counts(cluster, name) for name in times}
    rows = np.array(
        [
            np.array([steps, further, volume * size]) / time
            for name, (steps, further, volume) in counts.items()
            for size, time in times[name]
        ]
    )
    scale = np.where(rows.max(axis=0) > 0, rows.max(axis=0), 1.0)
    solution, _ = nnls(rows / scale, np.ones(len(rows)))
    startup, message, rate = solution / scale
    nic = replace(
        cluster.nic,
        startup_ns=round(startup),
        message_ns=round(message),
        bytes_per_s=Fraction(round(1e9 / rate)),
    )
    measured = replace(cluster, nic=nic)
    options, _ = synchronisations(measured, tuple(times))
    costs = {option.algorithm: option.all_reduce for option in options}
    errors = {
        name: float(np.median([abs(costs[name].cost_ns(size) / time - 1) for size, time in points]))
        for name, points in times.items()
    }
    return Fit(measured, errors)


def _counts(cluster: Cluster, name: str) -> tuple[float, float, float]:
    """Return how often a step, a further message and a byte of a NIC count in an all-reduce."""

    def priced(startup: int, message: int) -> Synchronisation:
        nic = replace(
            cluster.nic, startup_ns=startup, message_ns=message, bytes_per_s=Fraction(10**9)
        )
        return synchronisations(replace(cluster, nic=nic), (name,))[0][0]

    return (
        priced(1, 0).all_reduce.startup_ns,
        priced(0, 1).all_reduce.startup_ns,
        float(priced(0, 0).all_reduce.ns_per_byte),
    )
