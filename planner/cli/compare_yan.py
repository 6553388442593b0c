"""``planner compare`` for the problem yan: the configuration of a job."""

import argparse
from fractions import Fraction
from typing import Any

from planner.cli.common import read_as
from planner.cli.compare_cluster import MACHINES, cluster_of, workers_of
from planner.cli.family import ComparedProblem, Family, Option, Profiled, about
from planner.errors import InvalidInputError
from planner.jsonio import yan as yan_json
from planner.jsonio.measurements import decode_computation
from planner.jsonio.yan_answer import YanAnswer, answer, refuse_sensitivity, with_extras
from planner.network import AnyNetwork
from planner.profiles import Profile
from planner.results import Result
from planner.solving.methods import concrete
from planner.units import counted
from planner.validation import integer
from planner.views import epoch_text
from planner.yan.configuration import Plan
from planner.yan.family import METHODS, solve
from planner.yan.model import Estimate
from planner.yan.problem import Problem
from planner.yan.profiled import ProfiledProblem, profiled
from planner.yan.units import refuse_incomplete

__all__ = ["FAMILY"]

_SAMPLES = 10**6

_OPTIONS = (
    MACHINES,
    Option(
        "--samples",
        _SAMPLES,
        {
            "type": int,
            "metavar": "N",
            "help": f"samples of an epoch; default: {_SAMPLES:,} (any number is ranked alike)",
        },
    ),
    Option(
        "--read-every",
        None,
        {
            "type": int,
            "metavar": "N",
            "help": "samples between two readings of the weights; default: a batch a machine",
        },
    ),
    Option(
        "--constants",
        None,
        {
            "metavar": "FILE",
            "help": "how threads slow down each other, as planner calibrate compute measured it: "
            "threads with batches of their own are tried then",
        },
    ),
    Option(
        "--max-copies",
        None,
        {"type": int, "metavar": "R", "help": "most copies of a layer in a replica; default: any"},
    ),
)


def _requested(request: yan_json.YanRequest) -> ComparedProblem:
    made = yan_json.asked(request)
    problem = made.problem
    if request.sensitivity:
        refuse_sensitivity(problem, "exact")

    def best(result: Result[Plan, Estimate]) -> YanAnswer:
        return with_extras(
            yan_json.told(answer(problem, result), made),
            problem,
            result,
            pareto=request.pareto,
            landscape=request.landscape,
            sensitivity=request.sensitivity and result.method == "exact",
        )

    fixed = bool(problem.fixed)
    lines = [f"request: {_network(problem, made.batch_size)}", _space(problem, made.batch_size)]
    if fixed:
        lines.append("above bound and status: of the given ones only")
    return ComparedProblem(
        problem,
        lambda result: yan_json.told(answer(problem, result), made),
        tuple(lines),
        best=best,
        methods=["auto"] if fixed else None,
        warnings=yan_json.memory_doubts(request),
        notes=lambda _: _assumed(made),
    )


def _network(problem: Problem, batch_size: int) -> str:
    connections = sum(layer.connections for layer in problem.layers)
    weights = sum(layer.weights for layer in problem.layers)
    return (
        f"{counted(len(problem.layers), 'layer')}, "
        f"{counted(connections, 'connection')}, {counted(weights, 'weight')}, "
        f"{counted(problem.samples * batch_size, 'sample')} an epoch"
    )


def _space(problem: Problem, batch_size: int) -> str:
    fixed = len(problem.fixed)
    space = counted(fixed, "given configuration") if fixed else "all configurations"
    return (
        f"{space} on {counted(problem.machines, 'machine')} of {counted(problem.cores, 'core')}, "
        f"up to {counted(problem.threads, 'thread')}, weights read every "
        f"{counted(problem.read_every * batch_size, 'sample')} ({problem.read_model})"
    )


def _assumed(made: ProfiledProblem) -> list[str]:
    return [f"assumed: {text}" for text in made.assumptions]


def _check(options: argparse.Namespace) -> None:
    options.machines = workers_of(options, MACHINES, 2)
    integer(options.samples, "--samples", minimum=1)
    for name in ("read_every", "max_copies"):
        if getattr(options, name) is not None:
            integer(getattr(options, name), f"--{name.replace('_', '-')}", minimum=1)
    if options.constants is not None:
        options.constants = read_as(options.constants, decode_computation)


def _part(profile: Profile, _: argparse.Namespace) -> Profile:
    refuse_incomplete(profile)
    return profile


def _problem(profile: Profile, network: AnyNetwork, options: argparse.Namespace) -> ProfiledProblem:
    cluster = cluster_of(network, options)
    threads = profile.provenance.threads or 1
    interference: tuple[Fraction, ...] | None = options.constants
    if interference is not None and len(interference) < threads:
        raise InvalidInputError(
            "--constants",
            f"measured with {counted(len(interference), 'thread')}, and the profile with {threads}",
        )
    memory: dict[str, Any] = {"memory_bytes": None} if options.ignore_memory else {}
    return profiled(
        profile,
        cluster,
        options.samples,
        read_every=options.read_every,
        interference=interference,
        max_copies=options.max_copies,
        **memory,
    )


def _compared(
    profile: Profile, _: Profile, made: ProfiledProblem, options: argparse.Namespace
) -> ComparedProblem:
    network = f"start-up {options.startup}, bandwidth {options.bandwidth}"
    summary = f"{profile.name}: {_network(made.problem, made.batch_size)}"
    return ComparedProblem(
        made.problem,
        lambda result: yan_json.told(answer(made.problem, result), made),
        (*about(profile, summary, network, options), _space(made.problem, made.batch_size)),
        profile.name,
        warnings=() if options.at is None else options.at.memory_doubts,
        notes=lambda _: _assumed(made),
    )


def _cells(result: Result[Plan, Estimate]) -> tuple[str, ...]:
    assert result.plan is not None
    assert result.objective_ns is not None
    configuration = result.plan.configuration
    return (
        str(configuration.workers_per_replica),
        str(configuration.replicas),
        str(configuration.parameter_servers),
        str(configuration.machines_used),
        epoch_text(result.objective_ns),
    )


FAMILY = Family(
    methods=concrete(METHODS),
    solve=solve,
    columns=("method", "workers", "replicas", "servers", "machines", "epoch"),
    cells=_cells,
    requested=_requested,
    asks="how many machines, replicas and workers, and how layers are cut",
    example="planner compare data/profiles/vgg19.json --problem yan --cluster caramel-16",
    bounding="exact",
    profiled=Profiled(
        options=_OPTIONS,
        check=_check,
        part=_part,
        problem=_problem,
        compared=_compared,
        collective=lambda _: None,
    ),
)
