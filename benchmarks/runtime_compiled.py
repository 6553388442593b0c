"""Executes plans inside compiled graphs: the planned order against autograd's, same transfers.

    python benchmarks/runtime_compiled.py [--quick] [--models NAME …] [--rates MBIT …]

Two hosts, each on a processor core of its own, over links of some speeds (token buckets); models
with branches, which compute. Each host times every operation of its compiled graph, the network,
and what transfers and passes take from each other; rank 0 plans. Then four variants take turns,
each a compiled model but the last: the plan; its transfers in the order in which autograd computes;
the plan that is best for that order; torch's DistributedDataParallel at its default.

What compiling and following a plan costs is said below: seconds to the end of the first step, and a
step without transfers, against the same graphs as torch's `aot_eager` runs them.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from statistics import median, quantiles
from typing import Any

import torch
from emulated_cluster import Layout, reason_unavailable
from real_models import branching
from runtime_jobs import Trained, on_hosts, table_of, updates_of
from runtime_real import pinned
from tables import head, row
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from planner import Profile, TableCost, caramel
from planner.interference import ALONE, Interference
from planner.jsonio import decode_profile, encode_profile
from planner.profiling import measure_compiled
from planner.profiling.tensors import loss_of
from planner.runtime import World, join
from planner.runtime.compiled import PlannedBackend
from planner.runtime.measuring.beside import measure_interference, passes_of
from planner.runtime.measuring.sweep import measure_network
from planner.sweeps import sweep_sizes

HOSTS = 2
RATES = (50, 100, 200)
BESIDE = (4096, 2**17, 2**22)
PLANNED = "planned order"
SAME = "autograd's order, same transfers"
OWN = "autograd's order, its best transfers"
DDP = "DDP"


class Towers(nn.Module):
    """A cheap tower with most of the weights beside a deep one of convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Sequential(
            nn.AdaptiveAvgPool2d(8),
            nn.Flatten(),
            nn.Linear(192, 4096),
            nn.ReLU(),
            nn.Linear(4096, 256),
        )
        deep: list[nn.Module] = [nn.Conv2d(3, 48, 3, padding=1)]
        for _ in range(6):
            deep += [nn.ReLU(), nn.Conv2d(48, 48, 5, padding=2)]
        self.deep = nn.Sequential(*deep, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 256))
        self.last = nn.Linear(256, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Add both towers."""
        likely: Tensor = self.last(torch.relu(self.wide(images) + self.deep(images)))
        return likely


def towers() -> Trained:
    """Return a wide and a deep tower (10 MB) on 8 images of 32 × 32."""
    torch.manual_seed(0)
    return Towers(), (torch.randn(8, 3, 32, 32),)


MODELS: Mapping[str, Callable[[], Trained]] = {"branching": branching, "towers": towers}


Plans = dict[str, tuple[caramel.Problem, caramel.Plan]]


def plans_for(profile: Profile, rows: list[list[int]], interference: Interference) -> Plans:
    """Return the plans of all variants that have one."""
    cost = TableCost(tuple((size, ns) for size, ns in rows))
    options: dict[str, Any] = {"workers": HOSTS, "interference": interference}
    problem = caramel.Problem.from_profile(profile, cost, **options)
    own = replace(problem, op_order=[op.name for op in problem.graph.ops])
    best = caramel.solve(problem).plan
    mine = caramel.solve(own).plan
    assert best is not None
    assert mine is not None
    same = replace(best, backward_orders=(own.order.backward,), forward_order=own.order.forward)
    return {PLANNED: (problem, best), SAME: (own, same), OWN: (own, mine)}


class Compiled:
    """Steps of a compiled model under a plan."""

    def __init__(self, world: World, trained: Trained, plan: Any, *, keep_order: bool) -> None:
        model, self._inputs = trained
        optimizer = updates_of(model.parameters())
        self.backend = PlannedBackend(model, plan, optimizer, world, keep_order=keep_order)
        self._model: Any = torch.compile(model, backend=self.backend, dynamic=False)
        self.step, self.finish, self.close = (
            self.backend.step,
            self.backend.finish,
            self.backend.close,
        )

    def passes(self) -> None:
        """Run the forward and the backward pass."""
        loss_of(self._model(*self._inputs)).backward()

    def clear(self) -> None:
        """Throw gradients away."""
        self._model.zero_grad()


class Plain:
    """Steps of a model under DDP, or by itself."""

    def __init__(self, model: Any, inputs: tuple[Tensor, ...]) -> None:
        self._model, self._inputs = model, inputs
        self._optimizer = updates_of(model.parameters())

    def passes(self) -> None:
        """Run the forward and the backward pass."""
        loss_of(self._model(*self._inputs)).backward()

    def clear(self) -> None:
        """Throw gradients away."""
        self._model.zero_grad()

    def step(self) -> None:
        """Update."""
        self._optimizer.step()
        self._optimizer.zero_grad()

    def finish(self) -> None:
        """Nothing is left to do."""

    def close(self) -> None:
        """Nothing is held."""


def step_times(run: Compiled | Plain, steps: int) -> list[int]:
    """Return how long each step lasts, from its start to that of the next one."""
    starts = []
    for _ in range(steps + 2):  # the first one does not count, and the last one only ends another
        starts.append(time.perf_counter_ns())
        run.passes()
        run.step()
    run.finish()
    return [after - before for before, after in pairwise(starts[1:])]


def slowest(world: World, what: str, times: Sequence[int]) -> list[int]:
    """Return the times of the slowest rank."""
    ranks = [json.loads(text) for text in world.gather(what, json.dumps(list(times)))]
    return [max(each) for each in zip(*ranks, strict=True)]


def measured(model: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one setting on one host; return what there is to print."""
    make = MODELS[model]
    with join(300) as world:
        pinned(world.rank, HOSTS)
        profile = measure_compiled(
            *make(), name=model, source="benchmarks", warmup=1, repetitions=options.repetitions
        )
        size = profile.parameter_bytes
        table = measure_network(world, "all_reduce", sweep_sizes(size), options.samples, warmup=1)
        interference = ALONE
        if not options.quick:
            compute = passes_of(*make())
            interference = measure_interference(
                world, "all_reduce", BESIDE, options.samples, compute=compute
            )
        # Every rank plans, of what rank 0 has measured: the same request has the same plan.
        profile = decode_profile(_shared(world, encode_profile(profile).encode()))
        rows = json.loads(_shared(world, json.dumps(table_of(table)).encode()))
        plans = plans_for(profile, rows, interference)
        runs: dict[str, Compiled | Plain] = {}
        first_s = {}
        for name, plan in plans.items():
            begun = time.perf_counter()
            runs[name] = Compiled(world, make(), plan, keep_order=name != PLANNED)
            runs[name].passes()
            runs[name].step()
            first_s[name] = time.perf_counter() - begun
        net, inputs = make()
        runs[DDP] = Plain(DistributedDataParallel(net, process_group=world.group), inputs)
        times = {name: list[int]() for name in runs}
        for turn in range(options.rounds):
            names = list(runs)
            for name in [*names[turn % len(names) :], *names[: turn % len(names)]]:
                world.gather(f"turn {turn} of {name}", "")
                times[name] += slowest(
                    world, f"times of {name}", step_times(runs[name], options.steps)
                )
        alone = _alone(make(), runs[PLANNED], options.rounds * options.steps)
        for run in runs.values():
            run.close()
        return {
            "sizes": (len(profile.dataflow().ops), size),
            "groups": {name: len(plan.groups) for name, (_, plan) in plans.items()},
            "predicted": {
                name: caramel.evaluate(*plan).iteration_ns for name, plan in plans.items()
            },
            "times": times,
            "first_s": first_s[PLANNED],
            "alone": alone,
        }


def _alone(trained: Trained, planned: Compiled | Plain, steps: int) -> dict[str, float]:
    """Return what a step without transfers takes, in ms, and compiling for it, in s."""
    assert isinstance(planned, Compiled)
    net, inputs = trained
    begun = time.perf_counter()
    plain = Plain(torch.compile(net, backend="aot_eager", dynamic=False), inputs)
    plain.passes()
    first_s = time.perf_counter() - begun
    ours: list[int] = []
    theirs: list[int] = []
    with planned.backend.no_sync():
        for _ in range(steps + 1):
            for run, times in ((planned, ours), (plain, theirs)):
                run.clear()
                start = time.perf_counter_ns()
                run.passes()
                times.append(time.perf_counter_ns() - start)
    return {
        "ours": median(ours[1:]) / 1e6,
        "aot_eager": median(theirs[1:]) / 1e6,
        "first_s": first_s,
    }


def _shared(world: World, text: bytes) -> bytes:
    """Return what rank 0 has."""
    return world.gather("shared", text.decode() if world.rank == 0 else "")[0].encode()


def shown(model: str, rate: int, result: Mapping[str, Any]) -> None:
    """Print the table of one setting, and what the order is worth in it."""
    ops, size = result["sizes"]
    print(f"## {model}, {HOSTS} hosts, {rate} Mbit/s\n")
    print(f"{ops} operations, {size / 1e6:.1f} MB of gradients.\n")
    head(("variant", "transfers", "predicted", "measured", "middle half", "over planned"))
    times, predicted = result["times"], result["predicted"]
    middles = {name: median(each) for name, each in times.items()}
    for name, each in times.items():
        low, _, high = quantiles(each, n=4, method="inclusive")
        row(
            (
                name,
                result["groups"].get(name, "-"),
                f"{predicted[name] / 1e6:.1f} ms" if name in predicted else "-",
                f"{middles[name] / 1e6:.1f} ms",
                f"{low / 1e6:.1f} – {high / 1e6:.1f}",
                f"{middles[name] / middles[PLANNED]:.3f}",
            )
        )
    print(
        f"\nAutograd's order, same transfers: predicted "
        f"{predicted[SAME] / predicted[PLANNED] - 1:+.1%}, measured "
        f"{middles[SAME] / middles[PLANNED] - 1:+.1%}.\n",
        flush=True,
    )


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="what is the order of a compiled backward pass worth?",
        epilog="example: %(prog)s --models towers --rates 100",
    )
    parser.add_argument("--quick", action="store_true", help="one setting, few steps")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--rates", nargs="+", type=int, default=list(RATES), metavar="MBIT")
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--steps", type=int, default=3, help="of each in a round; default: 3")
    options = parser.parse_args(argv)
    options.samples, options.repetitions = 3, 7
    if options.quick:
        options.models, options.rates = ["towers"], options.rates[-1:]
        options.rounds, options.steps, options.samples, options.repetitions = 2, 1, 1, 2
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = parsed(argv)
    reason = reason_unavailable()
    if reason is None and (os.cpu_count() or 1) < HOSTS:
        reason = f"it takes {HOSTS} processor cores"
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    import_module("torch._dynamo.backends.common")  # once, for all hosts: it takes seconds
    costs = []
    for model in options.models:
        for rate in options.rates:
            result = on_hosts(
                Layout.flat(HOSTS), rate * 10**6, measured, model, options, timeout_s=1800
            )
            shown(model, rate, result)
            costs.append((model, rate, result))
    print("## What compiling and following a plan costs\n")
    head(
        ("model", "Mbit/s", "first step", "of aot_eager", "step alone", "by aot_eager", "overhead")
    )
    for model, rate, result in costs:
        alone = result["alone"]
        row(
            (
                model,
                rate,
                f"{result['first_s']:.2f} s",
                f"{alone['first_s']:.2f} s",
                f"{alone['ours']:.1f} ms",
                f"{alone['aot_eager']:.1f} ms",
                f"{alone['ours'] / alone['aot_eager'] - 1:+.1%}",
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
