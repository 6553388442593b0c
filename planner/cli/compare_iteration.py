"""``planner compare`` for the problem iteration: whole training iterations."""

import argparse
from typing import TypeAlias

from msgspec import UNSET

from planner import iteration
from planner.cli.compare_cluster import needs_cluster
from planner.cli.family import ComparedProblem, Family, Profiled, about
from planner.cli.iteration_options import memory_options
from planner.iteration import JOINT
from planner.iteration.measured import notes_of
from planner.jsonio import iteration as iteration_json
from planner.jsonio.iteration_making import answer
from planner.jsonio.profiles import profile_of
from planner.network import AnyNetwork
from planner.profiles import Profile
from planner.results import Result
from planner.solving.methods import concrete
from planner.units import counted, format_bytes, format_ns

__all__ = ["FAMILY"]

_Result: TypeAlias = Result[iteration.Plan, iteration.Evaluation]


def _requested(request: iteration_json.IterationRequest) -> ComparedProblem:
    problem, name = request.to_problem(), request.profile.name
    scale = 1 if request.computation_scale is UNSET else request.computation_scale
    summary = f"request: {_summary(name, problem)}, computation × {float(scale):g}"
    return ComparedProblem(
        problem,
        lambda result: answer(problem, result, model=name),
        (summary,),
        name,
        warnings=problem.cluster.memory_doubts,
        profile=profile_of(request.profile),
        doubts=lambda result: () if result.plan is None else notes_of(problem.cluster, result.plan),
    )


def _summary(name: str, problem: iteration.Problem) -> str:
    cluster, size = problem.cluster, sum(problem.pushed)
    return (
        f"{name} on {cluster.name}: {counted(cluster.workers, 'worker')}, "
        f"{format_bytes(size)} of gradients in {counted(len(problem.pushed), 'parameter')}"
    )


def _part(profile: Profile, _: argparse.Namespace) -> Profile:
    profile.dataflow()  # raises for a model without gradients
    return profile


def _problem(profile: Profile, _: AnyNetwork, options: argparse.Namespace) -> iteration.Problem:
    return iteration.Problem.from_profile(profile, options.at, **memory_options(options))


def _compared(
    profile: Profile, _: Profile, problem: iteration.Problem, options: argparse.Namespace
) -> ComparedProblem:
    return ComparedProblem(
        problem,
        lambda result: answer(problem, result, model=profile.name),
        about(profile, _summary(profile.name, problem), "", options),
        profile.name,
        warnings=problem.cluster.memory_doubts,
        doubts=lambda result: () if result.plan is None else notes_of(problem.cluster, result.plan),
    )


def _cells(result: _Result) -> tuple[str, ...]:
    evaluation = result.evaluation
    assert result.plan is not None
    assert evaluation is not None
    return (
        " + ".join(result.plan.algorithms),
        result.plan.mode,
        str(len(result.plan.transfers)),
        format_ns(evaluation.iteration_ns),
        format_ns(evaluation.stall_ns),
    )


FAMILY = Family(
    methods=concrete(iteration.METHODS),
    solve=iteration.solve,
    columns=("method", "algorithm", "mode", "transfers", "iteration", "stalls"),
    cells=_cells,
    requested=_requested,
    asks="a whole iteration on a cluster; planner plan says more of it",
    example="planner compare data/profiles/vgg19.json --problem iteration --cluster caramel-16",
    bounding=JOINT,
    profiled=Profiled(
        options=(),
        check=needs_cluster,
        part=_part,
        problem=_problem,
        compared=_compared,
        collective=lambda _: "all_reduce",
        beside=True,
    ),
)
