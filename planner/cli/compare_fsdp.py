"""``planner compare`` for the problem fsdp: fully sharded training."""

import argparse

from planner import fsdp
from planner.cli.compare_cluster import needs_cluster
from planner.cli.family import ComparedProblem, Family, Option, Profiled, about
from planner.fsdp.problem import CHANNELS
from planner.iteration.fully_sharded import sharded_problem
from planner.jsonio import fsdp as fsdp_json
from planner.network import AnyNetwork
from planner.profiles import Profile
from planner.results import Result
from planner.solving.methods import concrete
from planner.units import counted, format_bytes, format_ns

__all__ = ["FAMILY", "summary"]

_METHODS = [name for name in concrete(fsdp.METHODS) if name != "exact"]


_CHANNELS = Option(
    "--channels",
    "one",
    {
        "choices": CHANNELS,
        "help": "one communicator for all-gathers and reduce-scatters (default), two that do not "
        "disturb each other, or two that share the links",
    },
)
_RECOMPUTE = Option(
    "--recompute",
    False,
    {"action": "store_true", "help": "layers may be recomputed (activation checkpointing)"},
)


def _part(profile: Profile, _: argparse.Namespace) -> Profile:
    return profile


def _problem(profile: Profile, _: AnyNetwork, options: argparse.Namespace) -> fsdp.Problem:
    return sharded_problem(
        profile,
        options.at,
        channels=options.channels,
        ignore_memory=bool(options.ignore_memory),
        recompute=options.recompute,
    )


def _compared(
    profile: Profile, _: Profile, problem: fsdp.Problem, options: argparse.Namespace
) -> ComparedProblem:
    return ComparedProblem(
        problem,
        lambda result: fsdp_json.answer(problem, result),
        about(profile, f"{profile.name}: {summary(problem)}", "", options),
        profile.name,
        methods=["auto", *_METHODS],
    )


def _requested(request: fsdp_json.FsdpRequest) -> ComparedProblem:
    problem = request.to_problem()
    return ComparedProblem(
        problem,
        lambda result: fsdp_json.answer(problem, result),
        (f"request: {summary(problem)}",),
        methods=["auto", *_METHODS],
    )


def summary(problem: fsdp.Problem) -> str:
    """Return a one-line summary of a problem."""
    ranks = problem.meshes[0].ranks
    memory = "memory does not bind"
    if problem.memory_bytes is not None:
        memory = f"{format_bytes(problem.memory_bytes)} each"
    return (
        f"{counted(problem.layers, 'layer')} with {format_bytes(sum(problem.parameter_bytes))} of "
        f"parameters, {format_ns(problem.compute_ns)} to compute, on {counted(ranks, 'rank')}, "
        f"{memory}"
    )


def _cells(result: Result[fsdp.Plan, fsdp.Evaluation]) -> tuple[str, ...]:
    plan, evaluation = result.plan, result.evaluation
    assert plan is not None
    assert evaluation is not None
    return (
        str(len(plan.units)),
        str(sum(unit.keep for unit in plan.units)),
        format_ns(evaluation.iteration_ns),
        format_ns(evaluation.exposed_ns),
        format_bytes(evaluation.peak_bytes),
    )


FAMILY = Family(
    methods=_METHODS,
    solve=fsdp.solve,
    columns=("method", "units", "kept", "iteration", "exposed comm.", "peak memory"),
    cells=_cells,
    requested=_requested,
    asks="what FSDP should wrap, prefetch and keep; planner plan --mode fsdp says more of it",
    example="planner compare data/profiles/gpt2_small.json --problem fsdp --cluster h100-8",
    profiled=Profiled(
        options=(_CHANNELS, _RECOMPUTE),
        check=needs_cluster,
        part=_part,
        problem=_problem,
        compared=_compared,
        collective=lambda _: None,
    ),
)
