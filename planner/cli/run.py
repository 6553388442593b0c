"""``planner run``: run training steps as planned and compare with the prediction."""

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any

from planner.cli.common import command, in_file, read, write_json, write_text
from planner.cli.compare_tables import kept
from planner.cli.parsing import FACTORY, MODEL_INPUT, check_integers, load_model, parse_names
from planner.cli.run_report import Ran, as_json, report
from planner.cli.writing import replacing
from planner.model.errors import InvalidInputError, InvalidPlanError, PlannerError
from planner.model.machine import Load
from planner.model.units import counted
from planner.view.chart import Chart
from planner.view.gantt import save_gantt
from planner.view.progress import Progress
from planner.view.trace import save_trace

if TYPE_CHECKING:
    from planner.programs import Answer, Program
    from planner.runtime.measuring.trial import Trial

_ABOUT = """\
Every rank of a job runs this command: start it with torchrun, or any launcher that
sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. PLAN is a plan of planner plan, or
one of caramel, fsdp, bigdl or ibatch; of ibatch there can be two, one to pull parameters
and one to push gradients. A step is a forward pass, a backward pass of a stand-in loss, and the
update; pictures and traces show one from a backward pass to the next. Times are means
over the ranks.
"""


def add_parser(commands: Any) -> None:
    """Add the command."""
    command(
        commands,
        "run",
        run,
        "run training steps of a torch model that communicate as planned",
        "torchrun --nproc-per-node 2 -m planner run plan.json \\\n"
        "    --model my_package.my_module:make_model --input 3x224x224 --steps 20",
        {
            "plans PLAN+": "answers of planner solve, or of compare -o",
            "--model MODULE:FACTORY": FACTORY,
            **MODEL_INPUT,
            "--steps N (20)": "default: 20",
            "--warmup N (3)": "default: 3",
            "--optimizer sgd|adam (sgd)": "default: sgd, with momentum",
            "--threads N": "of torch, on each rank",
            "--timeout S (60)": "seconds; default: 60",
            "--interfaces A,B,…": "the network interface, or those of the levels of a BCube; "
            "default: PLANNER_INTERFACES, or gloo's choice",
            "--against-ddp ROUNDS": "alternate with DDP (a plan of fsdp: with FSDP2) as it is "
            "by default, so many times (5)",
            "--picture FILE": "draw a step as predicted above the median one measured (.svg)",
            "--trace FILE": "write a step of all ranks for Perfetto (.json, .json.gz)",
            "--json": "print what was measured as JSON",
        },
        {
            "--model": {"required": True},
            "--against-ddp": {"type": int, "nargs": "?", "const": 5},
        },
        _ABOUT,
    )


def run(options: argparse.Namespace) -> int:
    """Run the steps; rank 0 prints the report and shows progress on standard error."""
    check_integers(options, {"steps": 2, "warmup": 0, "threads": 1, "against_ddp": 1})
    drawn = {"picture": (".svg",), "trace": (".json", ".json.gz")}
    for option, endings in drawn.items():
        path = getattr(options, option)
        if path and not path.endswith(endings):
            told = f"expected a name ending in {', '.join(endings)}, got {path}"
            raise InvalidInputError(f"--{option}", told)
    first = os.environ.get("RANK", "0") == "0"
    answers, program = _answers(options.plans)
    if not (math.isfinite(options.timeout) and 0 < options.timeout <= 10**6):
        raise InvalidInputError("--timeout", f"expected seconds > 0, got {options.timeout:g}")
    from planner.programs import UnitProgram

    for option in drawn:
        if getattr(options, option) and isinstance(program, UnitProgram):
            raise InvalidInputError(f"--{option}", "not of FSDP2, which does not say what it sends")
    for text in filter(None, map(kept, answers if first else ())):
        print(f"planner: {text}", file=sys.stderr)

    # First: its error names what to install without torch.
    model, inputs = load_model(options.model, options.input, options.batch_size)

    import torch

    from planner.profiling.samples import optimizer_of
    from planner.runtime import join
    from planner.runtime.measuring.measured import beside_each_other, timeline_of
    from planner.runtime.measuring.trial import circumstances, run_ddp, run_fsdp2, run_plan

    if options.threads:
        torch.set_num_threads(options.threads)
    interfaces = parse_names(options.interfaces, "--interfaces") if options.interfaces else None
    with (
        redirect_stdout(sys.stderr),  # keep the model's own prints out of the report
        join(options.timeout, interfaces) as world,
    ):
        make = partial(optimizer_of, options.optimizer)
        follow: Callable[..., Trial]
        default: Callable[..., Trial]
        if isinstance(program, UnitProgram):
            follow = partial(run_fsdp2, model, inputs, program, make, world)
            default = partial(follow, default=True)
        else:

            def follow(**how: Any) -> "Trial":
                updates = make(model.parameters())
                return run_plan(model, inputs, list(answers), updates, world, **how)

            def default(**how: Any) -> "Trial":
                return run_ddp(model, inputs, make(model.parameters()), world, **how)

        before = Load.now()
        try:
            planned, plain = _alternated(options, follow, default, shown=world.rank == 0)
        except InvalidPlanError as error:
            raise PlannerError(f"{' and '.join(options.plans)}: {error}") from None
        machine, threads = circumstances(world, before)
    if world.rank:
        return 0
    ran = Ran(options, answers, planned, plain, threads, machine)
    if options.json:
        write_json(as_json(ran), None)
    else:
        write_text(report(ran))
    name = f"{options.model}, {counted(world.size, 'rank')}"
    if options.picture:
        chart = Chart(*beside_each_other(name, answers, planned))
        with replacing(options.picture) as place:
            save_gantt(chart, place)
    if options.trace:
        timeline = timeline_of(planned[-1].events, planned[-1].warmup)
        with replacing(options.trace) as place:
            save_trace(Chart(f"What {name} did in a step, as measured", timeline), place)
    return 0


def _alternated(
    options: argparse.Namespace,
    follow: "Callable[..., Trial]",
    default: "Callable[..., Trial]",
    *,
    shown: bool,
) -> "tuple[list[Trial], list[Trial]]":
    """Return the trials of the plan and the alternating ones of DDP, or of FSDP2's default."""
    rounds, line = options.against_ddp or 1, Progress(quiet=options.quiet)

    def trial(run: "Callable[..., Trial]", what: str, warmup: int) -> "Trial":
        progress = partial(line, f"{what}: step") if shown else None
        return run(steps=options.steps, warmup=warmup, progress=progress)

    planned, plain = [], []
    for turn in range(rounds):
        suffix = f", round {turn + 1} of {rounds}" if rounds > 1 else ""
        planned.append(trial(follow, f"as planned{suffix}", options.warmup))
        if options.against_ddp:
            plain.append(trial(default, f"by default{suffix}", max(options.warmup, 2)))
    line.done()
    return planned, plain


def _answers(paths: Sequence[str]) -> "tuple[list[Answer], Program]":
    """Return plans that can be followed together, and their program."""
    from planner.programs import program_of, read_plan

    answers = []
    for path in paths:
        with in_file(path):
            answers.append(read_plan(read(path)))
    with in_file(" and ".join(paths)):
        return answers, program_of(*answers)
