"""``planner run``: training steps that communicate as planned, predicted against measured."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from planner.cli.common import (
    Progress,
    check_writable,
    command,
    in_file,
    parse_bcube,
    read,
    write_json,
    write_text,
)
from planner.draw.drawing import GANTT
from planner.draw.table import format_table
from planner.errors import InvalidInputError, MeasurementError
from planner.units import format_bytes, format_ns
from planner.validation import integer

if TYPE_CHECKING:
    from planner.runtime.collectives import AllReduce
    from planner.runtime.measured import Comparison, StepTime
    from planner.runtime.programs import Answer
    from planner.runtime.trial import Trial
    from planner.runtime.world import World

__all__ = ["add_parser"]

_ABOUT = """\
Every rank of a job runs this command: start it with torchrun, or any launcher that
sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. PLAN is a plan of caramel, bigdl
or ibatch; of ibatch there can be two, one to pull parameters and one to push
gradients. A step is a forward pass, a backward pass of a stand-in loss, and the
update. Times are those of the slowest rank.
"""


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(
        commands,
        "run",
        run,
        "run training steps of a torch model that communicate as planned",
        "torchrun --nproc-per-node 2 -m planner run plan.json \\\n"
        "    --model my_package.my_module:make_model --input 3x224x224 --steps 20",
    )
    parser.description = f"{parser.description}\n\n{_ABOUT}"
    parser.add_argument(
        "plans", metavar="PLAN", nargs="+", help="answers of planner solve, or of compare -o"
    )
    parser.add_argument(
        "--model",
        metavar="MODULE:FACTORY",
        required=True,
        help="a callable that returns a torch.nn.Module, or (module, tuple of inputs)",
    )
    parser.add_argument(
        "--input",
        metavar="SHAPE",
        help="shape of one sample, such as 3x224x224 or 128:int64, if the factory gives no inputs",
    )
    parser.add_argument("--batch-size", type=int, metavar="N", help="samples of one rank")
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="default: 20")
    parser.add_argument("--warmup", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument(
        "--optimizer", choices=["sgd", "adam"], default="sgd", help="default: sgd, with momentum"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="of torch, on each rank")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="seconds; default: 60"
    )
    parser.add_argument(
        "--interfaces",
        metavar="A,B,…",
        help="the network interface, or those of the levels of a BCube; default: "
        "PLANNER_INTERFACES, or gloo's choice",
    )
    parser.add_argument(
        "--bcube",
        metavar="N,K",
        help="sum up by BML: the ranks are the servers of a BCube(N, K), one interface a level",
    )
    parser.add_argument(
        "--against-ddp",
        type=int,
        nargs="?",
        const=5,
        metavar="ROUNDS",
        help="alternate with DDP as it is by default, so many times (5)",
    )
    parser.add_argument(
        "--picture", metavar="FILE", help="draw a step of rank 0 as measured (.svg, .png)"
    )
    parser.add_argument(
        "--trace", metavar="FILE", help="write a step of all ranks for Perfetto (.json, .json.gz)"
    )
    parser.add_argument("--json", action="store_true", help="print what was measured as JSON")


def run(options: argparse.Namespace) -> int:
    """Run; rank 0 prints, and shows progress on standard error."""
    for name, minimum in (("steps", 2), ("warmup", 0), ("threads", 1), ("against_ddp", 1)):
        value = getattr(options, name)
        if value is not None:
            integer(value, f"--{name.replace('_', '-')}", minimum=minimum, maximum=10**6)
    writers = {}
    for option, endings in (("picture", (".svg", ".png", ".pdf")), ("trace", (".json", ".gz"))):
        path = getattr(options, option)
        if path:
            if not path.endswith(endings):
                raise InvalidInputError(
                    f"--{option}", f"expected a name ending in {', '.join(endings)}, got {path}"
                )
            writers[option] = GANTT.writer(Path(path))
            if os.environ.get("RANK", "0") == "0":
                check_writable(path, f"--{option}")
    answers = _answers(options.plans)

    import torch

    from planner.profiling import load_factory
    from planner.runtime import join
    from planner.runtime.measured import chart_of

    if options.threads:
        torch.set_num_threads(options.threads)
    interfaces = options.interfaces.split(",") if options.interfaces else None
    with redirect_stdout(sys.stderr):  # what the model prints is not the report
        try:
            model, inputs = load_factory(options.model, options.input, options.batch_size)
        except SystemExit as stop:
            raise MeasurementError(f"{options.model} ended the program ({stop.code})") from None
        world = join(options.timeout, interfaces)
        try:
            planned, plain = _trials(options, answers, model, inputs, world)
        finally:
            world.leave()
    if world.rank:
        return 0
    if options.json:
        write_json(_as_json(answers, planned, plain), None)
    else:
        write_text(_report(options, answers, planned, plain, world.size))
    title = f"{options.model}, {world.size} ranks, as measured"
    step = planned[-1].warmup
    if "picture" in writers:
        chart = chart_of(planned[-1].events[:1], step, title)
        writers["picture"](chart, Path(options.picture))
    if "trace" in writers:
        writers["trace"](chart_of(planned[-1].events, step, title), Path(options.trace))
    return 0


def _answers(paths: Sequence[str]) -> "list[Answer]":
    from planner.runtime.programs import program_of, read_plan

    answers = []
    for path in paths:
        try:
            answers.append(read_plan(read(path)))
        except InvalidInputError as error:
            raise in_file(path, error) from None
    try:
        program_of(*answers)
    except InvalidInputError as error:
        raise in_file(" and ".join(paths), error) from None
    return answers


def _trials(
    options: argparse.Namespace,
    answers: "list[Answer]",
    model: Any,
    inputs: tuple[Any, ...],
    world: "World",
) -> "tuple[list[Trial], list[Trial]]":
    """Return the runs as planned, and those under DDP in between."""
    from planner.runtime.trial import run_ddp, run_plan

    progress = Progress()
    rounds = options.against_ddp or 1

    def showing(what: str) -> Callable[[int, int], None]:
        def show(done: int, of: int) -> None:
            if world.rank == 0:
                progress(f"{what}: step {done} of {of}")

        return show

    all_reduce = _all_reduce(options, world)
    planned, plain = [], []
    for turn in range(rounds):
        suffix = f", round {turn + 1} of {rounds}" if rounds > 1 else ""
        planned.append(
            run_plan(
                model,
                inputs,
                list(answers),
                _optimizer(options.optimizer, model),
                world,
                steps=options.steps,
                warmup=options.warmup,
                all_reduce=all_reduce,
                progress=showing(f"as planned{suffix}"),
            )
        )
        if options.against_ddp:
            plain.append(
                run_ddp(
                    model,
                    inputs,
                    _optimizer(options.optimizer, model),
                    world,
                    steps=options.steps,
                    warmup=max(options.warmup, 2),
                    progress=showing(f"under DDP{suffix}"),
                )
            )
    progress.done()
    return planned, plain


def _optimizer(name: str, model: Any) -> Any:
    import torch

    parameters = [one for one in model.parameters() if one.requires_grad]
    if name == "adam":
        return torch.optim.Adam(parameters, lr=1e-4)
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


def _all_reduce(options: argparse.Namespace, world: "World") -> "AllReduce | None":
    if options.bcube is None:
        return None
    from planner.runtime.bcube import BcubeAllReduce

    bcube = parse_bcube(options.bcube)
    return BcubeAllReduce(world, bcube.n, bcube.k)


def _times(trials: "Sequence[Trial]") -> "list[StepTime]":
    from planner.runtime.measured import slowest

    return [step for trial in trials for step in slowest(trial.events, trial.warmup)]


def _report(
    options: argparse.Namespace,
    answers: "Sequence[Answer]",
    planned: "Sequence[Trial]",
    plain: "Sequence[Trial]",
    ranks: int,
) -> str:
    from planner.jsonio import PROBLEMS
    from planner.runtime.measured import compared

    steps = _times(planned)
    lines = [f"plan: {PROBLEMS[answer.problem].headline(answer)}" for answer in answers]
    lines.append(f"run: {options.model}, {ranks} ranks, {len(steps)} steps, {options.optimizer}")
    rows = [_row(one) for one in compared(answers, steps)]
    header = ("", "predicted", "measured", "middle half", "off by")
    lines += ["", format_table(header, rows), "", _batches(answers, planned)]
    if plain:
        lines += ["", _against(planned, plain)]
    return "\n".join(lines) + "\n"


def _row(one: "Comparison") -> tuple[str, ...]:
    low, high = _middle(one.measured_ns)
    return (
        one.name,
        "–" if one.predicted_ns is None else format_ns(one.predicted_ns),
        format_ns(one.median_ns),
        f"{format_ns(low)} – {format_ns(high)}",
        "–" if one.error is None else f"{100 * one.error:+.1f} %",
    )


def _middle(values: Sequence[int]) -> tuple[int, int]:
    """Return the bounds of the middle half of some values."""
    ordered = sorted(values)
    return ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]


def _batches(answers: "Sequence[Answer]", planned: "Sequence[Trial]") -> str:
    """Return what the transfer of each batch took, beside what the plan says."""
    from planner.runtime.measured import batch_times

    said: dict[tuple[str, int], tuple[int, int | None]] = {}
    for answer in answers:
        if answer.problem == "caramel":
            for number, group in enumerate(answer.groups):
                said["", number] = group.end_ns - group.start_ns, group.bytes
        elif answer.problem == "ibatch" and isinstance(answer.schedule, tuple):
            sizes = answer.layer_bytes if isinstance(answer.layer_bytes, tuple) else None
            for number, row in enumerate(answer.schedule):
                size = None if sizes is None else sum(sizes[slice(*row.layers)])
                time = row.transfer_end_ns - row.transfer_start_ns
                said[answer.direction, number] = time, size
    rows = []
    for one in batch_times(planned[-1].events, planned[-1].warmup):
        predicted, size = said.get((one.direction, one.batch), (None, None))
        rows.append(
            (
                f"{one.direction} batch {one.batch + 1}".strip(),
                "–" if size is None else format_bytes(size),
                "–" if predicted is None else format_ns(predicted),
                format_ns(round(median(one.measured_ns))),
            )
        )
    return format_table(("transfer", "size", "predicted", "measured"), rows)


def _against(planned: "Sequence[Trial]", plain: "Sequence[Trial]") -> str:
    """Return how much faster the plan is than DDP, round by round."""
    ratios = sorted(
        median(step.step_ns for step in _times([other]))
        / median(step.step_ns for step in _times([one]))
        for one, other in zip(planned, plain, strict=True)
    )
    ddp = round(median(step.step_ns for step in _times(plain)))
    return (
        f"DDP: {format_ns(ddp)} a step; the plan is {median(ratios):.2f}x as fast "
        f"({ratios[0]:.2f}x to {ratios[-1]:.2f}x in {len(ratios)} alternating rounds)"
    )


def _as_json(
    answers: "Sequence[Answer]", planned: "Sequence[Trial]", plain: "Sequence[Trial]"
) -> str:
    from planner.runtime.measured import batch_times, compared

    document: dict[str, Any] = {
        "comparisons": [
            {
                "name": one.name,
                "predicted_ns": one.predicted_ns,
                "measured_ns": list(one.measured_ns),
            }
            for one in compared(answers, _times(planned))
        ],
        "transfers": [
            {"direction": one.direction, "batch": one.batch, "measured_ns": list(one.measured_ns)}
            for one in batch_times(planned[-1].events, planned[-1].warmup)
        ],
    }
    if plain:
        document["ddp_step_ns"] = [step.step_ns for step in _times(plain)]
    return json.dumps(document) + "\n"
