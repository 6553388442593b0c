"""``planner plan``: plan a whole training iteration on a cluster."""

import argparse
from typing import Any

from planner.cli import plan_fsdp
from planner.cli.common import command
from planner.cli.interrupting import ended, interruptible
from planner.cli.iteration_options import add_iteration_options, inputs_of, settle
from planner.cli.outputs import Outputs
from planner.cli.parsing import add_options, given, parse_number
from planner.cli.plan_text import lines
from planner.families import iteration
from planner.jsonio.iteration import planned
from planner.jsonio.what_if import OUTLOOKS
from planner.model.errors import InvalidInputError
from planner.model.units import parse_time
from planner.solving.compare import REGRET
from planner.solving.methods import concrete
from planner.view.progress import Progress


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
    )
    add_iteration_options(parser, planning=True)
    plan_fsdp.add_own_options(parser)
    add_options(
        parser,
        {
            "--method NAME": "auto (default) is joint, the best of everything; the others are "
            "what a family by itself or another system does: "
            f"{', '.join(concrete(iteration.METHODS))}",
            "--epoch-samples N": "choose how many of the cluster's machines make the shortest "
            "epoch of N samples",
            "--max-overhead F": "of a cluster whose engine schedules iterations: largest share of "
            "that; default: 0.05",
            "--max-group TIME": "longest time scheduled at once; default: 10s",
            "--regret": REGRET.help,
            "--outlook": "what counts: times as they are, or the mean or 90th percentile over what "
            "their measured spreads make of them; default: mean, of auto where the profile has "
            "spreads",
            "--time-limit S": "seconds of planning",
            "--picture FILE": "draw the plan (.svg, .json.gz)",
            "-o, --output FILE": "write the plan as JSON",
            "--json": "print the plan as JSON, no text",
        },
        {"--method": {"default": "auto"}, "--outlook": {"choices": OUTLOOKS}},
    )


def run(options: argparse.Namespace) -> int:
    """Plan an iteration, FSDP's units, or the all-reduces between ranks of a measured network."""
    plan_fsdp.refuse_options(options)
    if options.cluster is None:
        return _without_cluster(options)
    if plan_fsdp.asked(options):
        return plan_fsdp.run(options)
    job = settle(options)
    outputs = Outputs.of(options, iteration.ITERATION.name, inputs_of(options))
    progress = Progress(quiet=options.quiet)
    with interruptible() as cancel:
        made = planned(
            job.profile,
            job.cluster,
            job.options,
            method=options.method,
            time_limit=options.time_limit,
            epoch_samples=options.epoch_samples,
            limits=_limits(options),
            regret=options.regret,
            likely={} if options.outlook is None else {"outlook": options.outlook},
            progress=lambda what: progress(f"planning {what}"),
            cancel=cancel,
        )
    progress.done()
    answer = made.answer
    outputs.write(
        answer, job.profile.name, lambda: lines(job, made.problem, answer, options.output)
    )
    return ended(cancel)


_OF_ALL_REDUCES = (
    *("network", "for", "computation", "seed", "regret", "time_limit"),
    *("picture", "output", "json", "quiet"),
)
"""Options that need no cluster; the profile and the method need none either."""


def _without_cluster(options: argparse.Namespace) -> int:
    """Run ``planner compare --problem caramel``: all that is known are the costs of all-reduces."""
    from planner.cli.main import parser  # which imports this module

    if options.network is None or plan_fsdp.asked(options):
        also = "" if plan_fsdp.asked(options) else ", or --network alone: what all-reduces take"
        raise InvalidInputError("--cluster", f"missing: where the model trains{also}")
    known = (*_OF_ALL_REDUCES, "run", "parser", "profile", "cluster", "method")
    for option in given(options, (name for name in vars(options) if name not in known)):
        raise InvalidInputError(option, "only together with --cluster")
    words = ["compare", options.profile, "--problem", "caramel", *given(options, _OF_ALL_REDUCES)]
    if options.method != "auto":
        words += ["--methods", options.method]
    compared = parser(words).parse_args(words)
    status: int = compared.run(compared)
    return status


def _limits(options: argparse.Namespace) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if options.max_overhead is not None:
        limits["max_overhead"] = parse_number(options.max_overhead, "--max-overhead", positive=True)
    if options.max_group is not None:
        limits["max_group_ns"] = parse_time(options.max_group, "--max-group")
    return limits
