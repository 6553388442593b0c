"""Buckets of DeepSpeed's ZeRO from traces, on one host of `tuned_traces`; needs ``deepspeed``.

From the trace of a job with small buckets its bucket size is planned. Beside the two run sizes in
between. On processors DeepSpeed waits for every transfer, so a plan saves start-ups alone.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from real_models import MODELS
from runtime_real import joined
from runtime_report import Measured
from tuned_traces import PLANNED, RECORDED, Circle, circle_of, planned, recording

from planner.cli.export import settings_for
from planner.cli.tune import proposed
from planner.families.caramel.evaluation import lasting_ns
from planner.families.caramel.for_target import plan_of_buckets, target_view
from planner.formats.importers.kineto_recorded import recorded_in
from planner.formats.importers.kineto_trace import read_trace
from planner.jsonio import caramel
from planner.profiling.samples import loss_of
from planner.runtime import World
from planner.solving.bucketing import fitting_buckets
from planner.traces.proposals import Proposal, waited_for

RECORDED_ELEMENTS = 20_000
OTHERS = {"10 times": 200_000, "50 times": 1_000_000}
"""Other sizes, as multiples of the recorded one."""

WIDTH = 4
"""Bytes of an element."""


def trained(name: str, stage: int, elements: int) -> Callable[[], None]:
    """Return a function that runs a step of a model under ZeRO; buckets have `elements`."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    deepspeed: Any = import_module("deepspeed")
    communication: Any = import_module("deepspeed.comm.torch")
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)  # it writes to standard output
    communication.build_shm_op = lambda: None  # hosts share no memory
    deepspeed.init_distributed("gloo")
    model, inputs = MODELS[name]()
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage, "reduce_bucket_size": elements},
        "optimizer": {"type": "SGD", "params": {"lr": 1e-3}},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )

    def step() -> None:
        engine.backward(loss_of(engine(*inputs)))
        engine.step()

    return step


def circle(stage: int, name: str, rate: int, share: float, folder: str, options: Any) -> Circle:
    """Trace, plan and run one setting, on one host; rank 0 returns what came of it."""
    del share  # the recorded size is one for all
    with joined("gradients") as (world, _):
        recording(world, trained(name, stage, RECORDED_ELEMENTS), folder)
        plan = planned(world, folder, _planned)
        steps = {each["name"]: trained(name, stage, each["elements"]) for each in plan["variants"]}
        times = _in_turn(world, steps, options)
    rows = [Measured(each["name"], each["ns"], times[each["name"]]) for each in plan["variants"]]
    return circle_of(f"{name}, {rate} Mbit/s, ZeRO stage {stage}", plan, rows)


def _planned(traces: Sequence[bytes]) -> Any:
    """Return the plan made of the traces, and the predicted step of each bucket size."""
    read = [read_trace(data) for data in traces]
    ranks = [recorded_in(trace, place) for place, trace in enumerate(read)]
    graph, found = proposed(ranks, read[ranks.index(waited_for(ranks))])
    answers = [caramel.answer(*found.planned)]
    settings: Any = settings_for(found.target.name, answers, graph, WIDTH)
    sizes = {
        RECORDED: RECORDED_ELEMENTS,
        PLANNED: settings["zero_optimization"]["reduce_bucket_size"],
        **OTHERS,
    }
    return {
        "buckets": (len(found.buckets), len(found.proposed)),
        "error": found.error,
        "gain": (found.gain, found.least_gain, found.most_gain),
        "keep": found.keep,
        "variants": [
            {"name": name, "elements": elements, "ns": _step_ns(found, elements)}
            for name, elements in sizes.items()
        ],
    }


def _step_ns(found: Proposal, elements: int) -> int:
    """Return the predicted step with buckets of `elements` (ns)."""
    if elements == RECORDED_ELEMENTS:
        return found.predicted_ns
    reading = found.likeliest
    view = target_view(reading.problem, found.target)
    counts = fitting_buckets(view.sizes, WIDTH * elements)
    plan = plan_of_buckets(reading.problem, found.target, view, counts)
    return found.parts["other"] + reading.outside_ns + lasting_ns(reading.problem, plan)


def _in_turn(
    world: World, steps: dict[str, Callable[[], None]], options: Any
) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Return the steps of each (ns), by round; a turn begins with a step that does not count."""
    own: dict[str, list[list[int]]] = {name: [] for name in steps}
    names = list(steps)
    for turn in range(options.rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            steps[name]()
            world.gather(f"turn {turn} of {name}", "")
            own[name].append([])
            for _ in range(options.steps):
                begun = time.perf_counter_ns()
                steps[name]()
                own[name][-1].append(time.perf_counter_ns() - begun)
    return {name: tuple(map(tuple, turns)) for name, turns in own.items()}


STAGES = {stage: partial(circle, stage) for stage in (1, 2)}
"""What runs a setting under each stage."""
