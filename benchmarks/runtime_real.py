"""Executes plans beside real computation, against torch's DDP at many bucket sizes and FSDP2.

    python benchmarks/runtime_real.py [--quick] [--parts gradients shards waiting]
        [--models NAME …] [--rates MBIT …] [--hosts N] [--resume FILE] [--anyway]

Gradients, and shards: two hosts, each on a processor core of its own, over links of some speeds
(token buckets). Gloo's threads and the kernel send from the core that computes, so transfers slow
computation down. Cores are kept `awake`, as this machine is a virtual one. Each host measures its
layers, the collectives, and what they and its own passes take from each other; rank 0 plans, with
the interference and without; then all variants take turns. Variants that come to the same, such as
DDP's with buckets larger than the model, are executed once and listed under each of their names.

Waiting: the same of gradients on four and nine hosts, which share this machine's cores, so layers
wait instead of computing (`runtime_waiting`); nothing of it is a speed-up of training.

A busy machine is refused, unless `--anyway`. Each setting says which share of the processors other
processes took, and how much longer the model computed after all rounds than before. If either is
more than 5 %, the setting is measured again, three times at most. With `--resume` settings are kept
in a file, and an interrupted run measures only those that are missing or were disturbed.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from awake import Awake
from emulated_hosts import Layout
from emulated_network import reason_unavailable
from real_models import BLOCKS, MODELS
from runtime_jobs import on_hosts, table_of, take_memory
from runtime_real_gradients import gradients, largest, waiting_for
from runtime_real_kept import MOST_BUSY, Kept, Load, Setting, Task, others_of
from runtime_real_report import shown, summaries
from runtime_real_shards import COLLECTIVES, shards

from planner.model.fitting import sweep_sizes
from planner.model.measured import Collective
from planner.runtime import World, join
from planner.runtime.measuring.sweep import measure_network

MEASURE: dict[str, Callable[..., Setting]] = {
    "gradients": gradients,
    "shards": shards,
    "waiting": waiting_for,
}
"""How each part is measured."""

RATES = (100, 200, 400)
SHARDS_RATE = 200
WAITING = {4: 100, 9: 50}
"""Hosts, and the rate of their links: sending for nine takes both cores of a small machine."""

WAITING_MODELS = ("resnet50", "gpt2_small")
PATIENCE_S = 60.0
MOST_TRIES = 3
"""How often a setting is measured if it is disturbed."""

STOPPED = 3
"""Exit status where something else runs on the machine."""


def tasks_for(options: argparse.Namespace) -> list[Task]:
    """Return what to measure, in order."""
    tasks = []
    if "gradients" in options.parts:
        pairs = product(options.rates, options.models)
        tasks += [Task("gradients", model, options.hosts, rate) for rate, model in pairs]
    if "shards" in options.parts:
        rate = SHARDS_RATE if SHARDS_RATE in options.rates else options.rates[-1]
        tasks += [Task("shards", model, 2, rate) for model in options.models if model in BLOCKS]
    if "waiting" in options.parts:
        pairs = product(list(WAITING)[: 1 if options.quick else None], options.waiting)
        tasks += [Task("waiting", model, hosts, WAITING[hosts]) for hosts, model in pairs]
    return tasks


def collectives_of(task: Task) -> dict[str, Collective]:
    """Return what a task communicates by."""
    return COLLECTIVES if task.part == "shards" else {"all_reduce": "all_reduce"}


@contextmanager
def joined(part: str) -> Iterator[tuple[World, Awake | None]]:
    """Give this host a core that stays awake, and join; layers that wait use any core.

    More hosts than cores share them. Threads inherit the core only if they start later, and gloo's
    start on joining.
    """
    with ExitStack() as stack:
        loop = None
        if part != "waiting":
            take_memory()
            os.sched_setaffinity(0, {int(os.environ["RANK"]) % (os.cpu_count() or 1)})
            loop = stack.enter_context(Awake())
        yield stack.enter_context(join(120)), loop


def time_network(
    part: str, collectives: Sequence[Collective], size: int, samples: int
) -> dict[str, list[list[int]]]:
    """Time collectives on one host; rank 0 returns their tables."""
    with joined(part) as (world, _):
        return {
            kind: table_of(measure_network(world, kind, sweep_sizes(size), samples, warmup=1))
            for kind in collectives
        }


def measure_setting(task: Task, rows: Any, options: argparse.Namespace) -> Setting:
    """Measure one setting on one host; rank 0 returns what it found."""
    with joined(task.part) as (world, loop):
        begun = Load.now(loop)
        setting: Setting = MEASURE[task.part](world, task, rows, options)
        return replace(setting, during=others_of(world, begun, loop))


def rows_for(task: Task, kept: Kept, options: argparse.Namespace) -> Any:
    """Return the tables of a task's network, timed now if they are not known."""
    kinds = collectives_of(task)
    known = {kind: kept.network(task.hosts, task.rate, kind) for kind in kinds.values()}
    missing = [kind for kind, rows in known.items() if rows is None]
    if missing:
        size = largest(task, options.models)
        layout, rate = Layout.flat(task.hosts), task.rate * 10**6
        arguments = task.part, missing, size, options.samples
        timed = on_hosts(layout, rate, time_network, *arguments, timeout_s=900)
        for kind, rows in timed.items():
            kept.keep_network(task.hosts, task.rate, kind, rows)
        known |= timed
    if task.part == "shards":
        return {name: known[kind] for name, kind in kinds.items()}
    return known["all_reduce"]


def busy(seconds: float = 1.0) -> float:
    """Return which share of the processors is not idle while this process sleeps."""
    before = Load.now()
    time.sleep(seconds)
    return Load.now().others(before, 0.0)


def settled() -> float:
    """Return the share that others take, once it is small, or after a while."""
    end = time.monotonic() + PATIENCE_S
    while (share := busy()) > MOST_BUSY and time.monotonic() < end:
        continue
    return share


def measured_setting(task: Task, kept: Kept, options: argparse.Namespace) -> Setting:
    """Return a setting as it is kept, or measured now."""
    known = kept.setting(task)
    if known is not None and (known.quiet or options.anyway):
        return known
    patient = not (options.anyway or options.quick)
    before = settled() if patient else busy()
    if patient and before > MOST_BUSY:
        print(f"something else takes {before:.0%} of the processors (--anyway)", file=sys.stderr)
        sys.exit(STOPPED)
    rows = rows_for(task, kept, options)
    layout, rate = Layout.flat(task.hosts), task.rate * 10**6
    for tries in range(1, 1 + (MOST_TRIES if patient else 1)):
        found = on_hosts(layout, rate, measure_setting, task, rows, options, timeout_s=3600)
        setting: Setting = replace(found, before=before, tries=tries)
        kept.keep(task, setting)
        if setting.quiet:
            break
    return setting


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="what are plans worth where computation is real?",
        epilog="example: %(prog)s --parts gradients --models transformer --rates 200",
    )
    parser.add_argument("--quick", action="store_true", help="one setting a part, few steps")
    parser.add_argument("--parts", nargs="+", choices=list(MEASURE), default=list(MEASURE))
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--rates", nargs="+", type=int, default=list(RATES), metavar="MBIT")
    parser.add_argument(
        "--hosts", type=int, default=2, help="of gradients; more than cores share them; default: 2"
    )
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--steps", type=int, default=2, help="of each variant a round; default: 2")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep settings, and go on")
    parser.add_argument("--anyway", action="store_true", help="on a busy machine, too")
    options = parser.parse_args(argv)
    options.waiting = list(WAITING_MODELS)
    options.samples, options.repetitions = 5, 10
    if options.quick:
        options.models, options.rates = ["wide_resnet"], options.rates[-1:]
        options.waiting = options.waiting[:1]
        options.rounds, options.samples, options.repetitions = 2, 1, 2
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = parsed(argv)
    reason = reason_unavailable(cores=2)
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    how = {name: getattr(options, name) for name in ("rounds", "steps", "samples", "repetitions")}
    kept = Kept(options.resume, how)
    print(f"{options.rounds} rounds, {options.steps} steps of each variant in each\n")
    found = []
    for task in tasks_for(options):
        setting = measured_setting(task, kept, options)
        found.append((task, setting))
        print(shown(task, setting), flush=True)
    print(summaries(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
