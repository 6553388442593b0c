"""Heterogeneous machines: which machine is a server, and which works where.

Problem: as `planner.families.yan.exact`, but machines differ, and the slowest machine decides.
Method: the fastest machines are workers, dealt to replicas round-robin; layers come from the exact
method for equal machines. See docs/yan.md, "Machines that differ".

Guarantee: none for the plan; a lower bound for every triple under any mapping and any choice of
machines. Triples with a bound above the best plan are not examined.
Complexity: O(N ln N) bounds a number of servers, and up to four dynamic programs for each examined
triple. Source: own; Yan et al. (KDD'15) assume equal machines.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from planner.families.yan.configuration import (
    Configuration,
    Explored,
    Fixed,
    LayerChoice,
    Plan,
    Ranked,
    Triple,
)
from planner.families.yan.exact import price_fixed, quick
from planner.families.yan.memory import infeasibility
from planner.families.yan.model import estimate
from planner.families.yan.problem import Problem
from planner.families.yan.search import Engine, configuration_of, rank, search
from planner.families.yan.segments import segments_of
from planner.families.yan.tables import Array
from planner.solving.deadline import NEVER, Deadline, TimeUpError
from planner.solving.methods import Outcome
from planner.solving.result import Infeasibility


class OrderedMachines:
    """Machines in order of speed, and engines for equal machines.

    After the deadline plans are made quickly.
    """

    def __init__(self, problem: Problem, deadline: Deadline = NEVER) -> None:
        self.problem = problem
        self.deadline = deadline
        speeds = problem.machine_speeds or (Fraction(1),) * problem.machines
        self.order = sorted(range(problem.machines), key=lambda machine: -speeds[machine])
        self.speeds = [speeds[machine] for machine in self.order]
        """Fastest first."""
        self.paces = 1 / np.array(self.speeds, dtype=float)
        """Time of a unit of work on each machine, fastest first."""
        self._engines: dict[Fraction, Engine] = {}

    def engine(self, speed: Fraction) -> Engine:
        """Return the engine for machines that all have one speed."""
        if speed not in self._engines:
            speeds = (speed,) * self.problem.machines
            alike = replace(self.problem, machine_speeds=speeds, fixed=())
            self._engines[speed] = Engine(alike, deadline=self.deadline)
        return self._engines[speed]

    @property
    def fastest(self) -> Engine:
        """The engine for machines that are all as fast as the fastest."""
        return self.engine(self.speeds[0])

    @cached_property
    def least(self) -> list[tuple[Array, Array]]:
        """For each layer the computation of its smallest partition, and the mean time to receive.

        By choice, phase (three) and threads, over an epoch of one replica.
        """
        engine = self.engine(Fraction(1))
        tables, bounds = engine.tables, []
        for place, options in enumerate(engine.layerwise.options):
            layer, rates = self.problem.layers[place], self.problem.rates[place]
            computing, receiving = [], []
            for p, r in options.choices:
                forward, backward, _ = tables.work(place, p)
                rows = layer.units // p * layer.pool
                update = float(rates.update) * layer.share(layer.connections, rows)
                # The minimum over partitions: any of them may be on the slowest machine.
                work = np.array([forward.min(), backward.min(), update])
                computing.append(np.outer(work, tables.slower * tables.share / r))
                # P segments together hold the other layer at most once. If each needs all of it,
                # they receive 1 - 1/P of it on average, and all but one of them pay a start-up.
                fetch = [
                    (p - 1) / p * bool(unit) * (tables.latency + unit * tables.receive)
                    for unit in (*tables.needed(place), 0)
                ]
                receiving.append(np.array(fetch) * tables.share / r)
            bounds.append((np.array(computing), np.array(receiving)))
        return bounds

    def bound(self, triple: Triple) -> float:
        """Return a bound on a triple, except for rounding."""
        layerwise = self.fastest.layerwise
        mean = np.cumsum(self.paces) / np.arange(1, len(self.paces) + 1)  # of the first i machines
        turns = np.arange(1, triple.replicas + 1)
        total = 0.0
        for options, reading, (computing, receiving) in zip(
            layerwise.options, layerwise.readings(triple), self.least, strict=True
        ):
            count = len(reading)
            segments = options.segments[:count].astype(int)
            # With s segments in each of R replicas, the slowest of replica i is at best on machine
            # i·s, fastest first; on average they are at best on the s·R fastest machines.
            pace = self.paces[np.outer(segments, turns) - 1].mean(axis=1)
            slowest = computing[:count] * pace[:, None, None]
            all_of_them = mean[segments * triple.replicas - 1][:, None, None]
            average = computing[:count] * all_of_them + receiving[:count]
            phases = np.maximum(slowest, average).sum(axis=1)
            total += float((phases / triple.replicas + reading).min())
        try:
            return max(total, layerwise.coarse(triple)[1])
        except TimeUpError:
            return total

    def plans(self, triple: Triple) -> Iterator[Configuration]:
        """Yield configurations of a triple."""
        working = self.speeds[: triple.workers * triple.replicas]
        average = sum(working, Fraction(0)) / len(working)
        for speed in dict.fromkeys((working[-1], average)):
            engine = self.engine(speed)
            if engine.solve(triple) is not None:
                yield self.dealt(configuration_of(triple, engine.exactly(triple).states))

    def dealt(self, configuration: Configuration) -> Configuration:
        """Return a configuration with its machines."""
        places = sorted(
            range(configuration.workers_per_replica),
            key=self._loads(configuration.layers).__getitem__,
            reverse=True,
        )
        count = configuration.replicas
        machines = [0] * (count * len(places))
        for turn, place in enumerate(places):
            for replica in range(count):
                machines[replica * len(places) + place] = self.order[turn * count + replica]
        servers = self.order[len(machines) : configuration.machines_used]
        return replace(configuration, machines=(*servers, *machines))

    def _loads(self, layers: tuple[LayerChoice, ...]) -> dict[int, Fraction]:
        """Return the computation of each worker of a replica for a sample."""
        problem, constants = self.problem, self.problem.constants
        loads: dict[int, Fraction] = {}
        for place, choice in enumerate(layers):
            slower = constants.interference[choice.threads - 1] / (choice.threads * choice.copies)
            for segment in segments_of(problem, place, choice, None, None):
                rates = problem.rates[place]
                work = (rates.forward + rates.update) * segment.connections
                work += rates.backward * segment.outgoing
                work += (rates.activation + rates.error) * segment.neurons
                loads[segment.worker] = loads.get(segment.worker, Fraction(0)) + slower * work
        return {worker: loads.get(worker, Fraction(0)) for worker in range(problem.machines)}


def ordered(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Plan for machines that differ."""
    try:
        return _ordered(problem, deadline)
    except TimeUpError:
        return quick(problem, dealt=OrderedMachines(problem).dealt)


def _ordered(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    nothing = infeasibility(problem)
    if nothing is not None:
        return Outcome(None, infeasibility=nothing)
    cluster = OrderedMachines(problem, deadline)
    if problem.fixed:
        return _fixed(problem, cluster)
    engine = cluster.fastest
    best: dict[Triple, Ranked] = {}

    def solve(triple: Triple) -> float | None:
        plans = [Ranked(plan, estimate(problem, plan).epoch) for plan in cluster.plans(triple)]
        if not plans:
            return None
        best[triple] = min(plans, key=lambda plan: plan.epoch)
        return float(best[triple].epoch)

    result = search(
        engine.layerwise,
        engine.space,
        solve,
        problem.top,
        deadline,
        stronger=[cluster.bound],
        monotone=False,  # plans are not optimal, and fewer servers may give a better plan
    )
    if not best:
        reason = f"memory: no configuration that was tried fits {problem.memory_bytes} bytes"
        return Outcome(None, infeasibility=Infeasibility(reason, ("memory_bytes",)))
    ranking = sorted(best.values(), key=rank)[: problem.top]
    proven = engine.below(min(result.least, result.bound))
    explored = Explored(result.triples, result.cut)
    plan = Plan(ranking[0].configuration, tuple(ranking), explored, -int(-proven // 1))
    return Outcome(plan, min(proven, ranking[0].epoch), result.timed_out)


def _fixed(problem: Problem, cluster: OrderedMachines) -> Outcome[Plan]:
    def made(triple: Triple, fixed: Fixed) -> tuple[list[Configuration], Fraction]:
        bound = cluster.fastest.below(cluster.bound(triple))
        if fixed.layers is None:
            return list(cluster.plans(triple)), bound
        return [cluster.dealt(fixed.configuration())], bound

    return price_fixed(problem, made, "machine")
