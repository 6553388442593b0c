"""``planner compare`` for the problem ibatch: batches of layers."""

import argparse
from collections.abc import Sequence

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from planner import ibatch
from planner.cli.family import (
    DEFAULT_SECONDS,
    FOR,
    REGRET,
    ComparedProblem,
    Family,
    Option,
    Profiled,
    about,
    percent,
)
from planner.comparison import Comparison
from planner.deadline import Deadline
from planner.errors import InvalidInputError
from planner.interference import ALONE
from planner.jsonio import answering
from planner.jsonio import ibatch as ibatch_json
from planner.jsonio.settled_network import warnings_of
from planner.jsonio.types import or_none
from planner.network import AnyNetwork
from planner.profiles import Profile
from planner.results import Result
from planner.solving.methods import concrete
from planner.solving.what_if import Regret, regrets
from planner.targets import target_of
from planner.units import format_bytes, format_ns, parse_bytes
from planner.validation import integer

__all__ = ["FAMILY"]

_METHODS = concrete(ibatch.METHODS)

WITNESSES = ("milp", "cpsat")
"""Cross-checks of `exact`; they take seconds on long chains."""
WITNESS_MAX_UNITS = 32
"""Longer chains skip the cross-checks unless ``--methods`` names them."""

_OPTIONS = (
    Option(
        "--direction",
        "pull",
        {
            "choices": ["pull", "push"],
            "help": "pull: parameters before the forward pass (default); "
            "push: gradients after backward",
        },
    ),
    Option(
        "--granularity",
        "layer",
        {
            "choices": ["layer", "block"],
            "help": "where batches may end: behind every layer with parameters (default), or only "
            "behind whole blocks of branches; what that costs is said",
        },
    ),
    Option(
        "--objective",
        "makespan",
        {
            "choices": ["makespan", "eq4"],
            "help": "the real makespan (default), or the iBatch paper's Eq. 4 under its Eq. 5",
        },
    ),
    Option("--max-batch", None, {"metavar": "SIZE", "help": "cap on the size of a batch: 64MiB"}),
    FOR,
    REGRET,
)


def _check(options: argparse.Namespace) -> None:
    if options.max_batch is not None:
        cap = parse_bytes(options.max_batch, "--max-batch")
        options.max_batch = integer(cap, "--max-batch", minimum=1)
    if options.regret and options.granularity == "block":
        raise InvalidInputError("--regret", "not with --granularity block: it is that of layers")


def _part(profile: Profile, _: argparse.Namespace) -> Profile:
    return profile.chain("layer")


def _problem(chain: Profile, network: AnyNetwork, options: argparse.Namespace) -> ibatch.Problem:
    return ibatch.Problem.from_profile(
        chain,
        network,
        direction=options.direction,
        objective=options.objective,
        max_batch_bytes=options.max_batch,
        interference=ALONE if options.network is None else options.network.interference,
        target=target_of(vars(options)["for"], "--for"),
    )


def _compared(
    profile: Profile, chain: Profile, problem: ibatch.Problem, options: argparse.Namespace
) -> ComparedProblem:
    network = f"start-up {options.startup}, bandwidth {options.bandwidth}"
    ranks = UNSET if options.network is None else options.network.ranks or UNSET
    names = tuple(layer.name for layer in chain.layers)
    parameters = chain.layer_parameters()
    if problem.target is not None:
        ibatch_json.check_modules(parameters, problem.target)
    limit = DEFAULT_SECONDS if options.time_limit is None else options.time_limit
    blocks = ibatch.Blocks(problem, profile.block_starts(), limit)
    whole = options.granularity == "block"
    units = blocks.merged.layers if whole else problem.layers
    left_out = () if options.methods or units <= WITNESS_MAX_UNITS else WITNESSES

    def answer(result: Result[ibatch.Plan, ibatch.Evaluation]) -> ibatch_json.IbatchAnswer:
        return finished(result, None)

    def best(result: Result[ibatch.Plan, ibatch.Evaluation]) -> ibatch_json.IbatchAnswer:
        rows = None
        if options.regret and result.plan is not None:
            rows = regrets(ibatch.IBATCH, problem, result.plan, Deadline.of(limit))
        return finished(result, rows)

    def finished(
        result: Result[ibatch.Plan, ibatch.Evaluation], regret: Sequence[Regret] | None
    ) -> ibatch_json.IbatchAnswer:
        made = ibatch_json.answer(problem, result, names, parameters, regret=regret)
        cost: ibatch_json.BlocksCost | UnsetType = UNSET
        if whole and result.method not in ibatch.OWN_UNITS:
            best = blocks.best_of_layers.objective_ns
            cost = ibatch_json.BlocksCost(count=units, layers_objective_ns=best)
        return replace(made, ranks=ranks, blocks=cost)

    def notes(comparison: Comparison[ibatch.Plan, ibatch.Evaluation]) -> list[str]:
        lines = [
            f"left out: {method} ({units} units; --methods {method} runs it)" for method in left_out
        ]
        return lines + (_cost_of_blocks(blocks, comparison) if whole else [])

    return ComparedProblem(
        problem,
        answer,
        about(profile, _summary(profile.name, problem), network, options),
        profile.name,
        best=best,
        methods=[name for name in _methods(problem) if name not in left_out],
        solve=(lambda _, **how: blocks.solve(**how)) if whole else None,
        notes=notes,
        doubts=lambda result: (
            () if options.network is None else options.network.beyond(_sizes(problem, result))
        ),
    )


def _methods(problem: ibatch.Problem) -> list[str]:
    """Return the methods to compare, including a target's default."""
    return [*_METHODS, *([] if problem.target is None else [problem.target.name])]


def _cost_of_blocks(
    blocks: ibatch.Blocks, comparison: Comparison[ibatch.Plan, ibatch.Evaluation]
) -> list[str]:
    """Return lines about the cost of batching whole blocks instead of layers."""
    count, layers = blocks.merged.layers, blocks.problem.layers
    rules = ", ".join(sorted(ibatch.OWN_UNITS))
    what = f"--granularity block: batches of {count} blocks of {layers} layers in all"
    lines = [f"{what}; {rules} group layers all the same, and bounds are those of layers"]
    best = blocks.best_of_layers.objective_ns
    rows = [row for row in comparison.rows if row.method not in ibatch.OWN_UNITS]
    if best and rows and (own := rows[0].objective_ns):
        loss = percent(own / best - 1)
        lines.append(
            f"blocks cost {loss}: {format_ns(own)} for the best of them ({rows[0].method}), "
            f"{format_ns(best)} with --granularity layer"
        )
    return lines


def _requested(request: ibatch_json.IbatchRequest) -> ComparedProblem:
    problem, network = request.to_problem(), request.settled()
    names, parameters = or_none(request.layer_names), or_none(request.layer_parameters)
    if request.to_outlook(problem) is not None:
        return ComparedProblem(
            problem,
            lambda result: ibatch_json.answer(problem, result, names, parameters),
            (_summary("request", problem),),
            best=lambda _: answering.run(request),
            best_apart=True,
        )
    return ComparedProblem(
        problem,
        lambda result: ibatch_json.answer(problem, result, names, parameters),
        (_summary("request", problem),),
        best=lambda result: ibatch_json.answer_to(
            request, problem, result, Deadline.of(or_none(request.time_limit_s) or DEFAULT_SECONDS)
        ),
        methods=_methods(problem),
        doubts=lambda result: (
            () if network is None else warnings_of(network, _sizes(problem, result))
        ),
    )


def _sizes(problem: ibatch.Problem, result: Result[ibatch.Plan, ibatch.Evaluation]) -> list[int]:
    """Return the size of each batch (bytes), if known."""
    if result.plan is None or problem.layer_bytes is None:
        return []
    return [sum(problem.layer_bytes[start:stop]) for start, stop in result.plan.batches]


def _summary(name: str, problem: ibatch.Problem) -> str:
    size = problem.layer_bytes and f"{format_bytes(sum(problem.layer_bytes))} to send, "
    return (
        f"{name}, {problem.direction}: {problem.layers} layers, {size or ''}"
        f"{format_ns(problem.compute_prefix[-1])} to compute"
    )


def _cells(result: Result[ibatch.Plan, ibatch.Evaluation]) -> tuple[str, ...]:
    evaluation = result.evaluation
    assert result.plan is not None
    assert evaluation is not None
    return (
        str(len(result.plan.batches)),
        format_ns(evaluation.makespan_ns),
        format_ns(evaluation.exposed_communication_ns),
        format_ns(evaluation.overlap_ns),
    )


FAMILY = Family(
    methods=_METHODS,
    solve=ibatch.solve,
    columns=("method", "batches", "makespan", "exposed comm.", "overlap"),
    cells=_cells,
    requested=_requested,
    asks="which layers to send in one batch; what a profile is asked by default",
    example="planner compare data/profiles/vgg19.json --startup 100us --bandwidth 10Gb/s",
    profiled=Profiled(
        options=_OPTIONS,
        check=_check,
        part=_part,
        problem=_problem,
        compared=_compared,
        collective=lambda options: ibatch.COLLECTIVES[options.direction],
        beside=True,
    ),
)
