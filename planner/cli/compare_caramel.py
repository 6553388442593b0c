"""``planner compare`` for the problem caramel: all-reduces among workers."""

import argparse
from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from planner import caramel
from planner.caramel.for_target import BEHIND_BARRIERS, BUCKETS
from planner.cli.compare_cluster import workers_of
from planner.cli.family import (
    DEFAULT_SECONDS,
    FOR,
    REGRET,
    ComparedProblem,
    Family,
    Option,
    Profiled,
    about,
)
from planner.deadline import Deadline
from planner.errors import InvalidInputError
from planner.interference import ALONE
from planner.jsonio import answering
from planner.jsonio import caramel as caramel_json
from planner.jsonio.heads import Head
from planner.jsonio.settled_network import warnings_of
from planner.jsonio.types import or_none
from planner.network import AnyNetwork, scattered
from planner.profiles import Profile
from planner.results import Result
from planner.solving.methods import concrete
from planner.targets import target_of
from planner.units import counted, format_bytes, format_ns
from planner.validation import integer

__all__ = ["FAMILY"]

_WORKERS = 8
_MAX_WORKERS = 2**16

_Result: TypeAlias = Result[caramel.Plan, caramel.Evaluation]

_OPTIONS = (
    Option(
        "--workers",
        None,
        {
            "type": int,
            "metavar": "W",
            "help": "workers of the all-reduce: each moves 2(W-1)/W bytes per byte; default: as "
            f"many as --network was measured among, or {_WORKERS}",
        },
    ),
    Option(
        "--servers",
        None,
        {
            "type": int,
            "metavar": "S",
            "help": "servers of method ps; default: as many as workers",
        },
    ),
    Option(
        "--seed",
        0,
        {
            "type": int,
            "metavar": "N",
            "help": "seed of the op orders of methods that enforce none; default: 0",
        },
    ),
    FOR,
    REGRET,
)


def _check(options: argparse.Namespace) -> None:
    measured = None if options.network is None else options.network.ranks
    if options.at is not None:
        options.workers = workers_of(options, _OPTIONS[0])
    elif options.workers is None:
        options.workers = measured or _WORKERS
    elif measured is not None and options.workers != measured:
        raise InvalidInputError(
            "--workers", f"expected {measured}, among whom --network was measured"
        )
    target = target_of(vars(options)["for"], "--for")
    if target is not None and target.sharded:
        raise InvalidInputError(
            "--for",
            f"{target.title} shards parameters: expected planner plan --for {target.name}, or "
            "--problem ibatch",
        )
    integer(options.workers, "--workers", minimum=2, maximum=_MAX_WORKERS)
    integer(options.seed, "--seed")
    if options.servers is not None:
        integer(options.servers, "--servers", minimum=1, maximum=options.workers)


def _part(profile: Profile, _: argparse.Namespace) -> Profile:
    profile.dataflow()  # raises for a model without gradients
    return profile


def _problem(profile: Profile, network: AnyNetwork, options: argparse.Namespace) -> caramel.Problem:
    return caramel.Problem.from_profile(
        profile,
        network,
        workers=options.workers,
        servers=options.servers,
        seed=options.seed,
        interference=ALONE if options.network is None else options.network.interference,
        target=target_of(vars(options)["for"], "--for"),
    )


def _compared(
    profile: Profile, _: Profile, problem: caramel.Problem, options: argparse.Namespace
) -> ComparedProblem:
    workers = options.workers
    network = (
        f"all-reduce among {counted(workers, 'worker')}, start-up {options.startup}, "
        f"{float(2 * scattered(workers)):.4g} bytes moved per byte over {options.bandwidth}"
    )

    def best(result: _Result) -> Head:
        looked = _beside(problem, result, options.time_limit, regret=options.regret)
        return replace(looked, ranks=workers)

    return ComparedProblem(
        problem,
        lambda result: replace(caramel_json.answer(problem, result), ranks=workers),
        about(profile, f"{profile.name}: {_summary(problem)}", network, options),
        profile.name,
        best=best,
        methods=_methods(problem),
        doubts=lambda result: (
            () if options.network is None else options.network.beyond(_sizes(result))
        ),
    )


def _sizes(result: _Result) -> list[int]:
    """Return the size of each transfer (bytes)."""
    return [] if result.plan is None else [group.size_bytes for group in result.plan.groups]


def _methods(problem: caramel.Problem) -> Sequence[str] | None:
    """Return the methods to compare; for a target those that allow its barrier."""
    if problem.target is None:
        return None
    return tuple(dict.fromkeys((BUCKETS, problem.target.name, *BEHIND_BARRIERS)))


def _beside(
    problem: caramel.Problem, result: _Result, limit: float | None, *, regret: bool
) -> caramel_json.CaramelAnswer:
    """Return the best plan's answer with DDP's time and the regrets, in one method's time limit."""
    deadline = Deadline.of(DEFAULT_SECONDS if limit is None else limit)
    return caramel_json.answer_beside(problem, result, deadline, regret=regret)


def _requested(request: caramel_json.CaramelRequest) -> ComparedProblem:
    problem = request.to_problem()
    if request.to_outlook(problem) is not None:
        return ComparedProblem(
            problem,
            lambda result: caramel_json.answer(problem, result),
            (f"request: {_summary(problem)}",),
            best=lambda _: answering.run(request),
            best_apart=True,
        )
    return ComparedProblem(
        problem,
        lambda result: caramel_json.answer(problem, result),
        (f"request: {_summary(problem)}",),
        best=lambda result: _beside(
            problem, result, or_none(request.time_limit_s), regret=request.regret
        ),
        methods=_methods(problem),
        doubts=lambda result: warnings_of(request.settled(), _sizes(result)),
    )


def _summary(problem: caramel.Problem) -> str:
    graph = problem.graph
    size_bytes = sum(parameter.size_bytes for parameter in graph.parameters)
    return (
        f"{counted(len(graph.parameters), 'parameter')}, {format_bytes(size_bytes)} of gradients, "
        f"{counted(len(graph.ops), 'op')}, {format_ns(problem.windows.compute_ns)} to compute"
    )


def _cells(result: _Result) -> tuple[str, ...]:
    evaluation = result.evaluation
    assert result.plan is not None
    assert evaluation is not None
    return (
        str(len(result.plan.groups)),
        format_ns(evaluation.iteration_ns),
        format_ns(evaluation.stall_ns),
        f"{evaluation.overlap:.1%}",
        f"{evaluation.utilisation:.1%}",
    )


FAMILY = Family(
    methods=concrete(caramel.METHODS),
    solve=caramel.solve,
    columns=("method", "groups", "iteration", "stalls", "overlap", "utilisation"),
    cells=_cells,
    requested=_requested,
    asks="which gradients to send together, and when, between workers; of a profile",
    example="planner compare data/profiles/resnet50.json --problem caramel --workers 8 "
    "--startup 50us --bandwidth 10Gb/s",
    bounding="search",
    profiled=Profiled(
        options=_OPTIONS,
        check=_check,
        part=_part,
        problem=_problem,
        compared=_compared,
        collective=lambda _: "all_reduce",
        beside=True,
    ),
)
