"""``planner plan``: plan a whole training iteration on a cluster."""

import argparse
from collections.abc import Sequence
from typing import Any

from planner.cli.common import command
from planner.cli.interrupting import ended, interruptible
from planner.cli.iteration_options import OF_ITERATION, settle
from planner.cli.outputs import Outputs
from planner.cli.parsing import add_options, given, parse_number, refuse, typed
from planner.cli.plan_text import lines
from planner.families import iteration
from planner.families.caramel import CARAMEL
from planner.families.fsdp import FSDP
from planner.families.fsdp.baselines import BASELINES
from planner.jsonio.iteration import planned
from planner.model.errors import InvalidInputError
from planner.model.units import parse_time
from planner.solving.compare import IGNORE_MEMORY, OPTIMISER, REGRET, Option
from planner.solving.methods import without_auto
from planner.solving.targets import FSDP2, PLANNER
from planner.view.progress import Progress

_FSDP = FSDP.name
_OWN = tuple(
    option
    for option in FSDP.own_options
    if option not in (IGNORE_MEMORY, OPTIMISER)  # options of all iterations
)


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(
        commands,
        "plan",
        run,
        "plan a whole training iteration of a profiled model on a cluster",
        "planner plan data/profiles/vgg19.json --cluster data/clusters/caramel-16.json "
        "--computation 0.05\n"
        "  planner plan data/profiles/gpt2_small.json --cluster data/clusters/h100-8.json "
        "--computation 1/500 --optimiser-ratio 2 --picture plan.svg -o plan.json",
        {
            **OF_ITERATION,
            "--method NAME (auto)": "auto (default) is joint, the best of everything; the others "
            "are what a family by itself or another system does: "
            f"{', '.join(without_auto(iteration.METHODS))}",
            "--epoch-samples N": "choose how many of the cluster's machines make the shortest "
            "epoch of N samples",
            "--max-overhead F": "of a cluster whose engine schedules iterations: largest share of "
            "that; default: 0.05",
            "--max-group TIME": "longest time scheduled at once; default: 10s",
            **typed((REGRET,)),
            "--time-limit S": "seconds of planning",
            "--picture FILE": "draw the plan (.svg, .json.gz)",
            "-o, --output FILE": "write the plan as JSON",
            "--json": "print the plan as JSON, no text",
        },
    )
    title = f"with --mode {_FSDP}, or --for {FSDP2.name}, which is the same"
    add_options(parser.add_argument_group(title), typed(_OWN))


def run(options: argparse.Namespace) -> int:
    """Plan an iteration, FSDP's units, or the all-reduces between ranks of a measured network."""
    of_fsdp = options.mode == _FSDP or vars(options)["for"] == FSDP2.name
    if options.cluster is None and (of_fsdp or options.network is None):
        also = "" if of_fsdp else ", or --network alone: what all-reduces take"
        raise InvalidInputError("--cluster", f"missing: where the model trains{also}")
    if of_fsdp:
        return _fully_sharded(options)
    refuse(options, [option.name for option in _OWN], f"applies to --mode {_FSDP} only")
    if options.cluster is None:
        methods = () if options.method == "auto" else (options.method,)
        told = "only together with --cluster"
        return _compared(options, "caramel", CARAMEL.options, methods, told)
    limits: dict[str, Any] = {}
    if options.max_overhead is not None:
        limits["max_overhead"] = parse_number(options.max_overhead, "--max-overhead", positive=True)
    if options.max_group is not None:
        limits["max_group_ns"] = parse_time(options.max_group, "--max-group")
    job = settle(options)
    outputs = Outputs.of(options, iteration.ITERATION.name)
    progress = Progress(quiet=options.quiet)
    with interruptible() as cancel:
        made = planned(
            job.profile,
            job.cluster,
            job.options,
            method=options.method,
            time_limit=options.time_limit,
            epoch_samples=options.epoch_samples,
            limits=limits,
            regret=options.regret,
            progress=lambda what: progress(f"planning {what}"),
            cancel=cancel,
        )
    progress.done()
    answer = made.answer
    outputs.write(
        answer, job.profile.name, lambda: lines(job, made.problem, answer, options.output)
    )
    return ended(cancel)


_LONG_S = 86_400.0
"""Time limit (s) that stands for no limit: more than any method takes."""

_BOTH = (
    *("cluster", "network", "computation", "time_limit", "picture", "output", "json", "quiet"),
)
"""Options of this command that ``planner compare`` takes in addition to the problem's."""


def _fully_sharded(options: argparse.Namespace) -> int:
    """Plan what FSDP wraps, gathers ahead and keeps, and compare with other rules."""
    target = vars(options)["for"]
    if options.mode not in ("any", _FSDP):
        told = f"the plans of {FSDP2.title} are those of --mode fsdp, got {options.mode}"
        raise InvalidInputError("--mode", told)
    if target not in (None, PLANNER, FSDP2.name):
        told = f"the plans of --mode fsdp are for {FSDP2.name}, got {target}"
        raise InvalidInputError("--for", told)
    otherwise = f"does not apply to {' '.join(given(options, ('mode', 'for'))[:2])}"
    vars(options).update({"mode": "any", "for": None})  # `compare` knows neither
    if options.time_limit is None:
        options.time_limit = _LONG_S
    methods = ("auto", *BASELINES) if options.method == "auto" else (options.method,)
    return _compared(options, _FSDP, FSDP.own_options, methods, otherwise)


def _compared(
    options: argparse.Namespace,
    problem: str,
    own: Sequence[Option],
    methods: Sequence[str],
    otherwise: str,
) -> int:
    """Run ``planner compare --problem``; `otherwise` is the error for options it does not take."""
    from planner.cli.main import parser  # which imports this module

    taken = {*_BOTH, *(option.key for option in own)} & {*vars(options)}
    known = {*taken, "run", "parser", "profile", "method"}
    for option in given(options, (name for name in vars(options) if name not in known)):
        raise InvalidInputError(option, otherwise)
    compared = parser(["compare"]).parse_args(["compare", options.profile, "--problem", problem])
    vars(compared).update({name: getattr(options, name) for name in taken})
    compared.alone, compared.methods = True, ",".join(methods)
    status: int = compared.run(compared)
    return status
